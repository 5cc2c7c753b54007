"""A process's lease, renewed from a thread of its own.

It has a connection of its own, and on PostgreSQL an event loop of its own, so that neither a busy loop nor a
busy pool makes it late. Each attempt is bounded well below the lease.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, Final, Protocol

import asyncpg

from roundelay_worker.store import postgres, sqlite
from roundelay_worker.store.driver import Query
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.processes import RENEW

PATIENCE: Final = 1.5
"""Seconds for connecting, and for a renewal."""


_BROKEN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


class LeaseKeeper(Protocol):
    """Renews one process's lease; made, used and closed in one thread."""

    def renew(self) -> bool:
        """Prolong the lease; False once others were told that it ran out; ``StoreUnavailable`` if it cannot be said."""

    def close(self) -> None:
        """Give the connection back."""


class PostgresLease:
    """A lease in PostgreSQL; connects when first used, and again after a failure.

    ``silent`` is told of each renewal that got no answer: it is the first to notice a network that is lost.
    """

    def __init__(self, url: str, process_id: str, lease: float, silent: Callable[[], None]) -> None:
        self._url = url
        self._silent = silent
        self._arguments = (process_id, lease)
        self._runner = asyncio.Runner()
        self._connection: Any = None

    def renew(self) -> bool:
        """Prolong the lease, on a fresh connection if the old one broke."""
        return self._runner.run(self._renew())

    def close(self) -> None:
        """Close the connection and the loop."""
        if self._connection is not None:
            self._connection.terminate()
        self._runner.close()

    async def _renew(self) -> bool:
        fresh = self._connection is None or self._connection.is_closed()
        try:
            return await self._once()
        except TimeoutError as exc:
            self._silent()
            raise StoreUnavailable("the lease could not be renewed in time") from exc
        except _BROKEN as exc:
            if fresh:
                raise StoreUnavailable(f"the lease could not be renewed ({type(exc).__name__})") from exc
            return await self._renew()

    async def _once(self) -> bool:
        if self._connection is None or self._connection.is_closed():
            self._connection = await postgres.connect(self._url, timeout=PATIENCE, command_timeout=PATIENCE)
        try:
            pooled = postgres.is_pooled(self._url)
            return bool(await postgres.fetched(self._connection, RENEW, self._arguments, pooled=pooled))
        except _BROKEN:
            self._connection.terminate()
            raise


class SqliteLease:
    """A lease in a SQLite file; connects when first used."""

    def __init__(self, path: str, process_id: str, lease: float) -> None:
        self._path = path
        self._query = Query(RENEW, (process_id, lease))
        self._connection: sqlite3.Connection | None = None

    def renew(self) -> bool:
        """Prolong the lease; waits for other writers up to SQLite's busy timeout."""
        if self._connection is None:
            self._connection = sqlite.connect(self._path)
        return bool(sqlite.execute(self._connection, self._query))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
