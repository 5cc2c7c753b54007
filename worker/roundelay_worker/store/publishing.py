"""The outbox: what readers are still to be told.

The first update of every message, ``accepted``, is not stored: it follows from the message's own row.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from roundelay.updates import Accepted
from roundelay_worker.store.driver import Driver, Query, Row, Rows, Script, filled
from roundelay_worker.store.folding import unfolded
from roundelay_worker.store.records import Publication

_COLUMNS: Final = """
id, user_id, conversation_id, submitted_at, accepted_at, status, ended_at, parked, started_at, owner, due_at, round,
seq, published, answer, after_message, idempotency
"""
_ONE: Final = filled("SELECT {columns} FROM roundelay_messages WHERE id = $1", columns=_COLUMNS)
_AT_REST: Final = filled(
    """
SELECT {columns} FROM roundelay_messages
WHERE NOT told AND progressed_at < {now} - CAST($1 AS double precision) ORDER BY accepted_at LIMIT $2
""",
    columns=_COLUMNS,
)
_AT_WORK: Final = filled(
    """
SELECT {columns} FROM roundelay_messages
WHERE ended_at IS NULL AND begun AND told AND published < seq
    AND progressed_at < {now} - CAST($1 AS double precision)
ORDER BY submitted_at LIMIT $2
""",
    columns=_COLUMNS,
)
_LIVE: Final = filled(
    """
SELECT {columns} FROM roundelay_messages
WHERE ended_at IS NULL AND id > $1 ORDER BY id LIMIT $2
""",
    columns=_COLUMNS,
)
_ENDED: Final = filled(
    """
SELECT {columns} FROM roundelay_messages
WHERE ended_at IS NOT NULL AND (ended_at, id) > (CAST($1 AS double precision), $2) ORDER BY ended_at, id LIMIT $3
""",
    columns=_COLUMNS,
)
_UPDATES: Final = """
SELECT seq, body FROM roundelay_updates
WHERE message_id = $1 AND seq >= COALESCE((
    SELECT MAX(seq) FROM roundelay_updates WHERE message_id = $1 AND seq <= CAST($2 AS bigint)
), 0)
ORDER BY seq
"""

_MARK: Final = """
    published = CASE WHEN {seq} > m.published THEN {seq} ELSE m.published END,
    told = m.ended_at IS NULL OR CASE WHEN {seq} > m.published THEN {seq} ELSE m.published END >= m.seq
"""
_MARK_ALL: Final = filled(
    """
WITH picked AS MATERIALIZED (
    SELECT m.id, w.seq FROM roundelay_messages m
    JOIN unnest(CAST($1 AS text[]), CAST($2 AS bigint[])) AS w (id, seq) ON w.id = m.id ORDER BY m.id FOR UPDATE OF m
)
UPDATE roundelay_messages m SET {mark} FROM picked WHERE m.id = picked.id AND {relaxed}
""",
    mark=filled(_MARK, seq="picked.seq"),
)
_MARK_ONE: Final = filled("UPDATE roundelay_messages AS m SET {mark} WHERE id = $1", mark=filled(_MARK, seq="$2"))


def accepted_update(message_id: str, accepted_at: float, after: str | None) -> str:
    """Return the update ``accepted``, always the same for a message: number 1."""
    update = Accepted(
        at=datetime.fromtimestamp(accepted_at, UTC),
        message_id=message_id,
        seq=1,
        after=after,
    )
    return update.to_json()


async def publication(driver: Driver, message_id: str, after_seq: int) -> Publication | None:
    """Return what is to be told of a message after update ``after_seq``."""
    return await driver.run(lambda: _publication(message_id, after_seq), reading=True)


def _publication(message_id: str, after_seq: int) -> Script[Publication | None]:
    rows = yield Query(_ONE, (message_id,))
    return (yield from _with_updates(rows[0], after_seq)) if rows else None


async def unpublished(driver: Driver, quiet: float, limit: int) -> tuple[Publication, ...]:
    """Return what was not published although nothing happened to its message for ``quiet`` seconds."""
    return await driver.run(lambda: _unpublished(quiet, limit), reading=True)


def _unpublished(quiet: float, limit: int) -> Script[tuple[Publication, ...]]:
    at_rest = yield Query(_AT_REST, (quiet, limit))
    at_work = yield Query(_AT_WORK, (quiet, limit - len(at_rest)))
    return (yield from _publications([*at_rest, *at_work], whole=False))


async def live_messages(driver: Driver, after_id: str, limit: int) -> tuple[Publication, ...]:
    """Return messages that have not ended, whole, in order of their ids from ``after_id``."""
    return await driver.run(lambda: _pages(Query(_LIVE, (after_id, limit))), reading=True)


async def recent_answers(driver: Driver, since: float, after_id: str, limit: int) -> tuple[Publication, ...]:
    """Return messages that ended after ``since``, whole, the earliest first."""
    return await driver.run(lambda: _pages(Query(_ENDED, (since, after_id, limit))), reading=True)


def _pages(query: Query) -> Script[tuple[Publication, ...]]:
    rows = yield query
    return (yield from _publications(rows, whole=True))


def _publications(rows: Rows, *, whole: bool) -> Script[tuple[Publication, ...]]:
    found = []
    for row in rows:
        told = 0 if whole else row["published"]
        found.append((yield from _with_updates(row, told)))
    return tuple(found)


def _with_updates(row: Row, after_seq: int) -> Script[Publication]:
    stored = yield Query(_UPDATES, (row["id"], after_seq))
    updates = list(unfolded(stored, after_seq))
    if after_seq < 1:
        updates.insert(0, (1, accepted_update(row["id"], row["accepted_at"], row["after_message"])))
    return Publication(
        message_id=row["id"],
        user_id=row["user_id"],
        conversation_id=row["conversation_id"],
        submitted_at=row["submitted_at"],
        status=status_of(row),
        round=row["round"],
        seq=row["seq"],
        updates=tuple(updates),
        first_seq=updates[0][0] if updates else after_seq + 1,
        answer=row["answer"],
        after=row["after_message"],
        idempotency=row["idempotency"],
        ended_at=row["ended_at"] or 0.0,
    )


def status_of(row: Row) -> str:
    """Return the word of ``MessageState`` for where a message stands."""
    if row["ended_at"] is not None:
        return str(row["status"])
    if row["parked"]:
        return "waiting"
    if row["due_at"] is not None:
        return "retrying"
    return "queued" if row["started_at"] is None else "running"


async def mark_published(driver: Driver, published: Sequence[tuple[str, int]]) -> None:
    """Record how far each message is known to be published; never less than was known."""
    if not published:
        return
    highest: dict[str, int] = {}
    for message_id, seq in published:
        highest[message_id] = max(seq, highest.get(message_id, 0))
    if driver.dialect == "sqlite":
        await driver.run(lambda: _mark(highest))
    else:
        await driver.fetch(_MARK_ALL, list(highest), list(highest.values()), again=True)


def _mark(highest: dict[str, int]) -> Script[None]:
    yield Query(_MARK_ONE, tuple(highest.items()), many=True)
