"""Every question that the client puts to Redis: its command, its keys, and how its reply is read."""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError

from roundelay import names
from roundelay._core import redis_scripts
from roundelay._core.operations import Command
from roundelay.messages import Submission
from roundelay.updates import Answer, Ended, MessageState

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
    answer = Answer.model_validate_json(raw_answer) if raw_answer else _answer_of(last)
    fields = {as_text(k): as_text(v) for k, v in zip(raw_state[::2], raw_state[1::2], strict=True)}
    return Snapshot(
        answer=answer,
        state=_state(message_id, fields, answer, record, is_lost=bool(lost)),
        tail=as_stream_id(last[0]) if last else None,
        tail_ends=bool(last) and _kind(last[1]) == "ended",
        is_filled=bool(filled),
    )


def _answer_of(last: Any) -> Answer | None:
    """Return the answer within the last update: its own key may be gone, evicted or deleted."""
    if not last or _kind(last[1]) != "ended":
        return None
    try:
        return Ended.model_validate_json(last[1]).answer
    except ValidationError:
        return None


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


KEEP_SECONDS: Final = 30 * 86_400
"""How long state and idempotency record of a message live that has not ended; the worker shortens it then."""

CANCELS_SECONDS: Final = 7 * 86_400
WAKE_SECONDS: Final = 60
PAGE: Final = 200

Entry = tuple[StreamId, bytes]


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """What the script said to a submission; the ids are those of the first one under its key."""

    outcome: Literal["stored", "known", "conflict"]
    message_id: str
    conversation_id: str


def submit(prefix: str, submission: Submission, *, scope: str, digest: str, keep: int) -> Command[SubmitReply]:
    """Store a submission; ``scope`` is the conversation as the caller named it ('' for a fresh one)."""
    message, conversation, user = submission.message_id, submission.conversation_id, submission.user_id
    keys = [
        names.state_key(prefix, message),
        names.record_key(prefix, message),
        names.waiting_key(prefix, user, conversation),
        names.inbox_key(prefix),
    ]
    if submission.idempotency_key is not None:
        keys.append(names.idempotency_key(prefix, user, scope, submission.idempotency_key))

    def read(reply: Any) -> SubmitReply:
        outcome, *first = (as_text(word) for word in reply)
        ids = first or [message, conversation]
        return SubmitReply(outcome, ids[0], ids[1])  # type: ignore[arg-type]

    words = (message, submission.model_dump_json(), conversation, user, keep, digest)
    return Command(words, read, redis_scripts.SUBMIT, tuple(keys))


def nudge(prefix: str, message_id: str, *, keep: int) -> Command[None]:
    """Make a message of the web app's outbox known to Redis."""
    return Command((keep,), _nothing, redis_scripts.NUDGE, (names.state_key(prefix, message_id),))


def cancel(prefix: str, message_id: str) -> Command[bool | None]:
    """Ask for a cancellation: True if asked for, False if it had ended, None if unknown."""
    keys = (
        names.answer_key(prefix, message_id),
        names.state_key(prefix, message_id),
        names.record_key(prefix, message_id),
        names.cancels_key(prefix),
    )
    words = (message_id, names.control_channel(prefix), CANCELS_SECONDS, *sorted(FINAL))
    return Command(words, {1: True, 0: False, -1: None}.__getitem__, redis_scripts.CANCEL, keys)


def look(prefix: str, message_id: str) -> Command[Snapshot]:
    """Look at everything Redis knows of a message."""
    keys = (
        names.answer_key(prefix, message_id),
        names.state_key(prefix, message_id),
        names.record_key(prefix, message_id),
        names.updates_key(prefix, message_id),
        names.filled_key(prefix),
    )
    return Command(
        (names.alive_key(prefix, ""), names.FILLED),
        lambda reply: read_snapshot(message_id, reply),
        redis_scripts.LOOK,
        keys,
    )


def page(stream: str, after: StreamId) -> Command[list[Entry]]:
    """Read the next updates of a stream, at most ``PAGE``."""
    words = ("XREAD", "COUNT", PAGE, "STREAMS", stream, f"{after[0]}-{after[1]}")
    return Command(words, lambda reply: read_streams(reply).get(stream, []))


def restore(prefix: str, message_id: str) -> Command[int]:
    """Ask the workers to rebuild a stream; the reply is how many listen."""
    return Command(("PUBLISH", names.control_channel(prefix), f"restore {message_id}"), int)


def wake_stream(stream: str) -> Command[None]:
    """Wake a reader that blocks on this stream."""
    return Command((WAKE_SECONDS,), _nothing, redis_scripts.WAKE, (stream,))


def wake_channel(channel: str) -> Command[None]:
    """Wake a reader that listens to this channel."""
    return Command(("PUBLISH", channel, "w"), _nothing)


def read_streams(reply: Any) -> dict[str, list[Entry]]:
    """Read the raw reply of XREAD: per stream its entries, each with the text of its first field."""
    return {
        as_text(stream): [(as_stream_id(entry_id), fields[1]) for entry_id, fields in entries]
        for stream, entries in reply or ()
    }


def _nothing(_reply: Any) -> None:
    return None
