"""What happened. Events are delivered at least once and in any order; ``step`` ignores what no longer fits."""

from dataclasses import dataclass
from typing import Literal

from roundelay_worker.loop.history import Result, Turn
from roundelay_worker.loop.state import CallPlan, Failure, Limits, ToolWords


@dataclass(frozen=True, slots=True)
class Started:
    """The message begins, under settings that hold to its end."""

    now: float
    limits: Limits
    language: str
    message_timeout: float
    closing_reserve: float


@dataclass(frozen=True, slots=True)
class AttemptBegan:
    """A worker owns the message and is about to send attempt ``attempt`` (from 1, counted by the store).

    ``estimate`` is the size of the request in input tokens, for the token limit.
    """

    round: int
    attempt: int
    estimate: int
    now: float


@dataclass(frozen=True, slots=True)
class TurnArrived:
    """A whole reply came; ``plans`` has one entry for each of its calls."""

    round: int
    attempt: int
    turn: Turn
    plans: tuple[CallPlan, ...]
    now: float
    tools: tuple[ToolWords, ...] = ()
    """The called tools that are known, in a person's words."""
    model: str = ""
    """The model that spoke."""


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """An attempt brought no usable reply. ``jitter`` is a random number from 0 up to 1.

    ``sent`` is False where the request never left, because it was larger than a request may be.
    """

    round: int
    attempt: int
    failure: Failure
    now: float
    jitter: float
    sent: bool = True


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call is about to run."""

    round: int
    position: int
    now: float


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call came to its result, after ``seconds``."""

    round: int
    position: int
    result: Result
    now: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CallVerified:
    """What the tool itself says of a call in doubt.

    ``not_done`` allows another run, and only if ``executor_dead``: one that merely lost its lease may be
    about to act.
    """

    round: int
    position: int
    verdict: Literal["done", "not_done", "unknown"]
    executor_dead: bool
    now: float
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class OwnerLost:
    """Whoever ran this message is gone; what it had begun has an unknown fate."""

    now: float


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The clock was looked at."""

    now: float


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The user does not want the answer any more."""

    now: float


@dataclass(frozen=True, slots=True)
class Condemned:
    """The message cannot go on: it could not start, or its worker was lost too often."""

    failure: Failure
    now: float


Event = (
    Started
    | AttemptBegan
    | TurnArrived
    | TurnFailed
    | CallStarted
    | CallFinished
    | CallVerified
    | OwnerLost
    | TimePassed
    | CancelAsked
    | Condemned
)
