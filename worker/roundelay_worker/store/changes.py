"""What a save has to write: the rows of a state that are new or different since the state before."""

from dataclasses import dataclass

from roundelay_worker.loop.history import Exchange, Turn
from roundelay_worker.loop.state import Running, State
from roundelay_worker.store.codec import CallRow, TurnRow, encoded_calls, encoded_results, encoded_turn


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows to be written; a turn and its blocks once, a call each time its status changes."""

    turns: tuple[TurnRow, ...]
    calls: tuple[CallRow, ...]


def changes(before: State, state: State) -> Changes:
    """Return what ``state`` has that ``before`` did not."""
    turns: list[TurnRow] = []
    calls: list[CallRow] = []
    for index in range(_common(before, state), len(state.sequence)):
        _add_exchange(index + 1, before, state.sequence[index], turns, calls)
    if isinstance(state.stage, Running):
        _add_running(state.round, before, state.stage, turns, calls)
    return Changes(tuple(turns), tuple(calls))


def progressed(before: State, state: State) -> bool:
    """Say whether work was done that a crash from here on would not undo; lost leases are counted anew then."""
    if state.round != before.round or type(state.stage) is not type(before.stage):
        return True
    return _done(state) > _done(before)


def _common(before: State, state: State) -> int:
    """Return how many exchanges both have; the same objects, unless the state was loaded in between."""
    shared = 0
    for ours, theirs in zip(before.sequence, state.sequence, strict=False):
        if ours is not theirs and ours != theirs:
            break
        shared += 1
    return shared


def _add_exchange(round_: int, before: State, exchange: Exchange, turns: list[TurnRow], calls: list[CallRow]) -> None:
    if exchange.note or _turn_of(before, round_) != exchange.turn:
        turns.append(encoded_turn(round_, exchange.turn, exchange.note))
    known = _calls_of(before, round_)
    calls.extend(
        row
        for row in encoded_results(round_, exchange.results)
        if row.position >= len(known) or known[row.position].result != row.result
    )


def _add_running(round_: int, before: State, stage: Running, turns: list[TurnRow], calls: list[CallRow]) -> None:
    if _turn_of(before, round_) != stage.turn:
        turns.append(encoded_turn(round_, stage.turn))
    known = _calls_of(before, round_)
    calls.extend(
        row for row in encoded_calls(round_, stage.calls) if row.position >= len(known) or known[row.position] != row
    )


def _turn_of(state: State, round_: int) -> Turn | None:
    return state.stage.turn if isinstance(state.stage, Running) and state.round == round_ else None


def _calls_of(state: State, round_: int) -> list[CallRow]:
    if not isinstance(state.stage, Running) or state.round != round_:
        return []
    return encoded_calls(round_, state.stage.calls)


def _done(state: State) -> int:
    if isinstance(state.stage, Running):
        return sum(call.status == "done" for call in state.stage.calls)
    return 0
