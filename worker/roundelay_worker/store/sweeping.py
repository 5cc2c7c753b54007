"""The watchdog's sweeps: each finds what nobody is acting on and gives it to somebody.

Every one is conditional and bounded, and may run in several processes at once: rows that another holds at the
moment are skipped.
"""

from collections.abc import Collection
from typing import Final

from roundelay_worker.store.driver import Driver, Query, Rows, Script, filled
from roundelay_worker.store.processes import DOUBTED, GIVEN_UP, GONE
from roundelay_worker.store.records import Dispatch, Fence, Lost, Queue
from roundelay_worker.store.saving import dispatch_of

CLEARING: Final = 10.0
"""Seconds for which a dead process's messages are still looked for: a claim of its may have been under way."""

EVIDENCE: Final = 60.0
"""Seconds for which an ended message still shows how far its queue has come."""

LONGEST_BACKOFF: Final = 8
"""A message dispatched again and again waits up to 2 ** 8 seconds in between."""

_TAKE: Final = """
INSERT INTO roundelay_meta AS m (key, value, at) VALUES ('swept', $1, {now})
ON CONFLICT (key) DO UPDATE SET value = excluded.value, at = excluded.at
WHERE m.at <= excluded.at - CAST($2 AS double precision)
RETURNING key
"""

_AGAIN: Final = """
owner = NULL, due_at = NULL, dispatch = dispatch + 1, dispatched_at = {now},
queued_at = CASE WHEN {queue} = 'messages' THEN {now} ELSE queued_at END, queue = {queue}
"""
"""Ready again, under a number that makes earlier tasks stale."""

_FREE: Final = """
ended_at IS NULL AND owner IS NULL AND NOT parked AND verdict IS NULL AND cancel_requested_at IS NULL
"""

_EXPIRE: Final = """
WITH picked AS MATERIALIZED (
    SELECT id FROM roundelay_processes
    WHERE lease_until <= {now} AND lost_at IS NULL AND gone_at IS NULL ORDER BY id {skip}
)
UPDATE roundelay_processes SET lost_at = {now} FROM picked WHERE roundelay_processes.id = picked.id
"""
_DEAD: Final = (
    "SELECT id FROM roundelay_processes WHERE cleared_at IS NULL AND (lost_at IS NOT NULL OR gone_at IS NOT NULL)"
)
_OWNED_BY: Final = """
SELECT id, owner FROM roundelay_messages
WHERE ended_at IS NULL AND begun AND owner {any $1} ORDER BY submitted_at LIMIT $2 {skip}
"""
_RELEASE: Final = filled(
    """
UPDATE roundelay_messages SET {again}, redispatched = 0,
    losses = CASE WHEN losses + CAST($2 AS integer) < CAST($3 AS integer) THEN losses + CAST($2 AS integer)
        ELSE CAST($3 AS integer) END
WHERE id {any $1} RETURNING id, round, dispatch, queue, losses
""",
    again=filled(_AGAIN, queue="'rounds'"),
)
_ACQUIT: Final = "UPDATE roundelay_messages SET losses = $2 WHERE id = $1 AND losses > $2 AND status IS NULL"
_CLEAR: Final = """
UPDATE roundelay_processes SET cleared_at = {now}
WHERE cleared_at IS NULL AND COALESCE(gone_at, lost_at) < {now} - CAST($1 AS double precision) AND NOT EXISTS (
    SELECT 1 FROM roundelay_messages m WHERE m.ended_at IS NULL AND m.begun AND m.owner = roundelay_processes.id
)
"""

_OWN: Final = """
SELECT id, owner FROM roundelay_messages
WHERE ended_at IS NULL AND begun AND owner = $1 AND NOT (id {any $2})
    AND claimed_at < {now} - CAST($3 AS double precision)
ORDER BY submitted_at {skip}
"""

