"""Load: a message as the database has it, and what was said before it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from roundelay.messages import Submission
from roundelay.names import SOFT_STOPS
from roundelay_worker.loop.history import AssistantText, Entry, Exchange, UserText
from roundelay_worker.loop.ledger import Recorded
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
SELECT b.id, b.status, b.submission, b.answer
FROM roundelay_messages a JOIN roundelay_messages b
    ON b.user_id = a.user_id AND b.conversation_id = a.conversation_id AND b.position < a.position
WHERE a.id = $1 AND b.ended_at IS NOT NULL
ORDER BY b.position DESC LIMIT $2
"""

_SPOKEN: Final = SOFT_STOPS | {"answered"}
"""Statuses whose answer the assistant said."""

_UNFINISHED: Final = SOFT_STOPS | {"cancelled", "failed", "refused"}
"""Statuses after which "go on" continues from what was done."""

_LONGEST_JOB: Final = 50
"""Messages that one continues, at most."""
_ASIDES: Final = 2
"""Messages in a row that were answered and do not end a job: "what time is it?" between two that go on."""


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

    Only ended messages speak. The messages that this one continues bring their calls too, without reasoning; those
    are no entries of their own. ``recorded`` are these calls from the job's beginning on, whatever the room.
    """
    if entries < 1:
        return Context()
    earlier = await _earlier(driver, message_id, entries - 1)
    recorded = {row["id"]: await _recorded(driver, row["id"]) for row in _job(earlier)}
    said = [_Said(entry, row["id"]) for row in reversed(earlier) for entry in _spoken(row)]
    said = said[-(entries - 1) :] if entries > 1 else []
    if said and isinstance(said[0].entry, AssistantText):
        del said[0]
    history = [entry for one in said for entry in _with_calls(one, recorded)]
    return Context(tuple(history), tuple(one for calls in reversed(recorded.values()) for one in calls))


async def _earlier(driver: Driver, message_id: str, room: int) -> Rows:
    """Return the messages before, the newest first: as many as there is room for, or as the job has."""
    most = max(room, _ASIDES + 1)
    earlier = await driver.fetch(_EARLIER, message_id, most, again=True)
    if len(earlier) == most < _LONGEST_JOB and any(row["status"] in _UNFINISHED for row in earlier[-_ASIDES - 1 :]):
        earlier = await driver.fetch(_EARLIER, message_id, _LONGEST_JOB, again=True)
    return earlier


@dataclass(frozen=True, slots=True)
class _Said:
    entry: Entry
    message_id: str


def _job(earlier: Rows) -> Iterator[Row]:
    """Yield the messages that the next one continues, the newest first."""
    asides = 0
    for row in earlier[:_LONGEST_JOB]:
        if row["status"] in _UNFINISHED:
            asides = 0
            yield row
        elif (asides := asides + 1) > _ASIDES:
            return


def _with_calls(said: _Said, recorded: Mapping[str, tuple[Recorded, ...]]) -> Iterator[Entry]:
    """Yield what was said, a user's text with the calls that followed it."""
    yield said.entry
    if isinstance(said.entry, UserText):
        yield from (exchange for exchange, _ in recorded.get(said.message_id, ()))


async def _recorded(driver: Driver, message_id: str) -> tuple[Recorded, ...]:
    turns = await driver.fetch(_TURNS, message_id, 0, again=True)
    calls = await driver.fetch(_CALLS, message_id, 0, again=True)
    return tuple(_found(turns, calls))


def _spoken(row: Row) -> Sequence[Entry]:
    user = UserText(Submission.model_validate_json(row["submission"]).text)
    if row["status"] in _SPOKEN and row["answer"] is not None:
        return user, AssistantText(cast("dict[str, Any]", json.loads(row["answer"]))["text"])
    return (user,)


def _found(turns: Rows, calls: Rows) -> Iterator[Recorded]:
    """Yield the exchanges of an ended message that had calls, with a result for each.

    Calls that were saved together with their results are reads.
    """
    by_round: dict[int, list[CallRow]] = {}
    for call in calls:
        by_round.setdefault(call[0], []).append(call_row(call))
    for turn in turns:
        rows = by_round.get(turn[0], [])
        exchange = decoded_exchange(turn_row(turn), rows)
        if exchange.results and len(exchange.results) == len(exchange.turn.calls):
            yield exchange, tuple(row.plan.effect if row.plan else "read" for row in rows)
