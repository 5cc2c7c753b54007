"""Small matters: the database's id, calls that outlive their timeout, the web apps' outbox, pruning."""

from collections.abc import Collection, Sequence
from typing import Final
from uuid import uuid4

from roundelay_worker.store.codec import packed
from roundelay_worker.store.driver import Driver, Query, Script
from roundelay_worker.store.records import OutboxRow

_NAME: Final = """
INSERT INTO roundelay_meta (key, value, at) VALUES ('database', $1, {now}) ON CONFLICT (key) DO NOTHING
"""
_NAMED: Final = "SELECT value FROM roundelay_meta WHERE key = 'database'"

_MARK_LOOSE: Final = """
UPDATE roundelay_calls SET loose = TRUE, executor = $4
WHERE message_id = $1 AND round = $2 AND position = $3
"""
_RECORD_LATE: Final = """
UPDATE roundelay_calls SET loose = FALSE, executor = $4, late_result = $5
WHERE message_id = $1 AND round = $2 AND position = $3
"""
_LOOSE: Final = """
SELECT 1 FROM roundelay_calls c
JOIN roundelay_messages m ON m.id = c.message_id
JOIN roundelay_processes p ON p.id = c.executor AND p.gone_at IS NULL AND p.lost_at IS NULL
WHERE c.loose AND m.user_id = $1 AND m.conversation_id = $2 LIMIT 1
"""

_OUTBOX: Final = """
SELECT message_id, submission, created_at FROM roundelay_outbox
WHERE NOT (message_id {any $2}) ORDER BY created_at, message_id LIMIT $1
"""
_EMPTY: Final = "DELETE FROM roundelay_outbox WHERE message_id {any $1}"

_OLD: Final = """
SELECT id, user_id, conversation_id FROM roundelay_messages
WHERE ended_at < CAST($1 AS double precision) ORDER BY ended_at LIMIT $2 {skip}
"""
_DELETIONS: Final = (
    "DELETE FROM roundelay_updates WHERE message_id {any $1}",
    "DELETE FROM roundelay_calls WHERE message_id {any $1}",
    "DELETE FROM roundelay_turns WHERE message_id {any $1}",
    "DELETE FROM roundelay_messages WHERE id {any $1}",
)
_FORGET: Final = """
DELETE FROM roundelay_conversations WHERE user_id = $1 AND conversation_id = $2 AND running IS NULL AND NOT EXISTS (
    SELECT 1 FROM roundelay_messages m WHERE m.user_id = $1 AND m.conversation_id = $2
)
"""
_BURY: Final = """
DELETE FROM roundelay_processes
WHERE cleared_at < CAST($1 AS double precision) AND COALESCE(gone_at, lost_at) < CAST($1 AS double precision)
"""


async def database_id(driver: Driver) -> str:
    """Return the id that this database got when it was first asked, and keeps."""
    found = await driver.fetch(_NAMED, again=True)
    if not found:
        await driver.fetch(_NAME, str(uuid4()), again=True)
        found = await driver.fetch(_NAMED, again=True)
    return str(found[0]["value"])


async def mark_loose(driver: Driver, message_id: str, place: tuple[int, int], process_id: str) -> None:
    """Record that the call at ``place`` (round, position) still runs in ``process_id``."""
    await driver.fetch(_MARK_LOOSE, message_id, *place, process_id, again=True)


async def record_late(
    driver: Driver, message_id: str, place: tuple[int, int], process_id: str, result: str | None
) -> None:
    """Record that the call at ``place`` runs no more, and what it brought after its result was given up."""
    await driver.fetch(
        _RECORD_LATE, message_id, *place, process_id, None if result is None else packed(result), again=True
    )


async def loose_write(driver: Driver, user_id: str, conversation_id: str) -> bool:
    """Say whether a call of the conversation that was given up may still be at work in a live process."""
    return bool(await driver.fetch(_LOOSE, user_id, conversation_id, again=True))


async def outbox_rows(driver: Driver, limit: int, passing: Collection[str]) -> tuple[OutboxRow, ...]:
    """Return submissions that web apps left, oldest first, without those in ``passing``."""
    rows = await driver.fetch(_OUTBOX, limit, list(passing), again=True)
    return tuple([OutboxRow(row["message_id"], row["submission"], row["created_at"]) for row in rows])


async def delete_outbox(driver: Driver, message_ids: Sequence[str]) -> None:
    """Delete submissions that were accepted."""
    await driver.fetch(_EMPTY, list(message_ids), again=True)


async def prune(driver: Driver, before: float, limit: int) -> int:
    """Delete messages that ended before ``before`` with all their rows, and processes dead since; return how many."""
    return await driver.run(lambda: _prune(before, limit))


def _prune(before: float, limit: int) -> Script[int]:
    old = yield Query(_OLD, (before, limit))
    for deletion in _DELETIONS if old else ():
        yield Query(deletion, ([row["id"] for row in old],))
    for conversation in sorted({(row["user_id"], row["conversation_id"]) for row in old}):
        yield Query(_FORGET, conversation)
    yield Query(_BURY, (before,))
    return len(old)
