"""What goes into the store and comes out of it; the vocabulary between the store and the shell.

All times are seconds since the epoch by the database's own clock.
"""

from dataclasses import dataclass, field
from typing import Literal

from roundelay.names import OnBusy
from roundelay_worker.loop.history import Entry
from roundelay_worker.loop.ledger import Recorded
from roundelay_worker.loop.state import State

Queue = Literal["messages", "rounds"]
"""Which Celery queue a ready message waits in: not begun, or going on."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An inbox record on its way into the database, earlier ones of its conversation first."""

    message_id: str
    user_id: str
    conversation_id: str
    submission: str
    submitted_at: float
    on_busy: OnBusy = "queue"
    queue_timeout: float | None = None
    cancelled: bool = False
    """A cancellation was asked for before the database knew the message: it never starts."""
    idempotency: str | None = None
    """The client's idempotency record, kept so that Redis can be given it again."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of an arrival; ``fresh`` is False if the database had it already.

    ``after`` is the message that it waits for, None if it is ready. ``verdict`` is ``busy`` for one that was
    to be rejected: it never starts and only has to be ended.
    """

    message_id: str
    fresh: bool
    accepted_at: float
    after: str | None = None
    verdict: str | None = None
    interrupts: tuple[str, ...] = ()
    """Unfinished messages of the conversation whose cancellation this arrival asked for."""
    first: bool = False
    """Nothing was accepted before it in its conversation."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A save holds only while the row is still as it was: this version, owner and attempt.

    ``owner`` and ``attempt`` None: whoever owns it (a forced end).
    """

    message_id: str
    version: int
    owner: str | None = None
    attempt: int | None = None


RefusedBecause = Literal[
    "missing", "ended", "owned", "stale", "parked", "cancelled", "condemned", "newer_version", "no_lease", "not_due"
]


@dataclass(frozen=True, slots=True)
class Claim:
    """The message is ours: the next model call may be made as attempt ``fence.attempt`` of its turn."""

    fence: Fence
    losses: int
    now: float
    saved_by: str | None = None
    """Who saved the current version last; a process that did so itself need not load."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The message is not ours to run, and why."""

    because: RefusedBecause


@dataclass(frozen=True, slots=True)
class Loaded:
    """A message as the database has it."""

    message_id: str
    user_id: str
    conversation_id: str
    submission: str
    submitted_at: float
    accepted_at: float
    version: int
    owner: str | None
    attempt: int
    dispatch: int
    losses: int
    state: State
    resolved: str | None = None
    verdict: str | None = None
    cancel_requested: bool = False
    answer: str | None = None
    interrupted_executor: str | None = None
    """The process that last began a call of this message, if calls are in doubt."""
    executor_dead: bool = False
    """That process is known to have ended (retired, or its host says so), not merely to have lost its lease."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The owner goes on with the message."""


@dataclass(frozen=True, slots=True)
class HandOn:
    """Anyone may go on at once; a task with the new dispatch number is about to be sent."""


@dataclass(frozen=True, slots=True)
class Postpone:
    """Anyone may go on from ``due_at``."""

    due_at: float


@dataclass(frozen=True, slots=True)
class End:
    """The message has ended; ``answer`` is the JSON of its one final record, the same bytes for ever."""

    status: str
    answer: str


Next = Keep | HandOn | Postpone | End


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A task to be sent: the message, its round, and the number that makes earlier tasks stale."""

    message_id: str
    round: int
    dispatch: int
    queue: Queue = "rounds"


@dataclass(frozen=True, slots=True)
class Save:
    """One transaction: the new state, what it added since ``before``, its updates, and who acts next.

    ``before`` is the state as last saved under ``fence``. ``updates`` are (seq, JSON) in order.
    ``under_lease`` makes the save fail unless the owner's lease is live: asked for before a write begins.
    ``published`` is the highest seq known to be published.
    """

    fence: Fence
    before: State
    state: State
    updates: tuple[tuple[int, str], ...]
    next: Next
    under_lease: bool = False
    published: int | None = None
    process: str | None = None
    """The process that saves; remembered as ``saved_by``."""
    resolved: str | None = None
    """What the start resolved (model, system prompt, tools; JSON), for all rounds: the first save of it holds."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The save held. ``version`` is the new one; ``dispatches`` are the tasks to send now.

    After a ``HandOn`` that is the message itself; after an ``End``, the next of its conversation, if any.
    """

    version: int
    dispatches: tuple[Dispatch, ...] = ()
    attempt: int = 0
    """The row's attempt after the save; part of the next fence of an owner that keeps the message."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A message taken from a process whose lease ran out, ready again."""

    dispatch: Dispatch
    losses: int
    owner: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What readers are to be told of a message, and what the hash of its state is made of.

    ``updates`` are (seq, JSON) without a hole; ``first_seq`` is the number of the first, or of the next one
    if there is none. ``status`` is the word of ``MessageState``.
    """

    message_id: str
    user_id: str
    conversation_id: str
    submitted_at: float
    status: str
    round: int
    seq: int
    updates: tuple[tuple[int, str], ...]
    first_seq: int
    answer: str | None
    after: str | None = None
    idempotency: str | None = None
    ended_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Unread:
    """A message whose state this version cannot read; all that is needed to end it without reading it."""

    message_id: str
    user_id: str
    conversation_id: str
    submission: str
    version: int
    head: str
    state_version: int
    round: int
    seq: int
    started_at: float | None
    deadline: float


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A submission that a web app left in a transaction of its own."""

    message_id: str
    submission: str
    created_at: float


@dataclass(frozen=True, slots=True)
class TimelineCall:
    """One call as it was: ``status`` is that of ``CallState``; ``effect`` None if it was saved with its result."""

    name: str
    arguments: str
    effect: str | None
    status: str
    outcome: str | None
    is_error: bool
    result: str | None
    started_at: float | None
    finished_at: float | None
    executor: str | None
    loose: bool
    late_result: str | None = None
    """What it brought after its result was given up."""


@dataclass(frozen=True, slots=True)
class TimelineTurn:
    """One turn as it was; ``input_tokens`` and ``output_tokens`` are None where the provider did not tell."""

    round: int
    created_at: float
    text: str
    finish: str
    input_tokens: int | None
    output_tokens: int | None
    note: str
    origin: str | None
    calls: tuple[TimelineCall, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that ``roundelay show`` prints of a message."""

    message_id: str
    user_id: str
    conversation_id: str
    position: int
    submission: str
    status: str
    submitted_at: float
    accepted_at: float
    started_at: float | None
    claimed_at: float | None
    progressed_at: float
    ended_at: float | None
    deadline: float
    owner: str | None
    attempt: int
    losses: int
    dispatch: int
    seq: int
    published: int
    verdict: str | None
    cancel_requested_at: float | None
    answer: str | None
    turns: tuple[TimelineTurn, ...]
    updates: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages stand where; ``running_without_worker`` is an alarm, ``ended`` is of the last hour."""

    ready: int = 0
    running: int = 0
    postponed: int = 0
    parked: int = 0
    running_without_worker: int = 0
    ended: int = 0
    processes: int = 0
    oldest_ready: float | None = field(default=None)
    """Age of the oldest ready message, in seconds."""


@dataclass(frozen=True, slots=True)
class Context:
    """What was said before a message, as far as there is room for it; and all calls of the job that it continues."""

    history: tuple[Entry, ...] = ()
    recorded: tuple[Recorded, ...] = ()
