"""What has to be ended, or may go on at last: deadlines, cancellations, and conversations that stand still."""

from typing import Final, Literal

from roundelay_worker.store.driver import Driver, Query, Row, Rows, Script, filled
from roundelay_worker.store.records import Dispatch
from roundelay_worker.store.saving import dispatch_of
from roundelay_worker.store.statements import WAKE

Cancelled = Literal["ended", "owned", "free", "missing"]

PATIENCE: Final = 1.0
"""Seconds that a live owner has to end a cancelled message itself."""

_OVERDUE: Final = """
SELECT id FROM roundelay_messages
WHERE ended_at IS NULL AND begun AND deadline + CAST($1 AS double precision) < {now} ORDER BY submitted_at LIMIT $2
"""
_EXPIRED: Final = """
SELECT id FROM roundelay_messages
WHERE queue_deadline <= {began} AND queue_deadline IS NOT NULL AND ended_at IS NULL
    AND started_at IS NULL AND owner IS NULL
ORDER BY queue_deadline LIMIT $1
"""
_TO_END: Final = """
SELECT id FROM roundelay_messages m
WHERE ended_at IS NULL AND (verdict IS NOT NULL OR cancel_requested_at IS NOT NULL) AND (
    NOT EXISTS (
        SELECT 1 FROM roundelay_processes p WHERE p.id = m.owner AND p.lease_until > {now} AND p.lost_at IS NULL
    )
    OR COALESCE(cancel_requested_at, accepted_at) < {now} - CAST($1 AS double precision)
)
ORDER BY accepted_at LIMIT $2
"""
_CANCEL: Final = """
UPDATE roundelay_messages SET cancel_requested_at = COALESCE(cancel_requested_at, {now})
WHERE id = $1 AND status IS NULL RETURNING owner
"""
_LIVES: Final = "SELECT 1 FROM roundelay_processes WHERE id = $1 AND lease_until > {now} AND lost_at IS NULL"
_EXISTS: Final = "SELECT 1 FROM roundelay_messages WHERE id = $1"

_STANDING: Final = """
SELECT DISTINCT user_id, conversation_id FROM roundelay_messages p
WHERE p.parked AND p.ended_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM roundelay_messages e
    WHERE e.user_id = p.user_id AND e.conversation_id = p.conversation_id AND e.ended_at IS NULL
        AND e.position < p.position
)
LIMIT $1
"""
_HOLD: Final = """
SELECT running FROM roundelay_conversations WHERE user_id = $1 AND conversation_id = $2 {lock}
"""
_FIRST: Final = """
SELECT id, parked FROM roundelay_messages
WHERE user_id = $1 AND conversation_id = $2 AND ended_at IS NULL ORDER BY position LIMIT 1
"""
_POINT: Final = "UPDATE roundelay_conversations SET running = $3 WHERE user_id = $1 AND conversation_id = $2"
_WAKE_ONE: Final = filled(WAKE, id="$1")


async def overdue(driver: Driver, grace: float, limit: int) -> tuple[str, ...]:
    """Return messages whose deadline passed more than ``grace`` seconds ago."""
    return _ids(await driver.fetch(_OVERDUE, grace, limit, again=True))


async def expired_in_queue(driver: Driver, limit: int) -> tuple[str, ...]:
    """Return messages that waited too long to start."""
    return _ids(await driver.fetch(_EXPIRED, limit, again=True))


async def to_end(driver: Driver, limit: int) -> tuple[str, ...]:
    """Return messages that are cancelled or condemned and that no live owner is ending."""
    return _ids(await driver.fetch(_TO_END, PATIENCE, limit, again=True))


async def request_cancel(driver: Driver, message_id: str) -> Cancelled:
    """Ask for a message to be cancelled; say whether it had ended, has a live owner, is free, or is unknown."""
    rows = await driver.fetch(_CANCEL, message_id, again=True)
    if rows:
        return "owned" if rows[0]["owner"] and await driver.fetch(_LIVES, rows[0]["owner"], again=True) else "free"
    return "ended" if await driver.fetch(_EXISTS, message_id, again=True) else "missing"


async def unblock(driver: Driver, limit: int) -> tuple[Dispatch, ...]:
    """Wake what is parked behind nothing; it should find nothing.

    It looks at every parked message: a net for once a minute, not for every sweep.
    """
    standing = await driver.fetch(_STANDING, limit, again=True)
    woken = [await _unblocked(driver, row) for row in standing]
    return tuple([dispatch for dispatch in woken if dispatch is not None])


async def _unblocked(driver: Driver, row: Row) -> Dispatch | None:
    conversation = (row["user_id"], row["conversation_id"])
    return await driver.run(lambda: _unblock(conversation))


def _unblock(conversation: tuple[str, str]) -> Script[Dispatch | None]:
    yield Query(_HOLD, conversation)
    first = yield Query(_FIRST, conversation)
    if not first or not first[0]["parked"]:
        return None
    yield Query(_POINT, (*conversation, first[0]["id"]))
    (woken,) = yield Query(_WAKE_ONE, (first[0]["id"],))
    return dispatch_of(woken)


def _ids(rows: Rows) -> tuple[str, ...]:
    return tuple([row["id"] for row in rows])
