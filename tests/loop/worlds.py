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
from roundelay_worker.loop.moves import Step
from roundelay_worker.loop.state import Asking, CallPlan, Ended, Failure, Limits, Running, Spent, State
from roundelay_worker.loop.step import step, todo

SOFT, DEADLINE = 100.0, 120.0
ESTIMATE = 50
TOKENS = 2_500

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
    (Turn(calls=(Call("safe", wire_id="1"), Call("safe", wire_id="1"))), (SAFE_WRITE, SAFE_WRITE)),
)
FAILURES = (
    Failure("rate_limited", "later", retryable=True),
    Failure("rate_limited", "much later", retryable=True, delay=5000.0),
    Failure("model_stalled", "silence", retryable=True),
    Failure("bad_request", "never"),
    Failure("bad_request", "repair", repair="drop_reasoning"),
    Failure("context_overflow", "shrink", repair="shrink"),
)
LATE_TURNS = (TURNS[0], TURNS[1], TURNS[2])
"""What may still arrive when the time is over."""

SMALL = Limits(
    max_rounds=1,
    model_attempts=2,
    closing_attempts=2,
    discards=1,
    max_output_tokens=1_000,
    parallel_reads=2,
    repeat_limit=2,
    max_retry_delay=60,
)


@dataclass(frozen=True)
class World:
    """The bounds of a search: limits, and how many of the turns and failures of the tables may come."""

    max_rounds: int
    tokens: bool = False
    turns: int = len(TURNS)
    failures: int = len(FAILURES)

    @property
    def name(self) -> str:
        return f"cap{self.max_rounds}{'-tokens' if self.tokens else ''}"


WORLDS = (
    World(0),
    World(0, tokens=True),
    World(1),
    World(1, tokens=True, turns=5, failures=3),
    World(5, turns=3, failures=0),
)


@dataclass(frozen=True)
class Explored:
    """One of each kind of state that can be reached, and every step that was made from them."""

    states: tuple[State, ...]
    moves: tuple[tuple[State, Event, Step], ...]


def begin(limits: Limits = SMALL) -> State:
    """Return a message that has just started."""
    return step(State(seq=1), started(limits)).state


def started(limits: Limits = SMALL) -> Started:
    return Started(0.0, limits, "en", DEADLINE, DEADLINE - SOFT)


@cache
def explore(world: World) -> Explored:
    """Try everything in every state that can be reached."""
    limits = replace(SMALL, max_rounds=world.max_rounds, max_total_tokens=TOKENS if world.tokens else None)
    first = replace(State(seq=1), limits=limits)
    seen = {kind_of(first): first}
    moves: list[tuple[State, Event, Step]] = []
    queue = [first]
    while queue:
        state = queue.pop()
        for event in events(state, world):
            made = step(state, event)
            moves.append((state, event, made))
            if made.state is state or (kind := kind_of(made.state)) in seen:
                continue
            seen[kind] = made.state
            if not isinstance(made.state.stage, Ended):  # it absorbs everything: that is law 1
                queue.append(made.state)
    return Explored(tuple(seen.values()), tuple(moves))


def kind_of(state: State) -> State:
    """Return the state without what only counts and never decides, so that equals are met once."""
    stage = state.stage
    match stage:
        case Asking():
            stage = replace(stage, attempt=min(stage.attempt, 1), due_at=None if stage.due_at is None else 2.0)
        case Ended():
            stage = replace(stage, finished_at=0.0)
        case _:
            pass
    limited = state.limits.max_total_tokens is not None and not isinstance(stage, Ended)
    spent = Spent(input_tokens=state.spent.tokens + state.reserved if limited else 0)
    return replace(state, stage=stage, seq=0, spent=spent, reserved=0, repairs=tuple(sorted(state.repairs)))


def events(state: State, world: World) -> Iterator[Event]:
    """Yield everything that may happen in a state: in time, late, and after the deadline."""
    turns, failures = TURNS[: world.turns], FAILURES[: world.failures]
    yield from fitting_events(state, 1.0, turns, failures)
    if isinstance(state.stage, Asking):
        yield from fitting_events(state, SOFT, LATE_TURNS, failures[:1])
        yield from fitting_events(state, DEADLINE, LATE_TURNS, failures[:1])
    for now in (1.0, SOFT, DEADLINE):
        yield from outside_events(now)


def outside_events(now: float) -> Iterator[Event]:
    """Yield what may happen at any time."""
    yield TimePassed(now)
    yield CancelAsked(now)
    yield OwnerLost(now)
    yield Condemned(Failure("worker_lost", "lost"), now)


def fitting_events(
    state: State, now: float, turns: tuple[tuple[Turn, tuple[CallPlan, ...]], ...], failures: tuple[Failure, ...]
) -> Iterator[Event]:
    """Yield what can happen next to a worker that does what ``todo`` says, by these turns and failures."""
    for effect in todo(state):
        match effect:
            case Start():
                yield started(state.limits)
            case AskModel(begun=False):
                yield AttemptBegan(effect.round, effect.attempt + 1, ESTIMATE, now)
                yield AttemptBegan(effect.round, effect.attempt + 2, ESTIMATE, now)
            case AskModel():
                yield AttemptBegan(effect.round, effect.attempt + 1, ESTIMATE, now)
                for turn, plans in turns:
                    yield TurnArrived(effect.round, effect.attempt, turn, plans, now)
                for failure in failures:
                    yield TurnFailed(effect.round, effect.attempt, failure, now, 0.5)
            case RunCall():
                yield CallStarted(effect.round, effect.position, now)
            case VerifyCall():
                yield from _verdicts(effect, now)
    if isinstance(state.stage, Running):
        yield from _results(state, state.stage, now)


def _verdicts(effect: VerifyCall, now: float) -> Iterator[Event]:
    for verdict in ("done", "not_done", "unknown"):
        for dead in (True, False):
            yield CallVerified(effect.round, effect.position, verdict, dead, now, Result("seen"))


def _results(state: State, running: Running, now: float) -> Iterator[Event]:
    for position, call in enumerate(running.calls):
        if call.status == "started":
            yield CallFinished(state.round, position, Result("found"), now, 0.1)
            if len(running.calls) == 1:
                yield CallFinished(state.round, position, Result('{"error": {}}', is_error=True), now, 0.1)


def run_out(state: State, choose: int = 0) -> State:
    """Let a message run to its end, each attempt answered by the turn number ``choose`` of the table."""
    for _ in range(500):
        if isinstance(state.stage, Ended):
            return state
        state = step(state, next_event(state, *TURNS[choose])).state
    raise AssertionError("the message never ended")


def next_event(state: State, turn: Turn, plans: tuple[CallPlan, ...]) -> Event:
    """Return what happens next to a message whose every call works and whose every turn is ``turn``."""
    match todo(state)[:1]:
        case (Start(),):
            return started(state.limits)
        case (AskModel() as wanted,) if not wanted.begun:
            return AttemptBegan(wanted.round, wanted.attempt + 1, ESTIMATE, 1.0)
        case (AskModel() as wanted,):
            return TurnArrived(wanted.round, wanted.attempt, turn, plans, 1.0)
        case (RunCall() as run,):
            return CallStarted(run.round, run.position, 1.0)
        case (VerifyCall() as verify,):
            return CallVerified(verify.round, verify.position, "unknown", False, 1.0)
        case _:
            return CallFinished(state.round, _under_way(state), Result("found"), 1.0)


def _under_way(state: State) -> int:
    assert isinstance(state.stage, Running)
    return next(i for i, call in enumerate(state.stage.calls) if call.status == "started")
