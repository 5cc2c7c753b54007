"""Load: a message as the database has it, and what was said before it."""

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from roundelay.messages import Submission
from roundelay.names import SOFT_STOPS
from roundelay_worker.loop.history import AssistantText, Entry, Exchange, UserText
from roundelay_worker.loop.state import STATE_VERSION, CallPlan
from roundelay_worker.store.codec import CallRow, TurnRow, decoded, decoded_exchange
from roundelay_worker.store.driver import Driver, Query, Row, Rows, Script, filled
from roundelay_worker.store.errors import BrokenState, UnreadableState
from roundelay_worker.store.records import Context, Loaded, Unread

_COLUMNS: Final = """
    m.id, m.user_id, m.conversation_id, m.submission, m.resolved, m.submitted_at, m.accepted_at, m.version,
    m.owner, m.attempt, m.dispatch, m.losses, m.head, m.state_version, m.verdict, m.cancel_requested_at, m.answer,
    m.round, m.seq, m.started_at, m.deadline
"""
_EXECUTOR: Final = """
    SELECT executor FROM roundelay_calls
    WHERE message_id = $1 AND status IN ('started', 'in_doubt') AND executor IS NOT NULL
    ORDER BY started_at DESC LIMIT 1
"""
_MESSAGE: Final = filled(
    """
SELECT {columns}, e.executor,
    e.executor IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM roundelay_processes p WHERE p.id = e.executor AND p.gone_at IS NULL
    ) AS executor_dead
    {rows}
FROM roundelay_messages m LEFT JOIN ({executor}) e ON TRUE
WHERE m.id = $1
""",
    columns=_COLUMNS,
    executor=_EXECUTOR,
)

_TURNS: Final = """
SELECT round, body, origin, native, note FROM roundelay_turns WHERE message_id = $1 AND round > $2 ORDER BY round
"""
_CALLS: Final = """
SELECT round, position, effect, idempotent, polling, status, result
FROM roundelay_calls WHERE message_id = $1 AND round > $2 ORDER BY round, position
"""
_AT_ONCE: Final = filled(
    _MESSAGE,
    rows=filled(
        ", ARRAY(SELECT ROW(t.*) FROM ({turns}) t) AS turns, ARRAY(SELECT ROW(c.*) FROM ({calls}) c) AS calls",
        turns=_TURNS,
        calls=_CALLS,
    ),
)
"""PostgreSQL: everything of one moment in one round trip."""

_ALONE: Final = filled(_MESSAGE, rows="")

_EARLIER: Final = """
SELECT b.id, b.status, b.submission, b.answer, b.position = (
    SELECT c.position FROM roundelay_messages c
    WHERE c.user_id = a.user_id AND c.conversation_id = a.conversation_id AND c.position < a.position
        AND c.ended_at IS NOT NULL
    ORDER BY c.position DESC LIMIT 1
) AS just_before
FROM roundelay_messages a JOIN roundelay_messages b
    ON b.user_id = a.user_id AND b.conversation_id = a.conversation_id AND b.position < a.position
WHERE a.id = $1 AND b.ended_at IS NOT NULL AND b.status <> 'refused'
ORDER BY b.position DESC LIMIT $2
"""

_SPOKEN: Final = SOFT_STOPS | {"answered"}
"""Statuses whose answer the assistant said."""

_UNFINISHED: Final = SOFT_STOPS | {"cancelled", "failed"}
"""Statuses after which "go on" continues from what was found."""


async def load(driver: Driver, message_id: str, known: tuple[Exchange, ...] = ()) -> Loaded | None:
    """Return the message with its whole state, or None; ``UnreadableState`` if a newer version wrote it, or nobody can.

    ``known`` are the first of its exchanges, as they were saved: only what came after them is read.
    """
    if driver.dialect == "sqlite":
        return await driver.run(lambda: _loaded_in_parts(message_id, known), reading=True)
    rows = await driver.fetch(_AT_ONCE, message_id, len(known), again=True)
    return _loaded(rows[0], rows[0]["turns"], rows[0]["calls"], known) if rows else None


