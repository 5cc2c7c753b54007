"""One look at all that Redis knows of a message, and what it means."""

import json
from dataclasses import dataclass
from typing import Any, get_args

from roundelay import names
from roundelay.updates import Answer, MessageState

FINAL = frozenset(get_args(names.Status))

StreamId = tuple[int, int]


def as_text(value: bytes | str) -> str:
    """Return a raw reply as text."""
    return value.decode() if isinstance(value, bytes) else value


def as_stream_id(value: bytes | str) -> StreamId:
    """Return ``b"12-3"`` as ``(12, 3)``."""
    seq, _, position = as_text(value).partition("-")
    return int(seq), int(position)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was found: each part may have expired, or not be there yet."""

    answer: Answer | None = None
    state: MessageState | None = None
    tail: StreamId | None = None
    tail_ends: bool = False
    """The last update in the stream is ``ended``."""
    is_filled: bool = True
    """Redis holds what the database knows: what it does not know is unknown."""

    @property
    def known(self) -> bool:
        """Whether Redis knows anything of this message."""
        return self.state is not None or self.tail is not None

    @property
    def ended(self) -> bool:
        """Whether the message has its answer."""
        return self.answer is not None or (self.state is not None and self.state.status in FINAL)


def read_snapshot(message_id: str, reply: Any) -> Snapshot:
    """Read the reply of the script ``LOOK``."""
    raw_answer, raw_state, record, last, lost, filled = reply
    answer = Answer.model_validate_json(raw_answer) if raw_answer else None
    fields = {as_text(k): as_text(v) for k, v in zip(raw_state[::2], raw_state[1::2], strict=True)}
    return Snapshot(
        answer=answer,
        state=_state(message_id, fields, answer, record, is_lost=bool(lost)),
        tail=as_stream_id(last[0]) if last else None,
        tail_ends=bool(last) and _kind(last[1]) == "ended",
        is_filled=bool(filled),
    )


def _kind(text: bytes) -> str:
    try:
        return str(json.loads(text).get("kind"))
    except (ValueError, AttributeError):
        return ""


def _state(
    message_id: str, fields: dict[str, str], answer: Answer | None, record: bytes | None, *, is_lost: bool
) -> MessageState | None:
    if not fields and answer is None and not record:
        return None
    known: dict[str, Any] = {k: v for k, v in fields.items() if v != ""}
    if not known and record:
        known = {k: v for k, v in json.loads(record).items() if k in {"conversation_id", "user_id"}}
    status = known.setdefault("status", "queued")
    known.setdefault("conversation_id", "")
    if answer is not None:
        known |= {"status": answer.status, "conversation_id": answer.conversation_id, "user_id": answer.user_id}
    elif is_lost and status not in FINAL:
        known["worker"] = "lost"
    return MessageState.model_validate(known | {"message_id": message_id})
