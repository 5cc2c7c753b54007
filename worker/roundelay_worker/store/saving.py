"""Save: the new state and its updates in one transaction, if the row is still as it was.

On PostgreSQL a save is one statement, one round trip: the fenced UPDATE of the message's row, and inserts that
take place only if it found its row. On SQLite the same statements run one after the other in one transaction.

An end also gives the conversation's turn to the next message. It takes the conversation's row first, as accepting
does. If nothing was accepted after this message, the turn is given back in the same statement. Otherwise, on
PostgreSQL, the next message is looked for by a second statement, begun after the lock was had: the first one
sees other rows as they were before it waited.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from roundelay_worker.loop.state import STATE_VERSION
from roundelay_worker.store.changes import Changes, changes, progressed
from roundelay_worker.store.codec import NOT_EXECUTED, UNKNOWN, encoded_head, encoded_result
from roundelay_worker.store.driver import Driver, Query, Row, Script, filled
from roundelay_worker.store.records import Dispatch, End, HandOn, Keep, Next, Postpone, Save, Saved

_FENCE: Final = """
    m.id = $1 AND m.version = $2 AND m.ended_at IS NULL
    AND (CAST($3 AS text) IS NULL OR m.owner = $3) AND (CAST($4 AS bigint) IS NULL OR m.attempt = $4)
    AND (NOT CAST($5 AS boolean) OR EXISTS (
        SELECT 1 FROM roundelay_processes p WHERE p.id = $3 AND p.lease_until > {now} AND p.lost_at IS NULL
    ))
"""
_STATE: Final = """
    head = $6, state_version = $7, version = m.version + 1, saved_by = $8, round = $9, seq = $10, started_at = $11,
    deadline = $12, attempt = CASE WHEN CAST($13 AS boolean) THEN 0 ELSE m.attempt END,
    losses = CASE WHEN CAST($14 AS boolean) THEN 0 ELSE m.losses END,
    published = CASE WHEN $15 > m.published THEN $15 ELSE m.published END,
    progressed_at = {now}
"""
_GO_ON: Final = f"""
UPDATE roundelay_messages AS m SET {_STATE}, told = m.told OR $15 > 0,
    owner = CASE WHEN $16 = 'keep' THEN m.owner END,
    due_at = CAST($17 AS double precision),
    dispatch = CASE WHEN $16 = 'hand_on' THEN m.dispatch + 1 ELSE m.dispatch END,
    dispatched_at = CASE WHEN $16 = 'hand_on' THEN {{now}} ELSE m.dispatched_at END,
    redispatched = CASE WHEN $16 = 'hand_on' THEN 0 ELSE m.redispatched END,
    queue = CASE WHEN $16 = 'hand_on' THEN 'rounds' ELSE m.queue END
WHERE {_FENCE}
RETURNING id, version, attempt, round, dispatch, queue
"""  # noqa: S608 - constants

_END: Final = f"""
UPDATE roundelay_messages AS m SET {_STATE}, told = FALSE, owner = NULL, due_at = NULL, parked = FALSE,
    status = $16, answer = $17, ended_at = {{now}}
{{place}}
WHERE {_FENCE} {{unless}}
RETURNING id, version, attempt, user_id, conversation_id
"""  # noqa: S608 - constants

_TURNS: Final = """
INSERT INTO roundelay_turns AS t (message_id, round, body, origin, native, note, created_at)
{rows}
ON CONFLICT (message_id, round) DO UPDATE
SET body = excluded.body, origin = excluded.origin, native = excluded.native, note = excluded.note
"""
_CALLS: Final = """
INSERT INTO roundelay_calls AS c (
    message_id, round, position, effect, idempotent, polling, status, result, executor, started_at, finished_at
)
{rows}
ON CONFLICT (message_id, round, position) DO UPDATE
SET effect = COALESCE(excluded.effect, c.effect), idempotent = COALESCE(excluded.idempotent, c.idempotent),
    polling = COALESCE(excluded.polling, c.polling), status = excluded.status, result = excluded.result,
    executor = COALESCE(excluded.executor, c.executor), started_at = COALESCE(excluded.started_at, c.started_at),
    finished_at = COALESCE(excluded.finished_at, c.finished_at)