_ORPHANS: Final = filled(
    """
WITH picked AS MATERIALIZED (
    SELECT id AS picked_id FROM roundelay_messages m
    WHERE ended_at IS NULL AND begun AND NOT parked AND verdict IS NULL AND cancel_requested_at IS NULL
        AND COALESCE(claimed_at, 0) < {now} - CAST($2 AS double precision)
        AND (
            (owner IS NULL AND due_at IS NULL AND queue <> 'rounds')
            OR (owner IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM roundelay_processes p WHERE p.id = m.owner AND p.cleared_at IS NULL
            ))
        )
    LIMIT $1 {skip}
)
UPDATE roundelay_messages SET {again}, redispatched = 0 FROM picked WHERE id = picked_id
RETURNING id, round, dispatch, queue
""",
    again=filled(_AGAIN, queue="'rounds'"),
)
"""A row restored from a backup, or written by hand, may name a process that was pruned long ago, or none at all."""

_HAND_OVER: Final = filled(
    """
UPDATE roundelay_messages SET {again}, redispatched = 0
WHERE id = $1 AND version = $2 AND owner = $3 AND attempt = COALESCE(CAST($4 AS bigint), attempt) AND status IS NULL
RETURNING id, round, dispatch, queue
""",
    again=filled(_AGAIN, queue="'rounds'"),
)

_LEAVE: Final = """
UPDATE roundelay_messages SET owner = NULL, due_at = {now} + CAST($5 AS double precision),
    dispatch = dispatch + 1, queue = 'rounds', attempt = attempt - 1
WHERE id = $1 AND version = $2 AND owner = $3 AND attempt = CAST($4 AS bigint) AND status IS NULL
RETURNING id
"""

_PICKED: Final = """
WITH picked AS MATERIALIZED (
    SELECT id AS picked_id FROM roundelay_messages WHERE {free} AND {which} LIMIT $1 {skip}
)
UPDATE roundelay_messages SET {again}, redispatched = {count} FROM picked WHERE id = picked_id
RETURNING id, round, dispatch, queue
"""
_DUE: Final = filled(
    _PICKED,
    free=_FREE,
    which="begun AND due_at <= {now} ORDER BY due_at",
    again=filled(_AGAIN, queue="'rounds'"),
    count="0",
)
_REDISPATCH: Final = filled(
    _PICKED,
    free=_FREE,
    which="""
        begun = CAST($5 AS boolean) AND queue = $2 AND due_at IS NULL
        AND submitted_at < CAST($3 AS double precision) AND dispatched_at < CAST($3 AS double precision)
        AND (redispatched = 0 OR dispatched_at < {now} - (1 << CAST(
            CASE WHEN redispatched > $4 THEN $4 ELSE redispatched END AS integer
        )))
        ORDER BY submitted_at
    """,
    again=filled(_AGAIN, queue="queue"),
    count="redispatched + 1",
)

_TAKEN: Final = """
SELECT max(at) AS at FROM (
    SELECT {sent} AS at FROM roundelay_messages
    WHERE ended_at IS NULL AND begun AND claimed_at >= {sent} AND {which}
    UNION ALL
    SELECT {sent} FROM roundelay_messages
    WHERE ended_at > {began} - CAST($1 AS double precision) AND claimed_at >= {sent} AND {which}
) AS taken
"""
_WATERMARKS: Final = {
    "messages": filled(_TAKEN, sent="queued_at", which="TRUE"),
    "rounds": filled(_TAKEN, sent="dispatched_at", which="queue = 'rounds'"),
}


async def take_sweep(driver: Driver, process_id: str, period: float) -> bool:
    """Say whether this process is the one to sweep now; one is, once in ``period`` seconds."""
    return bool(await driver.fetch(_TAKE, process_id, period))


async def release_lost(driver: Driver, limit: int) -> tuple[Lost, ...]:
    """Take messages from processes whose lease ran out, or that are gone; for each message a loss."""
    return await driver.run(lambda: _release_lost(limit))


