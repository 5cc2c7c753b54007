"""The lease of this process, kept by a thread of its own so that a busy loop does not lose it.

A live process is not a progressing one: the thread also watches the event loop. A loop that does not answer
for longer than ``wedged`` ends the process, for its supervisor to start a new one.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from roundelay_worker.process.clock import ticking
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.lease import LeaseKeeper as LeaseConnection

log = logging.getLogger(__name__)

EXIT_WEDGED: Final = 70
EXIT_LEASE_LOST: Final = 75
_LATE: Final = 5.0
"""Seconds between two renewals that a database which does not answer can explain."""


class LeaseKeeper:
    """Renews the lease every third of its length; ``lost`` is called, in the thread, when it ran out."""

    def __init__(
        self,
        connect: Callable[[], LeaseConnection],
        lease: float,
        wedged: float,
        lost: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._lease = lease
        self._wedged = wedged
        self._lost = lost
        self._stop = threading.Event()
        self._beat = self._turned = time.monotonic()
        self._until = 0.0
        self._lapsed_until = 0.0
        self._thread = threading.Thread(target=self._run, name="roundelay-lease", daemon=True)

    def start(self) -> None:
        """Begin to renew what was had just now."""
        self._until = ticking() + self._lease
        self._thread.start()

    def held(self) -> bool:
        """Say whether the lease has not run out as far as this process knows, also right after a suspend."""
        return ticking() < self._until

    def may_judge(self) -> bool:
        """Say whether this process may take work from those whose lease ran out.

        One whose own lease ran out must not, for a lease's length: the database was away, and the others need time
        to renew theirs.
        """
        return self.held() and ticking() - self._lapsed_until > self._lease

    def stop(self) -> None:
        """Stop renewing, and wait for the thread."""
        self._stop.set()
        self._thread.join(timeout=self._lease)

    async def beat(self) -> None:
        """Show the thread that the event loop turns, until cancelled."""
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(self._lease / 6)

    def _run(self) -> None:
        connection = self._connect()
        while not self._stop.wait(self._lease / 3):
            self._end_if_wedged(time.monotonic())
            asked = ticking()
            try:
                held = connection.renew()
            except StoreUnavailable:
                # Nobody can sweep without the database either; the first renewal after it is back decides.
                log.warning("lease_not_renewed", extra={"reason": "database unavailable"})
                continue
            if not held:
                self._lost()
                return
            if asked > self._until:
                self._lapsed_until = asked
            self._until = asked + self._lease
        connection.close()

    def _end_if_wedged(self, now: float) -> None:
        if now - self._turned > max(self._lease, _LATE):
            self._beat = now  # this thread could not run either: the process was frozen, and its loop may be well
        self._turned = now
        if now - self._beat > self._wedged:
            log.critical("event_loop_wedged", extra={"seconds": round(now - self._beat, 1)})
            os._exit(EXIT_WEDGED)
