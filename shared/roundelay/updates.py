"""What comes out of Roundelay: answers, updates, and the state of a message."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from roundelay.names import Status


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
    """A tool request named in an answer: its tool and the arguments as the model wrote them."""

    name: str
    arguments: Any = None


class ErrorNote(_Wire):
    """Why a message failed or was refused: a stable code, and a sentence that says what to mend."""

    code: str
    message: str


class Answer(_Wire):
    """The one final record of a message. ``text`` is never empty, whatever the status.

    ``rounds`` counts the rounds of tools that ran; the turns of ``Update.round`` and ``MessageState.round`` are more.
    """

    v: int = 1
    message_id: str
    conversation_id: str
    user_id: str = ""
    status: Status
    text: str
    rounds: int = 0
    undone: tuple[CallNote, ...] = ()
    uncertain: tuple[CallNote, ...] = ()
    usage: Usage = Usage()
    error: ErrorNote | None = None
    metadata: Any = None
    started_at: datetime | None = None
    finished_at: datetime


class Update(_Wire):
    """A progress note. Durable ones carry ``seq`` 1, 2, 3 … without a hole; deltas and progress do not.

    Which of the optional fields are set depends on ``kind``: ``text`` for ``text_delta`` and
    ``tool_progress``; ``tool`` and ``call`` (position in its round, from 0) for ``tool_*``; ``ok`` and
    ``seconds`` for ``tool_finished``; ``code`` and ``delay`` (seconds) for ``retrying``; ``usage`` for
    ``round_ended``; ``after`` for ``accepted`` when an earlier message of the conversation goes first;
    ``missing`` (first and last lost ``seq``) for ``gap``; ``answer`` for ``ended``. A ``round_started`` with a
    ``code`` begins the closing turn of that soft stop. ``round`` is the number of the turn, from 1.
    """

    v: int = 1
    kind: str
    at: datetime
    message_id: str
    seq: int | None = None
    round: int | None = None
    attempt: int | None = None
    text: str | None = None
    tool: str | None = None
    call: int | None = None
    ok: bool | None = None
    seconds: float | None = None
    code: str | None = None
    delay: float | None = None
    after: str | None = None
    missing: tuple[int, int] | None = None
    usage: Usage | None = None
    answer: Answer | None = None


class MessageState(_Wire):
    """What is known of a message now.

    ``status`` is ``queued``, ``waiting`` (for the message ``after``), ``running``, ``retrying`` or the final status.
    ``worker`` is ``lost`` while its worker has gone silent and nobody has taken over yet. ``round`` is the number of
    the turn that is asked for or whose calls run, or was the last one, as in ``Update``: after N rounds of tools it
    is N + 1, so it is not ``Answer.rounds``, and the closing turn counts.
    """

    message_id: str
    conversation_id: str
    user_id: str = ""
    status: str
    submitted_at: datetime | None = None
    round: int | None = None
    seq: int = 0
    after: str | None = None
    worker: str | None = None
