"""Every state that a message can get into under small limits, found by trying every event in every state."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from roundelay_worker.loop.effects import AskModel, RunCall, Start, VerifyCall
from roundelay_worker.loop.events import (
    AttemptBegan,
    CallFinished,
    CallStarted,
    CallVerified,
    CancelAsked,
    Condemned,
    Event,
    OwnerLost,
    Started,
    TimePassed,
    TurnArrived,
    TurnFailed,
)
from roundelay_worker.loop.history import Call, Result, Turn, TurnUsage
from roundelay_worker.loop.state import Asking, CallPlan, Ended, Failure, Limits, Running, Spent, State
from roundelay_worker.loop.step import step, todo

SOFT, DEADLINE = 100.0, 120.0
TOKENS = 10_000

READ, WRITE, SAFE_WRITE, POLL = (
    CallPlan("read"),
    CallPlan("write"),
    CallPlan("write", idempotent=True),
    CallPlan("read", polling=True),
)
USED = TurnUsage(100, 20, 10, 5)
ONE_READ = Turn(calls=(Call("look", '{"at": 1}'),), usage=USED)

TURNS: tuple[tuple[Turn, tuple[CallPlan, ...]], ...] = (
    (Turn("the answer", usage=USED), ()),
    (Turn(" \n"), ()),
    (ONE_READ, (READ,)),
    (Turn("let me see", (Call("look"), Call("put"), Call("look")), usage=USED), (READ, WRITE, READ)),
    (Turn("half", (Call("put"),), "cut", usage=USED), (WRITE,)),
    (Turn("no", finish="refused", note="policy"), ()),
    (Turn("", finish="overflow"), ()),
    (Turn("<tool_call>", finish="malformed"), ()),
    (Turn("odd", finish="unknown"), ()),
    (Turn("", finish="paused"), ()),
)
FAILURES = (
    Failure("rate_limited", "later", retryable=True),
    Failure("rate_limited", "much later", retryable=True, delay=5000.0),
    Failure("bad_request", "never"),
    Failure("bad_request", "repair", repair="drop_reasoning"),
    Failure("context_overflow", "shrink", repair="shrink"),
)
SMALL = Limits(
    max_rounds=1, model_attempts=2, closing_attempts=2, discards=1, parallel_reads=2, repeat_limit=1, max_retry_delay=60
)


def begin(limits: Limits = SMALL) -> State:
    """Return a message that has just started."""
    return step(State(seq=1), started(limits)).state


def started(limits: Limits = SMALL) -> Started:
    return Started(0.0, limits, "en", DEADLINE, DEADLINE - SOFT)


def fitting_events(state: State, now: float, turns: int = len(TURNS), failures: int = len(FAILURES)) -> Iterator[Event]:
    """Yield what can happen next to a worker that does what ``todo`` says, by the first turns and failures."""
    for effect in todo(state):
        match effect:
            case Start():
                yield started(state.limits)
            case AskModel(begun=False):
                yield AttemptBegan(effect.round, effect.attempt + 1, 50, now)
            case AskModel():
                for turn, plans in TURNS[:turns]:
                    yield TurnArrived(effect.round, effect.attempt, turn, plans, now)
                for failure in FAILURES[:failures]:
                    yield TurnFailed(effect.round, effect.attempt, failure, now, 0.5)
            case RunCall():
                yield CallStarted(effect.round, effect.position, now)
            case VerifyCall():
                for verdict in ("done", "not_done", "unknown"):
                    for dead in (True, False):
                        yield CallVerified(effect.round, effect.position, verdict, dead, now, Result("seen"))
    if isinstance(state.stage, Running):
        for position, call in enumerate(state.stage.calls):
            if call.status == "started":
                yield CallFinished(state.round, position, Result("found"), now, 0.1)
                if len(state.stage.calls) == 1:
                    yield CallFinished(state.round, position, Result('{"error": {}}', is_error=True), now, 0.1)


def outside_events(now: float) -> Iterator[Event]:
    """Yield what may happen at any time."""
    yield TimePassed(now)
    yield CancelAsked(now)
    yield OwnerLost(now)
    yield Condemned(Failure("worker_lost", "lost"), now)


def events(state: State, turns: int = len(TURNS), failures: int = len(FAILURES)) -> Iterator[Event]:
    """Yield everything that may happen in a state: in time, late, and after the deadline."""
    yield from fitting_events(state, 1.0, turns, failures)
    if isinstance(state.stage, Asking):
        yield from fitting_events(state, SOFT, turns, min(failures, 1))
        yield from fitting_events(state, DEADLINE, turns, min(failures, 1))
    for now in (1.0, SOFT, DEADLINE):
        yield from outside_events(now)


def kind_of(state: State) -> State:
    """Return the state without what only counts and never decides, so that equals are met once."""
    stage = state.stage
    if isinstance(stage, Asking):
        stage = replace(stage, attempt=min(stage.attempt, 1), due_at=None if stage.due_at is None else 2.0)
    return replace(state, stage=stage, seq=0, spent=Spent())


@dataclass(frozen=True)
class World:
    """The bounds of a search: limits, and how many of the turns and failures of the tables may come."""

    max_rounds: int
    tokens: bool = False
    turns: int = len(TURNS)
    failures: int = len(FAILURES)


WORLDS = (World(0), World(0, tokens=True), World(1), World(1, tokens=True), World(5, turns=3, failures=0))


@cache
def every_state(world: World) -> tuple[State, ...]:
    """Return one of each kind of state that can be reached."""
    limits = replace(SMALL, max_rounds=world.max_rounds, max_total_tokens=TOKENS if world.tokens else None)
    first = replace(State(seq=1), limits=limits)
    seen = {kind_of(first): first}
    queue = [first]
    while queue:
        state = queue.pop()
        for event in events(state, world.turns, world.failures):
            made = step(state, event).state
            if made is not state and kind_of(made) not in seen:
                seen[kind_of(made)] = made
                queue.append(made)
    return tuple(seen.values())


def run_out(state: State, choose: int = 0) -> State:
    """Let a message run to its end, each attempt answered by the turn number ``choose`` of the table."""
    turn, plans = TURNS[choose]
    for _ in range(500):
        if isinstance(state.stage, Ended):
            return state
        effect = todo(state)[0] if todo(state) else None
        match effect:
            case Start():
                event: Event = started(state.limits)
            case AskModel(begun=False):
                event = AttemptBegan(effect.round, effect.attempt + 1, 50, 1.0)
            case AskModel():
                event = TurnArrived(effect.round, effect.attempt, turn, plans, 1.0)
            case RunCall():
                event = CallStarted(effect.round, effect.position, 1.0)
            case VerifyCall():
                event = CallVerified(effect.round, effect.position, "unknown", False, 1.0)
            case None:
                assert isinstance(state.stage, Running)
                position = next(i for i, c in enumerate(state.stage.calls) if c.status == "started")
                event = CallFinished(state.round, position, Result("found"), 1.0)
        state = step(state, event).state
    raise AssertionError("the message never ended")
