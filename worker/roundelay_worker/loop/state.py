"""Everything that the loop knows of a message.

A state is ``Queued`` (not begun), ``Asking`` (a turn is wanted), ``Running`` (its calls are run) or
``Ended``. Its history grows by whole exchanges only, so every state's history is one that every provider
accepts. States are values: ``step`` makes new ones, nothing changes one.
"""

from dataclasses import dataclass, field
from typing import Literal

from roundelay.names import SoftStop, Status
from roundelay_worker.loop.history import Effect, Exchange, Result, Turn

STATE_VERSION = 1
"""Raised when an older worker could not go on from what is stored; it then leaves the row to newer ones."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one message, resolved once when it starts."""

    max_rounds: int = 10
    model_attempts: int = 4
    closing_attempts: int = 2
    discards: int = 2
    """Empty or malformed replies of one turn that are asked for again."""
    max_output_tokens: int = 8192
    may_double: bool = True
    """Whether a reply that was cut inside a call may get twice the room: not where somebody set the bound."""
    max_total_tokens: int | None = None
    parallel_reads: int = 4
    repeat_limit: int = 3
    max_retry_delay: float = 60.0
    """Seconds; a provider that wants a longer pause ends the message with ``quota``."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a message has cost so far; the fields are those of ``roundelay.Usage``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    calls_without_usage: int = 0

    @property
    def tokens(self) -> int:
        """What counts against ``max_total_tokens``."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request, or a message, failed: a stable code and a sentence safe to show.

    ``repair`` names a change to the request after which it may work at once; ``delay`` is the server's
    wish in seconds.
    """

    code: str
    message: str
    retryable: bool = False
    delay: float | None = None
    repair: str = ""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What the loop must know of a called tool; an unknown tool counts as a write."""

    effect: Effect = "write"
    idempotent: bool = False
    polling: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether a call that had begun may run again though nobody knows what became of it."""
        return self.effect == "read" or self.idempotent


@dataclass(frozen=True, slots=True)
class ToolWords:
    """What a person is told of a called tool: kept with the message, since the tool may be gone when it ends.

    ``private`` keeps what it was asked and what it brought from people and readers: all of it, or these parameters
    and the result.
    """

    name: str
    title: str
    effect: Effect = "write"
    private: bool | tuple[str, ...] = False

    @property
    def hidden(self) -> tuple[str, ...]:
        """The parameters that are nobody's business."""
        return self.private if isinstance(self.private, tuple | list) else ()


CallStatus = Literal["requested", "started", "in_doubt", "done"]
"""``in_doubt``: it had begun when its executor was lost. What may be repeated runs again; a write that may not is
verified or told, never run again blindly. Only a tool that says "not done" makes such a call ``requested`` anew."""


@dataclass(frozen=True, slots=True)
class CallState:
    """How far one call of the running turn is; ``result`` is set when ``done``."""

    plan: CallPlan
    status: CallStatus = "requested"
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """Accepted, not begun."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A turn is wanted; ``begun`` while attempt number ``attempt`` is under way.

    ``closing`` is the soft stop that this turn closes, None for an ordinary turn.
    """

    attempt: int = 0
    begun: bool = False
    failures: int = 0
    discards: int = 0
    doubled: bool = False
    due_at: float | None = None
    nudge: str = ""
    closing: SoftStop | None = None
    room: int | None = None
    """Output tokens left for a closing turn under ``max_total_tokens``; None: no such bound."""
    reserved: int = 0
    """Tokens that the attempt under way may cost at most; 0 without ``max_total_tokens``."""


@dataclass(frozen=True, slots=True)
class Running:
    """The calls of ``turn`` are run, one state each."""

    turn: Turn
    calls: tuple[CallState, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The one end of the message."""

    status: Status
    text: str
    finished_at: float
    failure: Failure | None = None


Stage = Queued | Asking | Running | Ended


@dataclass(frozen=True, slots=True)
class State:
    """A message between two events. Times are seconds since the epoch, by the database's clock."""

    stage: Stage = field(default_factory=Queued)
    limits: Limits = field(default_factory=Limits)
    language: str = "en"
    started_at: float | None = None
    soft_deadline: float = float("inf")
    """From here on only the closing turn may run."""
    deadline: float = float("inf")
    rounds: int = 0
    sequence: tuple[Exchange, ...] = ()
    tools: tuple[ToolWords, ...] = ()
    """The tools that were called so far, in a person's words."""
    models: tuple[str, ...] = ()
    """The models that spoke, in the order of their first word."""
    streak: int = 0
    """How many turns in a row, up to the last, had the same calls and brought the same results."""
    repairs: tuple[str, ...] = ()
    spent: Spent = field(default_factory=Spent)
    reserved: int = 0
    """Tokens reserved for requests whose cost nobody told; they count against ``max_total_tokens``."""
    seq: int = 0
    """Durable updates so far."""

    @property
    def round(self) -> int:
        """The number of the turn that is wanted or whose calls run, from 1."""
        return len(self.sequence) + 1
