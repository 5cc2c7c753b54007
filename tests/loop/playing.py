"""Plays a message by a script of replies, as a worker would, and writes down what was asked for and run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from worlds import POLL, READ, SAFE_WRITE, USED, WRITE

from roundelay_worker.loop.effects import AskModel, Effect, Note, RunCall, Start, VerifyCall
from roundelay_worker.loop.events import (
    AttemptBegan,
    CallFinished,
    CallStarted,
    CallVerified,
    Event,
    Started,
    TurnArrived,
    TurnFailed,
)
from roundelay_worker.loop.history import Call, Result, Turn
from roundelay_worker.loop.state import CallPlan, Ended, Failure, Limits, Running, State, ToolWords
from roundelay_worker.loop.step import step, todo

PLANS = {"look": READ, "put": WRITE, "safe": SAFE_WRITE, "poll": POLL}
TIMEOUT, RESERVE = 1_800.0, 60.0
SOFT, DEADLINE = TIMEOUT - RESERVE, TIMEOUT


def says(text: str) -> Turn:
    """Return a turn that is an answer."""
    return Turn(text, usage=USED)


def asks(*names: str, text: str = "", **changes: object) -> Turn:
    """Return a turn with a call for each name; ``name:value`` gives it an argument."""
    return replace(Turn(text, tuple(map(_call, names)), usage=USED), **changes)  # type: ignore[arg-type]


def _call(name: str) -> Call:
    name, _, value = name.partition(":")
    return Call(name, f'{{"at": "{value}"}}' if value else "{}")


def plan_of(call: Call) -> CallPlan:
    """Return what the loop is told of a tool; an unknown one counts as a write."""
    return PLANS.get(call.name, CallPlan())


@dataclass
class Play:
    """A message under way. ``tool`` gives the result of a call; ``requests`` and ``runs`` are what was done so far."""

    replies: Iterable[Turn | Failure]
    limits: Limits = field(default_factory=Limits)
    tool: Callable[[Call], Result] = lambda call: Result(f"found by {call.name}")
    verdict: tuple[str, bool, Result | None] = ("unknown", False, None)
    estimate: int = 50
    language: str = "en"
    now: float = 1.0
    state: State = field(default_factory=lambda: State(seq=1))
    requests: list[AskModel] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._replies = iter(self.replies)

    @property
    def ended(self) -> Ended:
        """The end, which must have come."""
        assert isinstance(self.state.stage, Ended)
        return self.state.stage

    @property
    def running(self) -> Running:
        """The stage, which must be that of calls."""
        assert isinstance(self.state.stage, Running)
        return self.state.stage

    @property
    def statuses(self) -> list[str]:
        """How far each call of the running turn is."""
        return [call.status for call in self.running.calls]

    @property
    def results(self) -> list[list[str]]:
        """The texts of all results, round by round."""
        return [[result.text for result in exchange.results] for exchange in self.state.sequence]

    def feed(self, event: Event) -> State:
        """Let something happen."""
        made = step(self.state, event)
        self.notes.extend(made.notes)
        self.state = made.state
        return made.state

    def run(self, until: Callable[[State], bool] = lambda state: isinstance(state.stage, Ended)) -> Ended | None:
        """Go on until ``until``, which is the end unless it is given; return the end if it came."""
        for _ in range(2_000):
            if until(self.state) or isinstance(self.state.stage, Ended):
                return self.state.stage if isinstance(self.state.stage, Ended) else None
            self.feed(self.next_event())
        raise AssertionError("the message never ended")

    def next_event(self) -> Event:
        """Return what happens next."""
        effects = todo(self.state)
        return self._after(effects[0]) if effects else self._finished()

    def _after(self, effect: Effect) -> Event:
        match effect:
            case Start():
                return Started(0.0, self.limits, self.language, TIMEOUT, RESERVE)
            case AskModel(begun=False):
                self.now = max(self.now, effect.due_at or 0.0)
                return AttemptBegan(effect.round, effect.attempt + 1, self.estimate, self.now)
            case AskModel():
                self.requests.append(effect)
                return self._reply(effect, next(self._replies))
            case RunCall():
                self.runs.append(self.running.turn.calls[effect.position].name)
                return CallStarted(effect.round, effect.position, self.now)
            case VerifyCall():
                verdict, dead, result = self.verdict
                return CallVerified(effect.round, effect.position, verdict, dead, self.now, result)  # type: ignore[arg-type]

    def _reply(self, wanted: AskModel, reply: Turn | Failure) -> Event:
        if isinstance(reply, Failure):
            return TurnFailed(wanted.round, wanted.attempt, reply, self.now, 0.0)
        plans = tuple(map(plan_of, reply.calls))
        words = tuple(
            ToolWords(call.name, call.name, plan.effect) for call, plan in zip(reply.calls, plans, strict=True)
        )
        return TurnArrived(wanted.round, wanted.attempt, reply, plans, self.now, words)

    def _finished(self) -> Event:
        position = next(i for i, call in enumerate(self.running.calls) if call.status == "started")
        return self.finish(position)

    def finish(self, position: int) -> CallFinished:
        """Return the event of a call that came to its result."""
        return CallFinished(self.state.round, position, self.tool(self.running.turn.calls[position]), self.now, 0.1)


def is_running(state: State) -> bool:
    """Say whether calls are run."""
    return isinstance(state.stage, Running)


def at_calls(*names: str, limits: Limits | None = None) -> Play:
    """Return a play whose first turn made these calls, none of which has begun."""
    play = Play([asks(*names), says("done")], limits or Limits())
    play.run(until=is_running)
    return play


def begin_all(play: Play) -> list[int]:
    """Begin whatever may begin; return the positions."""
    begun = []
    for effect in todo(play.state):
        assert isinstance(effect, RunCall)
        play.feed(CallStarted(effect.round, effect.position, 1.0))
        begun.append(effect.position)
    return begun