"""
_UPDATES: Final = """
INSERT INTO roundelay_updates (message_id, seq, body)
{rows}
ON CONFLICT (message_id, seq) DO NOTHING
"""


def _times(status: str, executor: str) -> str:
    """Return executor, beginning and end of a call that comes to ``status``."""
    begun = f"CASE WHEN {status} = 'started' THEN"
    return f"{begun} {executor} END, {begun} {{now}} END, CASE WHEN {status} = 'done' THEN {{now}} END"


_TURN_ROW: Final = filled(_TURNS, rows="VALUES ($1, $2, $3, $4, $5, $6, {now})")
_CALL_ROW: Final = filled(_CALLS, rows=f"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {_times('$7', '$9')})")
_UPDATE_ROW: Final = filled(_UPDATES, rows="VALUES ($1, $2, $3)")

_NEW_TURNS: Final = """
SELECT m.id, r.*, {now} FROM m, unnest(
    CAST($18 AS bigint[]), CAST($19 AS text[]), CAST($20 AS text[]), CAST($21 AS text[]), CAST($22 AS text[])
) AS r
"""
_NEW_CALLS: Final = """
SELECT m.id, r.*, {times} FROM m, unnest(
    CAST($23 AS bigint[]), CAST($24 AS bigint[]), CAST($25 AS text[]), CAST($26 AS boolean[]),
    CAST($27 AS boolean[]), CAST($28 AS text[]), CAST($29 AS text[])
) AS r (round, position, effect, idempotent, polling, status, result)
"""
_NEW_UPDATES: Final = "SELECT m.id, r.* FROM m, unnest(CAST($31 AS bigint[]), CAST($32 AS text[])) AS r"
_NEW_ROWS: Final = filled(
    ", t AS ({turns}), c AS ({calls}), u AS ({updates})",
    turns=filled(_TURNS, rows=_NEW_TURNS),
    calls=filled(_CALLS, rows=filled(_NEW_CALLS, times=_times("r.status", "CAST($30 AS text)"))),
    updates=filled(_UPDATES, rows=_NEW_UPDATES),
)
"""CTEs that write the rows of a save if CTE ``m`` found the message as it was."""

_GO_ON_AT_ONCE: Final = filled("WITH m AS ({go_on}) {rows} SELECT * FROM m", go_on=_GO_ON, rows=_NEW_ROWS)

_LOCK: Final = """
SELECT c.accepted, c.running FROM roundelay_messages s JOIN roundelay_conversations c
    ON c.user_id = s.user_id AND c.conversation_id = s.conversation_id
WHERE s.id = $1 FOR UPDATE OF c
"""
_WIPE: Final = "UPDATE roundelay_turns SET native = NULL {m} WHERE message_id = {id} AND native IS NOT NULL"
_CLOSE: Final = """
UPDATE roundelay_calls SET status = 'done', finished_at = {now},
    result = COALESCE(result, CASE WHEN status = 'requested' THEN {unbegun} ELSE {unknown} END)
{m} WHERE message_id = {id} AND status <> 'done'
"""
WAKE: Final = """
UPDATE roundelay_messages SET parked = FALSE, dispatch = dispatch + 1, dispatched_at = {now}, queued_at = {now},
    redispatched = 0
WHERE id = {id}
RETURNING id, round, dispatch, queue
"""
_END_AT_ONCE: Final = filled(
    """
