"""Small moves that every rule of the loop is made of."""

import json
from dataclasses import dataclass, replace

from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Outcome, Result
from roundelay_worker.loop.state import Asking, State


@dataclass(frozen=True, slots=True)
class Step:
    """What a step made: the next state, and notes numbered ``state.seq - len(notes) + 1`` to ``state.seq``."""

    state: State
    notes: tuple[Note, ...] = ()


def stay(state: State, *notes: Note) -> Step:
    """Return a step to ``state`` that leaves ``notes``, numbered."""
    return Step(replace(state, seq=state.seq + len(notes)), notes)


def then(first: Step, second: Step) -> Step:
    """Return one step for two in a row; ``second`` was taken from ``first.state``."""
    return Step(second.state, first.notes + second.notes)


def turn_started(state: State) -> Note:
    """Return the note that ``state`` asks for its turn."""
    closing = state.stage.closing if isinstance(state.stage, Asking) else None
    return Note("turn_started", turn=state.round, closing=closing)


def turn_ended(state: State, *, is_round: bool) -> Note:
    """Return the note that the turn of ``state`` is over; ``is_round`` if it made a round of tools."""
    return Note("turn_ended", turn=state.round, round=state.rounds + 1 if is_round else None, spent=state.spent)


def untold(state: State, reserved: int) -> State:
    """Return ``state`` after a request whose cost nobody told; the tokens ``reserved`` for it stay reserved."""
    spent = replace(state.spent, calls_without_usage=state.spent.calls_without_usage + 1)
    return replace(state, spent=spent, reserved=state.reserved + reserved)


def settled_error(code: str, message: str, outcome: Outcome, recovery: str = "") -> Result:
    """Return an error result in the one shape that models are shown."""
    error = {"code": code, "message": message, "recovery": recovery}
    return Result(json.dumps({"error": error}, ensure_ascii=False), is_error=True, outcome=outcome)
