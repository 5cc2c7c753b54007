"""What comes out of Roundelay: answers, updates, and the state of a message."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Self, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

from roundelay.names import SoftStop, Status, UpdateKind


class _Wire(BaseModel):
    """A frozen value read from JSON; unknown fields are ignored, so that old readers outlive new writers."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class Usage(_Wire):
    """What a message cost.

    ``input_tokens`` includes cached tokens and cache writes, ``output_tokens`` includes reasoning.
    ``model_calls`` counts requests sent, ``tool_calls`` calls begun, ``calls_without_usage`` the
    requests whose cost the provider did not tell.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    calls_without_usage: int = 0


class CallNote(_Wire):
    """A tool request named in an answer: its tool, and the arguments as the model wrote them, unless private.

    ``title`` is what a person calls the tool. ``ok`` is False for a call that brought an error. ``at`` is None for one
    that never began; ``seconds`` is how long it took.
    """

    name: str
    title: str = ""
    effect: str = "write"
    ok: bool = False
    arguments: Any = None
    at: datetime | None = None
    seconds: float | None = None


class ErrorNote(_Wire):
    """Why a message failed or was refused: a stable code, and a sentence that says what to mend.

    ``retryable``: the same message may go better later, with nothing changed; ``retry_after`` is the wait in seconds
    that a server asked for. ``for_`` (``for`` in JSON) says whom the sentence helps: the ``user``, or the ``operator``.
    """

    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None
    for_: str = Field(default="user", validation_alias="for", serialization_alias="for")


class Answer(_Wire):
    """The one final record of a message. ``text`` is never empty, whatever the status.

    ``rounds`` counts the rounds of tools that ran; turns are more, since one that answers makes none. ``done``,
    ``undone`` and ``uncertain`` list the calls that ran, that did not, and writes of which nobody knows. ``models`` are
    those that spoke. ``can_continue``: "go on" in the same conversation continues from what was done.
    """

    v: int = 1
    message_id: str
    conversation_id: str
    user_id: str = ""
    status: Status
    text: str
    rounds: int = 0
    done: tuple[CallNote, ...] = ()
    undone: tuple[CallNote, ...] = ()
    uncertain: tuple[CallNote, ...] = ()
    usage: Usage = Usage()
    error: ErrorNote | None = None
    metadata: Any = None
    language: str = ""
    models: tuple[str, ...] = ()
    can_continue: bool = False
    accepted_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime


class Update(_Wire):
    """A progress note: what all kinds have in common. Each kind is a model of its own, see ``KnownUpdate``.

    ``seq`` numbers the durable ones 1, 2, 3 … without a hole; deltas, resets and progress have none. ``turn`` counts
    the model's turns from 1, ``attempt`` the requests for a turn. ``round`` is set where a round of tools is told of,
    so its last one is ``Answer.rounds``: a turn that answers, or closes, makes no round.

    ``Update(kind=…)``, ``model_validate`` and ``model_validate_json`` return the model of that kind, or a bare
    ``Update`` where the kind is not known here.
    """

    v: int = 1
    kind: str
    at: datetime
    message_id: str
    seq: int | None = None
    turn: int | None = None
    round: int | None = None
    attempt: int | None = None

    def __new__(cls, *_: object, **fields: object) -> Self:
        """Return an instance of the kind's own model; ``__init__`` is then that model's."""
        model = _model_of(fields.get("kind")) if cls is Update else None
        return super().__new__(cls) if model is None else cast("Self", super().__new__(model))

    @model_validator(mode="wrap")
    @classmethod
    def _by_kind(cls, value: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        model = _model_of(value.get("kind")) if cls is Update and isinstance(value, dict) else None
        return read(value) if model is None else cast("Self", model.model_validate(value))

    def to_json(self) -> str:
        """Return the update as it goes to readers: without the fields that do not apply."""
        return self.model_dump_json(exclude_none=True)


class Accepted(Update):
    """A worker has the message in its database. ``after``: an earlier one of the conversation goes first."""

    kind: Literal["accepted"] = "accepted"
    after: str | None = None


class Started(Update):
    """The message is being worked on; its time runs from here."""

    kind: Literal["started"] = "started"


class TurnStarted(Update):
    """The model is asked for a turn. ``closing`` is the soft stop that a closing turn closes."""

    kind: Literal["turn_started"] = "turn_started"
    turn: int
    closing: SoftStop | None = None


class TextDelta(Update):
    """A piece of the turn's text; ``offset`` is where it begins there, in characters."""

    kind: Literal["text_delta"] = "text_delta"
    turn: int
    text: str
    offset: int


class TextReset(Update):
    """The text of this turn begins anew: forget what was shown of it."""

    kind: Literal["text_reset"] = "text_reset"
    turn: int


class ToolStarted(Update):
    """A call has begun; ``call`` is its position in its turn, from 0."""

    kind: Literal["tool_started"] = "tool_started"
    turn: int
    tool: str
    call: int


class ToolFinished(Update):
    """A call has its result: ``ok`` or an error, after ``seconds`` where that is known."""

    kind: Literal["tool_finished"] = "tool_finished"
    turn: int
    tool: str
    call: int
    ok: bool
    seconds: float | None = None


class ToolProgress(Update):
    """A tool's own word on how far its call is."""

    kind: Literal["tool_progress"] = "tool_progress"
    turn: int
    tool: str
    call: int
    text: str


class Retrying(Update):
    """The turn is asked for again in ``delay`` seconds, for the reason ``code`` (see the error codes)."""

    kind: Literal["retrying"] = "retrying"
    turn: int
    code: str
    delay: float = 0.0


class TurnEnded(Update):
    """A turn is over, with its calls if it had any; ``usage`` is what the message has cost so far."""

    kind: Literal["turn_ended"] = "turn_ended"
    turn: int
    usage: Usage = Usage()


class Gap(Update):
    """Updates are lost for good; ``missing`` are the first and last lost ``seq``."""

    kind: Literal["gap"] = "gap"
    missing: tuple[int, int]


class Ended(Update):
    """The message has its answer; nothing follows."""

    kind: Literal["ended"] = "ended"
    answer: Answer


KnownUpdate = (
    Accepted
    | Started
    | TurnStarted
    | TextDelta
    | TextReset
    | ToolStarted
    | ToolFinished
    | ToolProgress
    | Retrying
    | TurnEnded
    | Gap
    | Ended
)
"""Every kind of update, for ``match`` and ``isinstance``."""

UPDATE_MODELS: Final[Mapping[UpdateKind, type[Update]]] = {
    model.model_fields["kind"].default: model for model in get_args(KnownUpdate)
}
"""The model of each kind."""


def _model_of(kind: object) -> type[Update] | None:
    return UPDATE_MODELS.get(cast("UpdateKind", kind)) if isinstance(kind, str) else None


class MessageState(_Wire):
    """What is known of a message now.

    ``status`` is ``queued``, ``waiting`` (for the message ``after``), ``running``, ``retrying`` or the final status.
    ``worker`` is ``lost`` while its worker has gone silent and nobody has taken over yet. ``turn`` is the number of
    the turn that is asked for or whose calls run, or was the last one, as in ``Update``: after N rounds of tools it
    is N + 1, and the closing turn counts.
    """

    message_id: str
    conversation_id: str
    user_id: str = ""
    status: str
    submitted_at: datetime | None = None
    turn: int | None = None
    seq: int = 0
    after: str | None = None
    worker: str | None = None
