"""One reader connection per process and kind, shared by all waiters: when it starts and stops.

Everything here is plain memory under a lock: the sync runner runs the reader in a thread, the async one in a task.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final

IDLE_SECONDS: Final = 15.0

Clock = Callable[[], float]


class SharedReader:
    """Decides when the reader starts and stops. The lock also guards what a subclass keeps."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.lock = threading.Lock()
        self._clock = clock
        self._is_active = False
        self._is_closed = False
        self._used_at = 0.0

    def claim(self) -> bool:
        """Return True if the caller has to start the reader."""
        with self.lock:
            is_mine = not self._is_active
            self._is_active = True
            self._used_at = self._clock()
            return is_mine

    def close(self) -> None:
        """Let the reader stop at its next turn."""
        with self.lock:
            self._is_closed = True

    def retire(self) -> None:
        """Note that the reader runs no more: the next ``claim`` starts a new one."""
        with self.lock:
            self._is_active = False

    def goes_on(self) -> bool:
        """Return whether the reader is still needed; if not, it has retired with this answer."""
        with self.lock:
            if self._is_used():
                self._used_at = self._clock()
            if not self._is_closed and self._clock() - self._used_at < IDLE_SECONDS:
                return True
            self._is_active = False
            return False

    def _is_used(self) -> bool:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Pause:
    """Redis is away: drop the reader's connection and wait these seconds."""

    seconds: float


def pauses() -> Iterator[Pause]:
    """Return the pauses between attempts to reach Redis again, up to a second each."""
    return chain(map(Pause, (0.05, 0.1, 0.2, 0.5)), repeat(Pause(1.0)))
