"""The store: every statement that Roundelay sends to its database, behind one class.

The methods are the promises; how each is kept stands in the module that it calls.
"""

from collections.abc import Sequence
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from roundelay_worker.loop.state import STATE_VERSION
from roundelay_worker.store import accepting, claiming, loading, migrate, processes, saving
from roundelay_worker.store.driver import Driver
from roundelay_worker.store.errors import UnsuitableDatabase
from roundelay_worker.store.postgres import PostgresDriver
from roundelay_worker.store.records import (
    Accepted,
    Arrival,
    Claim,
    Context,
    Fence,
    Loaded,
    Refused,
    Save,
    Saved,
)
from roundelay_worker.store.sqlite import SqliteDriver

_NOW: Final = "SELECT {now} AS now"


def driver_for(url: str) -> Driver:
    """Return the driver of ``postgresql://…`` or ``sqlite:///path``; nothing is connected yet."""
    parts = urlsplit(url)
    if parts.scheme in {"postgresql", "postgres"}:
        return PostgresDriver(url)
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        return SqliteDriver(unquote(parts.path[1:] if parts.path.startswith("//") else parts.path))
    raise UnsuitableDatabase("a database URL is postgresql://… or sqlite:///path")


class Store:
    """One database, used from one event loop."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @classmethod
    async def open(cls, url: str) -> Self:
        """Open the database at ``url`` and see that it answers."""
        store = cls(driver_for(url))
        await store.now()
        return store

    async def close(self) -> None:
        """Give the connections back."""
        await self._driver.close()

    async def migrate(self) -> str:
        """Bring the tables up to date; return their revision. Safe when several do it at once."""
        return await migrate.migrate(self._driver)

    async def now(self) -> float:
        """Return the database's time, in seconds since the epoch."""
        (row,) = await self._driver.fetch(_NOW, again=True)
        return float(row["now"])

    async def register(self, process_id: str, host: str, pid: int, lease: float, birth: str = "") -> None:
        """Make a worker process known, with its first lease; an id is used once."""
        await processes.register(self._driver, process_id, host, pid, lease, birth)

    async def accept(self, arrivals: Sequence[Arrival]) -> tuple[Accepted, ...]:
        """Accept ``arrivals`` in order, each whole or not at all; one that is there already stays as it is."""
        return await accepting.accept(self._driver, arrivals)

    async def claim(
        self,
        message_id: str,
        owner: str,
        *,
        dispatch: int | None = None,
        held: Fence | None = None,
        max_state_version: int = STATE_VERSION,
    ) -> Claim | Refused:
        """Make ``message_id`` the work of ``owner``: by a task's dispatch number, or again by the fence it holds."""
        return await claiming.claim(
            self._driver, message_id, owner, dispatch=dispatch, held=held, max_state_version=max_state_version
        )

    async def load(self, message_id: str) -> Loaded | None:
        """Return the message with its whole state, or None; ``UnreadableState`` if a newer version wrote it."""
        return await loading.load(self._driver, message_id)

    async def context(self, message_id: str, entries: int) -> Context:
        """Return what was said before the message, so that with it there are at most ``entries``."""
        return await loading.context(self._driver, message_id, entries)

    async def save(self, save: Save) -> Saved | None:
        """Save, whole or not at all; None if the row is not any more as the fence says."""
        return await saving.save(self._driver, save)
