"""Messages that go wherever the dice lead: turns, ids, arguments and results as odd as models and tools make them."""

import random
from collections.abc import Iterator
from dataclasses import replace

from worlds import ESTIMATE, FAILURES, READ, SAFE_WRITE, WRITE

from roundelay_worker.loop.effects import AskModel, RunCall, Start, VerifyCall
from roundelay_worker.loop.events import (
    AttemptBegan,
    CallFinished,
    CallStarted,
    CallVerified,
    Event,
    OwnerLost,
    Started,
    TurnArrived,
    TurnFailed,
)
from roundelay_worker.loop.history import Call, Native, Result, Turn
from roundelay_worker.loop.moves import settled_error
from roundelay_worker.loop.state import CallPlan, Ended, Limits, Running, State
from roundelay_worker.loop.step import step, todo

TIMEOUT, RESERVE = 120.0, 20.0
PLANS = {"look": READ, "put": WRITE, "safe": SAFE_WRITE}
NAMES = (*PLANS, "look", "no such tool", "über.tool", "n" * 130, "")
IDS = ("", "", "c1", "c1", "call_0123456789", "toolu_01ABC", "an id, with spaces", "i" * 80)
FOREIGN = Native("another:model@elsewhere", '[{"type": "thinking", "thinking": "", "signature": "of another"}]')


def wandered(dice: random.Random) -> Iterator[State]:
    """Yield every state of one message from its start until it ends."""
    state = replace(State(seq=1), limits=Limits(max_rounds=dice.randrange(1, 5)))
    while not isinstance(state.stage, Ended):
        yield state
        lost = dice.random() < 0.1
        state = step(state, OwnerLost(1.0) if lost else _happens(state, dice)).state


def _happens(state: State, dice: random.Random) -> Event:
    effects = todo(state)
    begun = [i for i, call in enumerate(state.stage.calls) if call.status == "started"] if _runs(state) else []
    if begun and (not effects or dice.random() < 0.5):
        return CallFinished(state.round, dice.choice(begun), _result(dice), 1.0)
    match dice.choice(effects):
        case Start():
            return Started(0.0, state.limits, "en", TIMEOUT, RESERVE)
        case AskModel(begun=False) as wanted:
            return AttemptBegan(wanted.round, wanted.attempt + 1, ESTIMATE, 1.0)
        case AskModel() as wanted if dice.random() < 0.1:
            return TurnFailed(wanted.round, wanted.attempt, FAILURES[0], 1.0, dice.random())
        case AskModel() as wanted:
            turn = _turn(dice)
            plans = tuple(PLANS.get(call.name, CallPlan()) for call in turn.calls)
            return TurnArrived(wanted.round, wanted.attempt, turn, plans, 1.0)
        case RunCall() as run:
            return CallStarted(run.round, run.position, 1.0)
        case VerifyCall() as verify:
            verdict = dice.choice(("done", "not_done", "unknown"))
            return CallVerified(verify.round, verify.position, verdict, dice.random() < 0.5, 1.0, _result(dice))


def _runs(state: State) -> bool:
    return isinstance(state.stage, Running)


def _turn(dice: random.Random) -> Turn:
    finish = dice.choice(("complete",) * 8 + ("paused", "paused", "cut", "malformed"))
    count = dice.choice((0, 1, 1, 2, 3, 4)) if finish == "paused" else dice.choice((1, 1, 2, 3, 4))
    native = FOREIGN if dice.random() < 0.2 else None
    return Turn(_text(dice), tuple(_call(dice) for _ in range(count)), finish, native=native)  # type: ignore[arg-type]


def _call(dice: random.Random) -> Call:
    name, wire_id = dice.choice(NAMES), dice.choice(IDS)
    if dice.random() < 0.1:
        return Call(name, wire_id=wire_id, fault="The arguments are not valid JSON.")
    return Call(name, dice.choice(("{}", f'{{"at": {dice.random()}}}', '{"é": ["\\ud800", {}]}')), wire_id)


def _result(dice: random.Random) -> Result:
    if dice.random() < 0.2:
        return settled_error("tool_failed", _text(dice), "done")
    return Result(_text(dice), is_error=dice.random() < 0.1)


def _text(dice: random.Random) -> str:
    return dice.choice(("", " \n", "found", "日本語 ✓", "\ud83d", "\0", '{"error": {}}', "x" * 500, str(dice.random())))
