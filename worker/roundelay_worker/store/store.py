"""The store: every statement that Roundelay sends to its database, behind one class.

The methods are the promises; how each is kept stands in the module that it calls.
"""

from collections.abc import Collection, Sequence
from typing import Final, Self
from urllib.parse import unquote

from roundelay_worker.loop.history import Exchange
from roundelay_worker.loop.state import STATE_VERSION
from roundelay_worker.store import (
    accepting,
    claiming,
    ending,
    keeping,
    loading,
    migrate,
    processes,
    publishing,
    saving,
    sweeping,
    watching,
)
from roundelay_worker.store.driver import Driver
from roundelay_worker.store.errors import UnsuitableDatabase
from roundelay_worker.store.lease import LeaseKeeper, PostgresLease, SqliteLease
from roundelay_worker.store.postgres import COMMAND_TIMEOUT, PostgresDriver
from roundelay_worker.store.records import (
    Accepted,
    Arrival,
    Claim,
    Context,
    Counts,
    Dispatch,
    End,
    Fence,
    Loaded,
    Lost,
    OutboxRow,
    Publication,
    Queue,
    Refused,
    Save,
    Saved,
    Timeline,
    Unread,
)
from roundelay_worker.store.sqlite import SqliteDriver

MIGRATION_TIMEOUT: Final = 3600.0
"""Seconds for one statement of a migration, or for another process's migration."""

_NOW: Final = "SELECT {now} AS now"


def file_of(url: str) -> str | None:
    """Return the path of ``sqlite:///path`` (four slashes: absolute), None for ``postgresql://…``."""
    scheme, _, rest = url.partition("://")
    if scheme in {"postgresql", "postgres"} and rest:
        return None
    if scheme == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        return unquote(rest[1:])
    raise UnsuitableDatabase("a database URL is postgresql://… or sqlite:///path")


def _driver(url: str, command_timeout: float = COMMAND_TIMEOUT) -> Driver:
    path = file_of(url)
    return PostgresDriver(url, command_timeout=command_timeout) if path is None else SqliteDriver(path)