WITH place AS ({lock})
, m AS ({end})
{rows}
, wiped AS ({wipe} AND round <> ALL (CAST($18 AS bigint[])))
, closed AS (
    {close} AND (round, position) NOT IN (SELECT * FROM unnest(CAST($23 AS bigint[]), CAST($24 AS bigint[])))
)
, following AS (
    SELECT f.id FROM m JOIN place ON place.running = m.id JOIN roundelay_messages f
        ON f.user_id = m.user_id AND f.conversation_id = m.conversation_id AND f.ended_at IS NULL AND f.id <> m.id
    WHERE CAST($33 AS boolean) ORDER BY f.position LIMIT 1
)
, passed AS (
    UPDATE roundelay_conversations c SET running = (SELECT id FROM following)
    FROM m WHERE c.user_id = m.user_id AND c.conversation_id = m.conversation_id AND c.running = m.id
)
, woken AS ({wake})
SELECT m.version, m.attempt, w.id, w.round, w.dispatch, w.queue FROM m LEFT JOIN woken w ON TRUE
""",
    lock=_LOCK,
    end=filled(
        _END,
        place="FROM place",
        unless="AND (CAST($33 AS boolean) OR place.accepted = m.position OR place.running IS DISTINCT FROM m.id)",
    ),
    rows=_NEW_ROWS,
    wipe=filled(_WIPE, m="FROM m", id="m.id"),
    close=filled(_CLOSE, m="FROM m", id="m.id", unbegun="CAST($34 AS text)", unknown="CAST($35 AS text)"),
    wake=filled(WAKE, id="(SELECT id FROM following)"),
)

_FOLLOWING: Final = """
SELECT id FROM roundelay_messages
WHERE user_id = $1 AND conversation_id = $2 AND ended_at IS NULL ORDER BY position LIMIT 1
"""
_SQLITE_END: Final = filled(_END, place="", unless="")
_SQLITE_WIPE: Final = filled(_WIPE, m="", id="$1")
_SQLITE_CLOSE: Final = filled(_CLOSE, m="", id="$1", unbegun="$2", unknown="$3")
_SQLITE_WAKE: Final = filled(WAKE, id="$1")
_PASS: Final = """
UPDATE roundelay_conversations SET running = $4
WHERE user_id = $1 AND conversation_id = $2 AND running = $3 RETURNING running
"""


async def save(driver: Driver, wanted: Save) -> Saved | None:
    """Save, whole or not at all; None if the row is not any more as the fence says."""
    if isinstance(wanted.next, End):
        return await _end(driver, wanted, wanted.next)
    if driver.dialect == "sqlite":
        return await driver.run(lambda: _go_on_script(wanted))
    rows = await driver.fetch(_GO_ON_AT_ONCE, *_go_on_arguments(wanted), *_new_rows(wanted, changes_of(wanted)))
    return _saved(wanted, rows[0]) if rows else None


async def _end(driver: Driver, wanted: Save, end: End) -> Saved | None:
    if driver.dialect == "sqlite":
        return await driver.run(lambda: _end_script(wanted, end))
    arguments = (*_end_arguments(wanted, end), *_new_rows(wanted, changes_of(wanted)))
    rows = await driver.fetch(_END_AT_ONCE, *arguments, False, *_closings())
    return _ended(rows[0]) if rows else await driver.run(lambda: _settled_end(arguments))


def _settled_end(arguments: tuple[Any, ...]) -> Script[Saved | None]:
    """End with the conversation in hand before anything is looked at."""
    yield Query(_LOCK, arguments[:1])
    rows = yield Query(_END_AT_ONCE, (*arguments, True, *_closings()))
    return _ended(rows[0]) if rows else None


def _go_on_script(wanted: Save) -> Script[Saved | None]:
    rows = yield Query(_GO_ON, _go_on_arguments(wanted))
    if not rows:
        return None
    yield from _insert_rows(wanted)
    return _saved(wanted, rows[0])


def _end_script(wanted: Save, end: End) -> Script[Saved | None]:
    rows = yield Query(_SQLITE_END, _end_arguments(wanted, end))
    if not rows:
        return None
    yield from _insert_rows(wanted)
    yield Query(_SQLITE_WIPE, (wanted.fence.message_id,))
    yield Query(_SQLITE_CLOSE, (wanted.fence.message_id, *_closings()))
    woken = yield from _pass_on(rows[0])
    return Saved(rows[0]["version"], woken, rows[0]["attempt"])


def _pass_on(ended: Row) -> Script[tuple[Dispatch, ...]]:
    conversation = (ended["user_id"], ended["conversation_id"])
    following = yield Query(_FOLLOWING, conversation)
    passed = yield Query(_PASS, (*conversation, ended["id"], following[0]["id"] if following else None))
    if not passed or not following:
        return ()
    woken = yield Query(_SQLITE_WAKE, (following[0]["id"],))
    return (dispatch_of(woken[0]),)


def _insert_rows(wanted: Save) -> Script[None]:
    new = changes_of(wanted)
    message_id = wanted.fence.message_id
    turns = [(message_id, row.round, row.body, row.origin, row.native, row.note) for row in new.turns]
    yield Query(_TURN_ROW, tuple(turns), many=True)
    calls = [(message_id, *columns, wanted.process) for columns in _call_columns(new)]
    yield Query(_CALL_ROW, tuple(calls), many=True)
    yield Query(_UPDATE_ROW, tuple((message_id, seq, body) for seq, body in wanted.updates), many=True)


def changes_of(wanted: Save) -> Changes:
    """Return the rows of a save; at the end the provider's blocks are left out."""
    new = changes(wanted.before, wanted.state)
    if isinstance(wanted.next, End):
        return replace(new, turns=tuple(replace(row, native=None) for row in new.turns))
    return new


