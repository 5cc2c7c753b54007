"""Save: the new state and its updates in one transaction, if the row is still as it was.

On PostgreSQL a save is one statement, one round trip: the fenced UPDATE of the message's row, and inserts that
take place only if it found its row. On SQLite the same statements run one after the other in one transaction.

An end also gives the conversation's turn to the next message. It takes the conversation's row first, as accepting
does. If nothing was accepted after this message, the turn is given back in the same statement. Otherwise, on
PostgreSQL, the next message is looked for by a second statement, begun after the lock was had: the first one
sees other rows as they were before it waited.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from roundelay_worker.loop.state import STATE_VERSION
from roundelay_worker.store import statements
from roundelay_worker.store.changes import Changes, changes, progressed
from roundelay_worker.store.codec import NOT_EXECUTED, UNKNOWN, CallRow, encoded_head, encoded_result
from roundelay_worker.store.driver import Driver, Query, Row, Script
from roundelay_worker.store.folding import folded
from roundelay_worker.store.records import Dispatch, End, HandOn, Keep, Next, Postpone, Save, Saved, Unread

_CLOSINGS: Final = (encoded_result(NOT_EXECUTED), encoded_result(UNKNOWN))


@dataclass(frozen=True, slots=True)
class _Write:
    """A save in the database's terms: parameters $1 to $17, and the new rows."""

    arguments: tuple[Any, ...]
    new: Changes
    updates: tuple[tuple[int, str], ...]
    executor: str | None


async def save(driver: Driver, wanted: Save) -> Saved | None:
    """Save, whole or not at all; None if the row is not any more as the fence says."""
    if isinstance(wanted.next, End):
        return await _end(driver, _ending(wanted, wanted.next))
    write = _Write(_go_on_arguments(wanted), changes(wanted.before, wanted.state), wanted.updates, wanted.process)
    if driver.dialect == "sqlite":
        rows = await driver.run(lambda: _go_on_script(write, wanted.resolved))
    else:
        rows = await driver.fetch(statements.GO_ON_AT_ONCE, *write.arguments, *_arrays(write), wanted.resolved)
    return _saved(wanted.next, rows[0]) if rows else None


async def end_unread(driver: Driver, unread: Unread, end: End, update: str) -> Saved | None:
    """End a message without reading its state; None if something happened to it since it was looked at."""
    arguments = (
        *(unread.message_id, unread.version, None, None, False),
        *(unread.head, unread.state_version, None, unread.round, unread.seq + 1, unread.started_at, unread.deadline),
        *(False, False, 0, end.status, end.answer),
    )
    return await _end(driver, _Write(arguments, Changes((), ()), ((unread.seq + 1, update),), None))


def _go_on_script(write: _Write, resolved: str | None) -> Script[Sequence[Row]]:
    rows = yield Query(statements.SQLITE_GO_ON, (*write.arguments, resolved))
    if rows:
        yield from _insert_rows(write)
    return rows


async def _end(driver: Driver, write: _Write) -> Saved | None:
    if driver.dialect == "sqlite":
        return await driver.run(lambda: _end_script(write))
    arguments = (*write.arguments, *_arrays(write))
    rows = await driver.fetch(statements.END_AT_ONCE, *arguments, False, *_CLOSINGS)
    return _ended(rows[0]) if rows else await driver.run(lambda: _settled_end(arguments))


def _settled_end(arguments: tuple[Any, ...]) -> Script[Saved | None]:
    """End with the conversation in hand before anything is looked at."""
    yield Query(statements.LOCK, arguments[:1])
    rows = yield Query(statements.END_AT_ONCE, (*arguments, True, *_CLOSINGS))
    return _ended(rows[0]) if rows else None


