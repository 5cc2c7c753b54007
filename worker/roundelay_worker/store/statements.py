"""The statements of a save; ``saving`` says how they go together.

Parameters are the same throughout: $1 to $5 the fence (message, version, owner, attempt, under lease), $6 to $15
the state, $16 and $17 what comes next, $18 to $32 the new rows as arrays (turns, calls, the executor, updates),
$33 what the start resolved; for an end whether the conversation is in hand, $34 and $35 the results of calls that it
leaves open.

A statement about one message asks ``status IS NULL``, not ``ended_at IS NULL``: while there are few messages,
PostgreSQL would find it through an index of unfinished ones, and keep to that plan when there are many.

A condition in PostgreSQL is first tried on the row as it was when the statement began: so an end asks ``place``,
which was read after the wait for the lock, and not the conversation's row itself, whose turn it is.
"""

from typing import Final

from roundelay_worker.store.driver import filled

_FENCE: Final = """
    m.id = $1 AND m.version = $2 AND m.status IS NULL
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
    resolved = COALESCE(m.resolved, CAST({{resolved}} AS text)),
    owner = CASE WHEN $16 = 'keep' THEN m.owner END,
    due_at = CAST($17 AS double precision),
    dispatch = CASE WHEN $16 = 'hand_on' THEN m.dispatch + 1 ELSE m.dispatch END,
    dispatched_at = CASE WHEN $16 = 'hand_on' THEN {{now}} ELSE m.dispatched_at END,
    redispatched = CASE WHEN $16 = 'hand_on' THEN 0 ELSE m.redispatched END,
    queue = CASE WHEN $16 = 'hand_on' THEN 'rounds' ELSE m.queue END
WHERE {_FENCE}
RETURNING id, version, attempt, round, dispatch, queue
"""  # noqa: S608 - constants
SQLITE_GO_ON: Final = filled(_GO_ON, resolved="$18")

END: Final = f"""
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


TURN_ROW: Final = filled(_TURNS, rows="VALUES ($1, $2, $3, $4, $5, $6, {now})")
CALL_ROW: Final = filled(_CALLS, rows=f"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {_times('$7', '$9')})")
UPDATE_ROW: Final = filled(_UPDATES, rows="VALUES ($1, $2, $3)")

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

GO_ON_AT_ONCE: Final = filled(
    "WITH m AS ({go_on}) {rows} SELECT * FROM m", go_on=filled(_GO_ON, resolved="$33"), rows=_NEW_ROWS
)

LOCK: Final = """
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
END_AT_ONCE: Final = filled(
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
    FROM m JOIN place ON place.running = m.id WHERE c.user_id = m.user_id AND c.conversation_id = m.conversation_id
)
, woken AS ({wake})
SELECT m.version, m.attempt, w.id, w.round, w.dispatch, w.queue FROM m LEFT JOIN woken w ON TRUE
""",
    lock=LOCK,
    end=filled(
        END,
        place="FROM place",
        unless="AND (CAST($33 AS boolean) OR place.accepted = m.position OR place.running IS DISTINCT FROM m.id)",
    ),
    rows=_NEW_ROWS,
    wipe=filled(_WIPE, m="FROM m", id="m.id"),
    close=filled(_CLOSE, m="FROM m", id="m.id", unbegun="CAST($34 AS text)", unknown="CAST($35 AS text)"),
    wake=filled(WAKE, id="(SELECT id FROM following)"),
)

FOLLOWING: Final = """
SELECT id FROM roundelay_messages
WHERE user_id = $1 AND conversation_id = $2 AND ended_at IS NULL ORDER BY position LIMIT 1
"""
SQLITE_END: Final = filled(END, place="", unless="")
SQLITE_WIPE: Final = filled(_WIPE, m="", id="$1")
SQLITE_CLOSE: Final = filled(_CLOSE, m="", id="$1", unbegun="$2", unknown="$3")
SQLITE_WAKE: Final = filled(WAKE, id="$1")
GIVE_TURN: Final = """
UPDATE roundelay_conversations SET running = $4
WHERE user_id = $1 AND conversation_id = $2 AND running = $3 RETURNING running
"""
