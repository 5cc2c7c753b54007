"""The checks of ``roundelay doctor`` that look into the database."""

from collections.abc import Iterator
from typing import Final

from redis.exceptions import RedisError

from roundelay.names import database_key
from roundelay_worker.cli.connecting import connect_redis
from roundelay_worker.cli.findings import Finding, fault, note, ok
from roundelay_worker.cli.storing import open_existing
from roundelay_worker.settings import Settings
from roundelay_worker.store.errors import StoreError
from roundelay_worker.store.records import Counts

_LONG_READY: Final = 60.0
_LATE: Final = 30.0
"""Seconds after its deadline from which a message should have ended."""
_MOST_COUNTED: Final = 1_000


async def store_findings(settings: Settings) -> list[Finding]:
    """Look at the database: reachable, migrated, the one that this prefix belongs to; and at what stands in it."""
    try:
        store = await open_existing(settings)
    except StoreError as exc:
        return [
            fault(
                "database",
                str(exc),
                "check ROUNDELAY_DATABASE_URL and that the server runs; a SQLite file is made by the first worker",
            )
        ]
    try:
        owned, counts = _ownership(settings, await store.database_id()), await store.counts()
        return [*owned, *_counted(counts), *overdue_findings(len(await store.overdue(_LATE, _MOST_COUNTED)))]
    except StoreError as exc:
        return [fault("database", str(exc), "start a worker once: it brings the tables up to date")]
    finally:
        await store.close()


def _ownership(settings: Settings, database_id: str) -> Iterator[Finding]:
    try:
        with connect_redis(settings) as connection:
            owner = connection.get(database_key(settings.prefix))
    except (RedisError, OSError):
        return
    if owner not in {None, database_id}:
        yield fault(
            "database",
            f"the prefix {settings.prefix} of this Redis belongs to another database",
            "give all workers one ROUNDELAY_DATABASE_URL, or this deployment a ROUNDELAY_PREFIX of its own",
        )
    else:
        yield ok("database", "answers, and is the one that this prefix belongs to")


def overdue_findings(overdue: int) -> Iterator[Finding]:
    """Tell of messages that should have ended."""
    if overdue:
        mend = "a worker, or `roundelay beat`, ends them within seconds; if this stays, look at the workers' logs"
        yield fault("messages", f"{overdue} are past their deadline and have not ended", mend)


def _counted(counts: Counts) -> Iterator[Finding]:
    standing = f"{counts.running} running, {counts.ready} ready, {counts.postponed} postponed, {counts.parked} waiting"
    yield ok("messages", f"{standing}, {counts.ended} ended within the last hour")
    if counts.oldest_ready is not None and counts.oldest_ready > _LONG_READY:
        mend = "start more workers, or look at what they say in their logs"
        yield note("messages", f"the oldest ready one has waited {counts.oldest_ready:.0f} s for a slot", mend)
    if counts.processes == 0:
        yield fault("workers", "none is alive: messages wait, or stand still", "start `roundelay worker`")
    else:
        yield ok("workers", f"{counts.processes} alive")
    if counts.running_without_worker:
        mend = "workers take them over within seconds; if this stays, look at the workers' logs"
        yield fault("messages", f"{counts.running_without_worker} run without a worker", mend)