def _end_script(write: _Write) -> Script[Saved | None]:
    rows = yield Query(statements.SQLITE_END, write.arguments)
    if not rows:
        return None
    yield from _insert_rows(write)
    yield Query(statements.SQLITE_WIPE, write.arguments[:1])
    yield Query(statements.SQLITE_CLOSE, (write.arguments[0], *_CLOSINGS))
    return Saved(rows[0]["version"], (yield from _passed_on(rows[0])), rows[0]["attempt"])


def _passed_on(ended: Row) -> Script[tuple[Dispatch, ...]]:
    conversation = (ended["user_id"], ended["conversation_id"])
    following = yield Query(statements.FOLLOWING, conversation)
    next_id = following[0]["id"] if following else None
    passed = yield Query(statements.GIVE_TURN, (*conversation, ended["id"], next_id))
    if not passed or next_id is None:
        return ()
    (woken,) = yield Query(statements.SQLITE_WAKE, (next_id,))
    return (dispatch_of(woken),)


def _insert_rows(write: _Write) -> Script[None]:
    """Write the new rows one kind after the other; SQLite is at hand, and a round has few."""
    message_id = write.arguments[0]
    turns = tuple([(message_id, *columns) for columns in _turn_columns(write.new)])
    calls = tuple([(message_id, *_call_columns(row), write.executor) for row in write.new.calls])
    updates = tuple([(message_id, *update) for update in folded(write.updates)])
    for sql, rows in ((statements.TURN_ROW, turns), (statements.CALL_ROW, calls), (statements.UPDATE_ROW, updates)):
        if rows:
            yield Query(sql, rows, many=True)


def _arrays(write: _Write) -> tuple[Any, ...]:
    """Return parameters $18 to $32."""
    calls = [_call_columns(row) for row in write.new.calls]
    return (
        *_columns(_turn_columns(write.new), 5),
        *_columns(calls, 7),
        write.executor,
        *_columns(folded(write.updates), 2),
    )


def _turn_columns(new: Changes) -> list[tuple[Any, ...]]:
    return [(row.round, row.body, row.origin, row.native, row.note) for row in new.turns]


def _call_columns(row: CallRow) -> tuple[Any, ...]:
    plan = row.plan
    planned = (plan.effect, plan.idempotent, plan.polling) if plan else (None, None, None)
    return (row.round, row.position, *planned, row.status, row.result)


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _ending(wanted: Save, end: End) -> _Write:
    """Return the write of an end, which leaves the provider's blocks out."""
    new = changes(wanted.before, wanted.state)
    bare = replace(new, turns=tuple([replace(row, native=None) for row in new.turns]))
    return _Write((*_state_arguments(wanted), end.status, end.answer), bare, wanted.updates, wanted.process)


def _go_on_arguments(wanted: Save) -> tuple[Any, ...]:
    return (*_state_arguments(wanted), *_next_arguments(wanted.next))


def _state_arguments(wanted: Save) -> tuple[Any, ...]:
    fence, before, state = wanted.fence, wanted.before, wanted.state
    return (
        *(fence.message_id, fence.version, fence.owner, fence.attempt, wanted.under_lease),
        *(encoded_head(state), STATE_VERSION, wanted.process, state.round, state.seq, state.started_at),
        *(state.deadline, state.round != before.round, progressed(before, state), wanted.published or 0),
    )


def _next_arguments(following: Next) -> tuple[str, float | None]:
    match following:
        case Keep():
            return "keep", None
        case HandOn():
            return "hand_on", None
        case Postpone(due_at):
            return "postpone", due_at
        case End():
            raise AssertionError("an end is written apart")
    assert_never(following)


def _saved(following: Next, row: Row) -> Saved:
    dispatches = (dispatch_of(row),) if isinstance(following, HandOn) else ()
    return Saved(row["version"], dispatches, row["attempt"])


def _ended(row: Row) -> Saved:
    return Saved(row["version"], () if row["id"] is None else (dispatch_of(row),), row["attempt"])


def dispatch_of(row: Row) -> Dispatch:
    """Return the task that a row is waiting for."""
    return Dispatch(row["id"], row["round"], row["dispatch"], row["queue"])
