"""What people look at: counts, and the timeline of one message."""

from typing import Any, Final

from roundelay_worker.store.codec import decoded_result, decoded_turn, unpacked
from roundelay_worker.store.driver import Driver, Query, Row, Rows, Script
from roundelay_worker.store.folding import unfolded
from roundelay_worker.store.loading import turn_row
from roundelay_worker.store.publishing import accepted_update, status_of
from roundelay_worker.store.records import Counts, Timeline, TimelineCall, TimelineTurn

_COUNTS: Final = """
SELECT
    COALESCE(sum(CASE WHEN owner IS NULL AND due_at IS NULL AND NOT parked THEN 1 ELSE 0 END), 0) AS ready,
    COALESCE(sum(CASE WHEN owner IS NOT NULL THEN 1 ELSE 0 END), 0) AS running,
    COALESCE(sum(CASE WHEN owner IS NULL AND due_at IS NOT NULL THEN 1 ELSE 0 END), 0) AS postponed,
    COALESCE(sum(CASE WHEN parked THEN 1 ELSE 0 END), 0) AS parked,
    COALESCE(sum(CASE WHEN owner IS NOT NULL AND p.id IS NULL THEN 1 ELSE 0 END), 0) AS running_without_worker,
    {now} - min(CASE WHEN owner IS NULL AND due_at IS NULL AND NOT parked THEN dispatched_at END) AS oldest_ready
FROM roundelay_messages m LEFT JOIN roundelay_processes p ON p.id = m.owner AND p.lease_until > {now}
WHERE m.ended_at IS NULL
"""
_ENDED: Final = "SELECT count(*) AS ended FROM roundelay_messages WHERE ended_at > {began} - 3600"
_PROCESSES: Final = "SELECT count(*) AS live FROM roundelay_processes WHERE lease_until > {now} AND lost_at IS NULL"

_MESSAGE: Final = """
SELECT id, user_id, conversation_id, position, submission, status, submitted_at, accepted_at, started_at, claimed_at,
    progressed_at, ended_at, deadline, owner, attempt, losses, dispatch, seq, published, verdict, cancel_requested_at,
    answer, after_message, parked, due_at
FROM roundelay_messages WHERE id = $1
"""
_TURNS: Final = """
SELECT round, body, origin, NULL AS native, note, created_at FROM roundelay_turns WHERE message_id = $1 ORDER BY round
"""
_CALLS: Final = """
SELECT round, position, effect, status, result, started_at, finished_at, executor, loose, late_result
FROM roundelay_calls WHERE message_id = $1 ORDER BY round, position
"""
_UPDATES: Final = "SELECT seq, body FROM roundelay_updates WHERE message_id = $1 ORDER BY seq"

_COPIED: Final = (
    "user_id",
    "conversation_id",
    "position",
    "submission",
    "submitted_at",
    "accepted_at",
    "started_at",
    "claimed_at",
    "progressed_at",
    "ended_at",
    "deadline",
    "owner",
    "attempt",
    "losses",
    "dispatch",
    "seq",
    "published",
    "verdict",
    "cancel_requested_at",
    "answer",
)


async def counts(driver: Driver) -> Counts:
    """Return how many messages stand where."""
    return await driver.run(_counts, reading=True)


def _counts() -> Script[Counts]:
    (row,) = yield Query(_COUNTS)
    (ended,) = yield Query(_ENDED)
    (processes,) = yield Query(_PROCESSES)
    names = ("ready", "running", "postponed", "parked", "running_without_worker")
    return Counts(
        **{name: int(row[name]) for name in names},
        ended=ended["ended"],
        processes=processes["live"],
        oldest_ready=row["oldest_ready"],
    )


async def timeline(driver: Driver, message_id: str) -> Timeline | None:
    """Return everything that is known of a message."""
    return await driver.run(lambda: _timeline(message_id), reading=True)


def _timeline(message_id: str) -> Script[Timeline | None]:
    rows = yield Query(_MESSAGE, (message_id,))
    if not rows:
        return None
    row = rows[0]
    turns = yield Query(_TURNS, (message_id,))
    calls = yield Query(_CALLS, (message_id,))
    updates = yield Query(_UPDATES, (message_id,))
    first = (1, accepted_update(message_id, row["accepted_at"], row["after_message"]))
    copied: dict[str, Any] = {name: row[name] for name in _COPIED}
    return Timeline(
        message_id=message_id,
        status=status_of(row),
        turns=tuple([_turn(turn, [call for call in calls if call["round"] == turn["round"]]) for turn in turns]),
        updates=(first, *unfolded(updates, 0)),
        **copied,
    )


def _turn(row: Row, calls: Rows) -> TimelineTurn:
    turn = decoded_turn(turn_row(row))
    told = turn.usage
    return TimelineTurn(
        round=row["round"],
        created_at=row["created_at"],
        text=turn.text,
        finish=turn.finish,
        input_tokens=told.input_tokens if told else None,
        output_tokens=told.output_tokens if told else None,
        note=turn.note,
        origin=None if row["origin"] is None else unpacked(row["origin"]),
        calls=tuple([_call(call, asked.name, asked.arguments) for call, asked in zip(calls, turn.calls, strict=False)]),
    )


def _call(row: Row, name: str, arguments: str) -> TimelineCall:
    result = None if row["result"] is None else decoded_result(row["result"])
    return TimelineCall(
        name=name,
        arguments=arguments,
        effect=row["effect"],
        status=row["status"],
        outcome=result.outcome if result else None,
        is_error=result is not None and result.is_error,
        result=result.text if result else None,
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        executor=row["executor"],
        loose=bool(row["loose"]),
        late_result=None if row["late_result"] is None else unpacked(row["late_result"]),
    )
