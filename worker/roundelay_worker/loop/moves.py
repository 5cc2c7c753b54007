"""Small moves that every rule of the loop is made of."""

import json
from dataclasses import dataclass, replace

from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Outcome, Result
from roundelay_worker.loop.state import Spent, State


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


def untold(spent: Spent) -> Spent:
    """Return what was spent, with one more request whose cost nobody told."""
    return replace(spent, calls_without_usage=spent.calls_without_usage + 1)


def settled_error(code: str, message: str, outcome: Outcome, recovery: str = "") -> Result:
    """Return an error result in the one shape that models are shown."""
    error = {"code": code, "message": message, "recovery": recovery}
    return Result(json.dumps({"error": error}, ensure_ascii=False), is_error=True, outcome=outcome)