def _release_lost(limit: int) -> Script[tuple[Lost, ...]]:
    yield Query(_EXPIRE)
    dead = [row["id"] for row in (yield Query(_DEAD))]
    if not dead:
        return ()
    owned = yield Query(_OWNED_BY, (dead, limit))
    lost = yield from _released(owned, more=1)
    yield Query(_CLEAR, (CLEARING,))
    return lost


async def ended_alone(driver: Driver, process_id: str, message_id: str, *, convicted: bool) -> tuple[Lost, ...]:
    """Take a message from a process that it ran alone in and that has ended: a final loss, or none at all."""
    return await driver.run(lambda: _ended_alone(process_id, message_id, convicted))


def _ended_alone(process_id: str, message_id: str, convicted: bool) -> Script[tuple[Lost, ...]]:
    yield Query(GONE, (process_id,))
    owned = yield Query(_OWNED_BY, ([process_id], 1))
    if convicted:
        return (yield from _released(owned, more=GIVEN_UP))
    yield Query(_ACQUIT, (message_id, DOUBTED))  # a sweep may have seen its lease run out before
    return (yield from _released(owned, more=0))


async def release_own(driver: Driver, process_id: str, held: Collection[str], grace: float) -> tuple[Lost, ...]:
    """Give back what ``process_id`` owns, does not hold, and did not claim within ``grace`` seconds; no loss."""
    return await driver.run(lambda: _release_own(process_id, list(held), grace))


def _release_own(process_id: str, held: list[str], grace: float) -> Script[tuple[Lost, ...]]:
    owned = yield Query(_OWN, (process_id, held, grace))
    return (yield from _released(owned, more=0))


async def release_orphans(driver: Driver, limit: int) -> tuple[Dispatch, ...]:
    """Give back messages that nobody can be at work on and no other sweep looks for; no loss."""
    return tuple(map(dispatch_of, await driver.fetch(_ORPHANS, limit, CLEARING)))


def _released(owned: Rows, more: int) -> Script[tuple[Lost, ...]]:
    """Make messages ready again, with so many losses more, ``GIVEN_UP`` at most."""
    if not owned:
        return ()
    owners = {row["id"]: row["owner"] for row in owned}
    released = yield Query(_RELEASE, (list(owners), more, GIVEN_UP))
    return tuple([Lost(dispatch_of(row), row["losses"], owners[row["id"]]) for row in released])


async def hand_over(driver: Driver, fence: Fence) -> Dispatch | None:
    """Give up a message that this owner holds, no loss counted; None if the fence does not hold."""
    rows = await driver.fetch(_HAND_OVER, fence.message_id, fence.version, fence.owner, fence.attempt)
    return dispatch_of(rows[0]) if rows else None


async def leave(driver: Driver, fence: Fence, pause: float) -> bool:
    """Give up a message that this owner claimed and did nothing with; False if the fence does not hold."""
    return bool(await driver.fetch(_LEAVE, fence.message_id, fence.version, fence.owner, fence.attempt, pause))


async def due(driver: Driver, limit: int) -> tuple[Dispatch, ...]:
    """Make postponed messages whose time has come ready."""
    return tuple(map(dispatch_of, await driver.fetch(_DUE, limit)))


async def redispatch(driver: Driver, queue: Queue, before: float, limit: int) -> tuple[Dispatch, ...]:
    """Dispatch again what was sent to ``queue`` before ``before`` and not taken; ever more rarely for the same one."""
    arguments = (limit, queue, before, LONGEST_BACKOFF, queue == "rounds")
    return tuple(map(dispatch_of, await driver.fetch(_REDISPATCH, *arguments)))


async def watermark(driver: Driver, queue: Queue) -> float | None:
    """Return when the latest task was sent that is known to have left ``queue``; None without recent evidence."""
    (row,) = await driver.fetch(_WATERMARKS[queue], EVIDENCE, again=True)
    return None if row["at"] is None else float(row["at"])