def _loaded_in_parts(message_id: str, known: tuple[Exchange, ...]) -> Script[Loaded | None]:
    rows = yield Query(_ALONE, (message_id,))
    if not rows:
        return None
    turns = yield Query(_TURNS, (message_id, len(known)))
    calls = yield Query(_CALLS, (message_id, len(known)))
    return _loaded(rows[0], turns, calls, known)


def _loaded(row: Row, turns: Rows, calls: Rows, known: tuple[Exchange, ...]) -> Loaded:
    if row["state_version"] > STATE_VERSION:
        raise UnreadableState(_unread(row))
    try:
        state = decoded(row["head"], [turn_row(turn) for turn in turns], [call_row(call) for call in calls], known)
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        raise BrokenState(_unread(row)) from exc
    return Loaded(
        message_id=row["id"],
        user_id=row["user_id"],
        conversation_id=row["conversation_id"],
        submission=row["submission"],
        resolved=row["resolved"],
        submitted_at=row["submitted_at"],
        accepted_at=row["accepted_at"],
        version=row["version"],
        owner=row["owner"],
        attempt=row["attempt"],
        dispatch=row["dispatch"],
        losses=row["losses"],
        state=state,
        verdict=row["verdict"],
        cancel_requested=row["cancel_requested_at"] is not None,
        answer=row["answer"],
        interrupted_executor=row["executor"],
        executor_dead=bool(row["executor_dead"]),
    )


def _unread(row: Row) -> Unread:
    return Unread(
        message_id=row["id"],
        user_id=row["user_id"],
        conversation_id=row["conversation_id"],
        submission=row["submission"],
        version=row["version"],
        head=row["head"],
        state_version=row["state_version"],
        round=row["round"],
        seq=row["seq"],
        started_at=row["started_at"],
        deadline=row["deadline"],
    )


def turn_row(row: Row) -> TurnRow:
    """Return a stored turn."""
    return TurnRow(row[0], row[1], row[2], row[3], row[4])


def call_row(row: Row) -> CallRow:
    """Return a stored call."""
    plan = None if row[2] is None else CallPlan(row[2], bool(row[3]), bool(row[4]))
    return CallRow(row[0], row[1], plan, row[5], row[6])


async def context(driver: Driver, message_id: str, entries: int) -> Context:
    """Return what was said before the message, so that with it there are at most ``entries``.

    Only ended messages speak. The calls of the one just before come too if it ended unfinished; they are no
    entries of their own, and come without reasoning.
    """
    room = entries - 1
    if room < 1:
        return ()
    earlier = await driver.fetch(_EARLIER, message_id, room, again=True)
    said: list[Entry] = [entry for row in reversed(earlier) for entry in _spoken(row)][-room:]
    if said and isinstance(said[0], AssistantText):
        del said[0]
    if said and earlier[0]["just_before"] and earlier[0]["status"] in _UNFINISHED:
        turns = await driver.fetch(_TURNS, earlier[0]["id"], 0, again=True)
        calls = await driver.fetch(_CALLS, earlier[0]["id"], 0, again=True)
        at = len(said) - 1 if isinstance(said[-1], AssistantText) else len(said)
        said[at:at] = _found(turns, calls)
    return tuple(said)


def _spoken(row: Row) -> Sequence[Entry]:
    user = UserText(Submission.model_validate_json(row["submission"]).text)
    if row["status"] in _SPOKEN and row["answer"] is not None:
        return user, AssistantText(cast("dict[str, Any]", json.loads(row["answer"]))["text"])
    return (user,)


def _found(turns: Rows, calls: Rows) -> list[Exchange]:
    """Return the exchanges of an ended message that had calls, with a result for each."""
    by_round: dict[int, list[CallRow]] = {}
    for call in calls:
        by_round.setdefault(call[0], []).append(call_row(call))
    found = [decoded_exchange(turn_row(turn), by_round.get(turn[0], ())) for turn in turns]
    return [exchange for exchange in found if exchange.results and len(exchange.results) == len(exchange.turn.calls)]