def _state_arguments(wanted: Save) -> tuple[Any, ...]:
    fence, state = wanted.fence, wanted.state
    return (
        fence.message_id,
        fence.version,
        fence.owner,
        fence.attempt,
        wanted.under_lease,
        encoded_head(state),
        STATE_VERSION,
        wanted.process,
        state.round,
        state.seq,
        state.started_at,
        state.deadline,
        state.round != wanted.before.round,
        progressed(wanted.before, state),
        wanted.published or 0,
    )


def _go_on_arguments(wanted: Save) -> tuple[Any, ...]:
    return (*_state_arguments(wanted), *_next_arguments(wanted.next))


def _next_arguments(next_: Next) -> tuple[str, float | None]:
    match next_:
        case Keep():
            return "keep", None
        case HandOn():
            return "hand_on", None
        case Postpone(due_at):
            return "postpone", due_at
        case End():
            raise AssertionError("an end is saved apart")
    assert_never(next_)


def _end_arguments(wanted: Save, end: End) -> tuple[Any, ...]:
    return (*_state_arguments(wanted), end.status, end.answer)


def _new_rows(wanted: Save, new: Changes) -> tuple[Any, ...]:
    """Return PostgreSQL's arrays: turns, calls, the executor of calls that begin, updates."""
    turns = [(row.round, row.body, row.origin, row.native, row.note) for row in new.turns]
    return (*_columns(turns, 5), *_columns(_call_columns(new), 7), wanted.process, *_columns(wanted.updates, 2))


def _call_columns(new: Changes) -> list[tuple[Any, ...]]:
    rows = ((row, row.plan) for row in new.calls)
    return [
        (
            row.round,
            row.position,
            plan and plan.effect,
            None if plan is None else plan.idempotent,
            None if plan is None else plan.polling,
            row.status,
            row.result,
        )
        for row, plan in rows
    ]


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _closings() -> tuple[str | None, str | None]:
    return encoded_result(NOT_EXECUTED), encoded_result(UNKNOWN)


def _saved(wanted: Save, row: Row) -> Saved:
    dispatches = (dispatch_of(row),) if isinstance(wanted.next, HandOn) else ()
    return Saved(row["version"], dispatches, row["attempt"])


def _ended(row: Row) -> Saved:
    return Saved(row["version"], () if row["id"] is None else (dispatch_of(row),), row["attempt"])


def dispatch_of(row: Row) -> Dispatch:
    """Return the task that a row is waiting for."""
    return Dispatch(row["id"], row["round"], row["dispatch"], row["queue"])