class Store:
    """One database, used from one event loop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._file = file_of(url)
        self._driver = _driver(url)

    @classmethod
    async def open(cls, url: str) -> Self:
        """Open the database at ``url`` (``postgresql://…`` or ``sqlite:///path``) and see that it answers."""
        store = cls(url)
        await store.now()
        return store

    async def close(self) -> None:
        """Give the connections back."""
        await self._driver.close()

    async def migrate(self) -> str:
        """Bring the tables up to date; return their revision. Safe when several do it at once."""
        driver = _driver(self._url, command_timeout=MIGRATION_TIMEOUT)
        try:
            return await migrate.migrate(driver)
        finally:
            await driver.close()

    async def database_id(self) -> str:
        """Return the id that this database got when it was first asked, and keeps."""
        return await keeping.database_id(self._driver)

    async def now(self) -> float:
        """Return the database's time, in seconds since the epoch."""
        (row,) = await self._driver.fetch(_NOW, again=True)
        return float(row["now"])

    async def register(
        self, process_id: str, host: str, pid: int, lease: float, *, birth: str = "", offers: Sequence[str] = ()
    ) -> None:
        """Make a worker process known, with its first lease and what it offers; an id is used once."""
        await processes.register(self._driver, process_id, host, pid, lease=lease, birth=birth, offers=offers)

    async def offered(self) -> tuple[frozenset[str], ...]:
        """Return what live processes said at ``register`` that they offer, each different set once."""
        return await processes.offered(self._driver)

    async def renew(self, process_id: str, lease: float) -> bool:
        """Prolong a lease; False once others were told that it ran out."""
        return await processes.renew(self._driver, process_id, lease)

    def lease(self, process_id: str, lease: float) -> LeaseKeeper:
        """Return what renews a lease from another thread, with a connection of its own."""
        if isinstance(self._driver, PostgresDriver):
            return PostgresLease(self._url, process_id, lease, self._driver.distrust)
        return SqliteLease(str(self._file), process_id, lease)

    async def retire(self, process_id: str) -> None:
        """End a process's lease for good: it acts no more."""
        await processes.mark_gone(self._driver, process_id)

    async def mark_dead(self, process_id: str) -> None:
        """Record that another process is known to have ended, not merely to have lost its lease."""
        await processes.mark_gone(self._driver, process_id)

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

    async def load(self, message_id: str, known: tuple[Exchange, ...] = ()) -> Loaded | None:
        """Return the message with its whole state, or None; ``UnreadableState`` if a newer version wrote it.

        ``known`` are the first of its exchanges, as they were saved: only what came after them is read.
        """
        return await loading.load(self._driver, message_id, known)

    async def context(self, message_id: str, entries: int) -> Context:
        """Return what was said before the message, so that with it there are at most ``entries``."""
        return await loading.context(self._driver, message_id, entries)

    async def save(self, save: Save) -> Saved | None:
        """Save, whole or not at all; None if the row is not any more as the fence says."""
        return await saving.save(self._driver, save)

    async def end_unread(self, unread: Unread, end: End, update: str) -> Saved | None:
        """End a message of a newer version without reading its state; ``update`` is its last, number ``seq + 1``."""
        return await saving.end_unread(self._driver, unread, end, update)

    async def take_sweep(self, process_id: str, period: float) -> bool:
        """Say whether this process is the one to sweep now; one is, once in ``period`` seconds."""
        return await sweeping.take_sweep(self._driver, process_id, period)

    async def release_lost(self, limit: int) -> tuple[Lost, ...]:
        """Take messages from processes whose lease ran out, or that are gone; for each message a loss."""
        return await sweeping.release_lost(self._driver, limit)

    async def ended_alone(self, process_id: str, message_id: str, *, convicted: bool) -> tuple[Lost, ...]:
        """Take a message from a process that it ran alone in and that has ended: a final loss, or none at all."""
        return await sweeping.ended_alone(self._driver, process_id, message_id, convicted=convicted)

    async def is_lost(self, process_id: str) -> bool:
        """Say whether others were told that a process's lease ran out."""
        return await processes.is_lost(self._driver, process_id)

    async def release_orphans(self, limit: int) -> tuple[Dispatch, ...]:
        """Give back what runs nowhere: its owner is no known process, or it has none and no task of it can come."""
        return await sweeping.release_orphans(self._driver, limit)

    async def release_own(self, process_id: str, held: Collection[str], *, grace: float = 5.0) -> tuple[Lost, ...]:
        """Give back what ``process_id`` owns, does not hold, and did not claim within ``grace`` seconds; no loss."""
        return await sweeping.release_own(self._driver, process_id, held, grace)

    async def hand_over(self, fence: Fence) -> Dispatch | None:
        """Give up a message that its owner holds, no loss counted; None if the fence does not hold."""
        return await sweeping.hand_over(self._driver, fence)

    async def leave(self, fence: Fence, pause: float) -> bool:
        """Give up a message before anything was done with it, for any worker after ``pause`` seconds; no attempt."""
        return await sweeping.leave(self._driver, fence, pause)

    async def due(self, limit: int) -> tuple[Dispatch, ...]:
        """Make postponed messages whose time has come ready."""
        return await sweeping.due(self._driver, limit)

    async def redispatch(self, queue: Queue, before: float, limit: int) -> tuple[Dispatch, ...]:
        """Dispatch again what was sent to ``queue`` before ``before`` and not taken; ever more rarely for the same."""
        return await sweeping.redispatch(self._driver, queue, before, limit)

    async def watermark(self, queue: Queue) -> float | None:
        """Return when the latest task was sent that is known to have left ``queue``; None without recent evidence."""
        return await sweeping.watermark(self._driver, queue)

    async def overdue(self, grace: float, limit: int) -> tuple[str, ...]:
        """Return messages whose deadline passed more than ``grace`` seconds ago."""
        return await ending.overdue(self._driver, grace, limit)

    async def expired_in_queue(self, limit: int) -> tuple[str, ...]:
        """Return messages that waited too long to start."""
        return await ending.expired_in_queue(self._driver, limit)

    async def to_end(self, limit: int) -> tuple[str, ...]:
        """Return messages that are cancelled or condemned and that no live owner is ending."""
        return await ending.to_end(self._driver, limit)

    async def unblock(self, limit: int) -> tuple[Dispatch, ...]:
        """Wake what is parked behind nothing: a net for once a minute, which should find nothing."""
        return await ending.unblock(self._driver, limit)

    async def request_cancel(self, message_id: str) -> ending.Cancelled:
        """Ask for a message to be cancelled; say whether it had ended, has a live owner, is free, or is unknown."""
        return await ending.request_cancel(self._driver, message_id)

    async def publication(self, message_id: str, after_seq: int) -> Publication | None:
        """Return what is to be told of a message after update ``after_seq``."""
        return await publishing.publication(self._driver, message_id, after_seq)

    async def unpublished(self, quiet: float, limit: int) -> tuple[Publication, ...]:
        """Return what was not published although nothing happened to its message for ``quiet`` seconds."""
        return await publishing.unpublished(self._driver, quiet, limit)

    async def mark_published(self, published: Sequence[tuple[str, int]]) -> None:
        """Record how far each message is known to be published; never less than was known."""
        await publishing.mark_published(self._driver, published)

    async def live_messages(self, limit: int, *, after_id: str = "") -> tuple[Publication, ...]:
        """Return messages that have not ended, whole, in order of their ids from ``after_id``."""
        return await publishing.live_messages(self._driver, after_id, limit)

    async def recent_answers(self, since: float, limit: int, *, after_id: str = "") -> tuple[Publication, ...]:
        """Return messages that ended from ``since`` on, whole, the earliest first; ids break ties."""
        return await publishing.recent_answers(self._driver, since, after_id, limit)

    async def mark_loose(self, message_id: str, round_: int, position: int, process_id: str) -> None:
        """Record that a call whose result was given up still runs in ``process_id``."""
        await keeping.mark_loose(self._driver, message_id, (round_, position), process_id)

    async def record_late(
        self, message_id: str, round_: int, position: int, process_id: str, result: str | None
    ) -> None:
        """Record that a call that was given up runs no more, and what it brought after all; nobody else is told."""
        await keeping.record_late(self._driver, message_id, (round_, position), process_id, result)

    async def loose_write(self, user_id: str, conversation_id: str) -> bool:
        """Say whether a call of the conversation that was given up may still be at work in a live process."""
        return await keeping.loose_write(self._driver, user_id, conversation_id)

    async def counts(self) -> Counts:
        """Return how many messages stand where."""
        return await watching.counts(self._driver)

    async def timeline(self, message_id: str) -> Timeline | None:
        """Return everything that is known of a message."""
        return await watching.timeline(self._driver, message_id)

    async def prune(self, before: float, limit: int) -> int:
        """Delete messages that ended before ``before`` with all their rows; return how many."""
        return await keeping.prune(self._driver, before, limit)

    async def outbox_rows(self, limit: int, passing: Collection[str] = ()) -> tuple[OutboxRow, ...]:
        """Return submissions that web apps left, oldest first, without those in ``passing``."""
        return await keeping.outbox_rows(self._driver, limit, passing)

    async def delete_outbox(self, message_ids: Sequence[str]) -> None:
        """Delete submissions that were accepted."""
        await keeping.delete_outbox(self._driver, message_ids)
