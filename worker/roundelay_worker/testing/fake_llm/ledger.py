"""What the fake saw: requests, refusals, disconnects, counts; safe to read from any thread while it serves."""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, RLock
from typing import Any

import orjson

from roundelay_worker.testing.fake_llm.refusal import Format, Refusal

_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request: ``name`` of its script, ``step`` ("0", "1", … or "closing"), and the attempt at that step.

    ``refused`` is the rule that it broke, '' if it was answered; a refused request is attempt 0. ``at`` is Unix time.
    No header is kept, so no key is.
    """

    number: int
    at: float
    format: Format
    model: str
    name: str
    step: str
    attempt: int
    stream: bool
    closing: bool
    refused: str
    raw: bytes = field(repr=False)

    @property
    def body(self) -> Any:
        """The request's JSON, None if it was too old to be kept or was none."""
        try:
            return orjson.loads(self.raw)
        except orjson.JSONDecodeError:
            return None


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that broke a rule, and the answer it got."""

    request: Recorded
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A client that closed the connection before it had the whole reply, ``after`` seconds."""

    request: Recorded
    at: float
    after: float


class Ledger:
    """The record of one fake; ``keep`` bounds how many requests it holds, counts are never dropped."""

    def __init__(self, keep: int) -> None:
        self._changed = Condition(RLock())
        self._keep = keep
        self._clear()

    def _clear(self) -> None:
        self._requests: deque[Recorded] = deque()
        self._bytes = 0
        self._refusals: deque[Refused] = deque(maxlen=self._keep)
        self._disconnects: deque[Disconnected] = deque(maxlen=self._keep)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._open: set[int] = set()
        self._doubted: set[str] = set()
        self._total = 0

    def arrived(
        self, request: Callable[[int, int], Recorded], name: str, step: str, refusal: Refusal | None
    ) -> Recorded:
        """Count a request and keep what ``request(number, attempt)`` makes of it."""
        with self._changed:
            self._total += 1
            self._counts[name, step] += 1
            self._attempts[name, step] += refusal is None
            recorded = request(self._total, 0 if refusal else self._attempts[name, step])
            self._store(recorded)
            if refusal is None:
                self._open.add(recorded.number)
            else:
                self._refusals.append(Refused(recorded, refusal))
            self._changed.notify_all()
            return recorded

    def _store(self, recorded: Recorded) -> None:
        self._requests.append(recorded)
        self._bytes += len(recorded.raw)
        while len(self._requests) > self._keep or (self._bytes > _BYTES and len(self._requests) > 1):
            self._bytes -= len(self._requests.popleft().raw)

    def ended(self, request: Recorded) -> None:
        """Note that a reply is over, however it ended."""
        with self._changed:
            self._open.discard(request.number)
            self._changed.notify_all()

    def disconnected(self, request: Recorded) -> None:
        """Note that the client hung up."""
        with self._changed:
            now = time.time()
            self._disconnects.append(Disconnected(request, now, now - request.at))
            self._changed.notify_all()

    def doubted(self, name: str) -> None:
        """Note that the reasoning of a conversation was refused, so that leaving it out is a repair."""
        with self._changed:
            self._doubted.add(name)

    def was_doubted(self, name: str) -> bool:
        """Say whether the reasoning of a conversation was ever refused."""
        with self._changed:
            return name in self._doubted

    def reset(self) -> None:
        """Forget everything."""
        with self._changed:
            self._clear()
            self._changed.notify_all()

    def requests(self) -> tuple[Recorded, ...]:
        """Return the requests that are kept, oldest first."""
        with self._changed:
            return tuple(self._requests)

    def refusals(self) -> tuple[Refused, ...]:
        """Return the refusals that are kept, oldest first."""
        with self._changed:
            return tuple(self._refusals)

    def disconnects(self) -> tuple[Disconnected, ...]:
        """Return the disconnects that are kept, oldest first."""
        with self._changed:
            return tuple(self._disconnects)

    def count(self, name: str, step: int | str | None = None) -> int:
        """Return how many requests came for a script, or for one step of it; refused ones are counted."""
        with self._changed:
            if step is not None:
                return self._counts[name, str(step)]
            return sum(number for (owner, _), number in self._counts.items() if owner == name)

    def counts(self) -> list[dict[str, Any]]:
        """Return all counts as (name, step, count)."""
        with self._changed:
            return [{"name": name, "step": step, "count": number} for (name, step), number in self._counts.items()]

    def total(self) -> int:
        """Return how many requests came in all."""
        with self._changed:
            return self._total

    def open(self) -> int:
        """Return how many replies are under way."""
        with self._changed:
            return len(self._open)

    def wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition on this record holds; False if it does not within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)
