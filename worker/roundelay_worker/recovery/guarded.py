"""Sweeps over many items, none of which may stop the others: what breaks is named once and set aside for a while."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from roundelay_worker.store.errors import StoreUnavailable

log = logging.getLogger(__name__)
T = TypeVar("T")

ASIDE: Final = 60.0
"""Seconds before an item that broke a sweep is tried again."""

AWAY: Final = (StoreUnavailable, RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)
"""What is wrong with a server, and so with every item."""


class Guarded:
    """Does ``work`` for each item of one sweep, again and again; ``name`` is the sweep's, for the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._until: dict[str, float] = {}
        self._named: set[str] = set()

    @property
    def aside(self) -> int:
        """Return how many items are set aside, so that a bounded question can ask for so many more."""
        now = time.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return len(self._until)

    async def each(self, items: Iterable[T], key: Callable[[T], str], work: Callable[[T], Awaitable[None]]) -> None:
        """Await ``work`` for every item that is not set aside; raise only what is wrong with a server."""
        for item in items:
            if self._until.get(key(item), 0.0) > time.monotonic():
                continue
            try:
                await work(item)
            except AWAY:
                raise
            except Exception as exc:  # whatever it is, it is this item's alone
                self._until[key(item)] = time.monotonic() + ASIDE
                if key(item) not in self._named:
                    self._named.add(key(item))
                    extra = {"sweep": self._name, "message_id": key(item), "error": type(exc).__name__}
                    log.exception("sweep_item_broke", extra=extra)
