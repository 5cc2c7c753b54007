"""The programs of ``submit``, ``nudge``, ``cancel`` and ``state``."""

from dataclasses import dataclass
from typing import Final

from roundelay._core import redis_commands
from roundelay._core.deadline import not_found
from roundelay._core.forgotten import find_message
from roundelay._core.operations import Program, SendTask, Signal, execute
from roundelay._core.shared_reader import Clock
from roundelay._core.validation import ValidatedSubmission
from roundelay.errors import IdempotencyConflict
from roundelay.updates import MessageState

SUBMIT_SECONDS: Final = 4.5
"""Within this time a submit has answered or failed."""

LEAST_TO_SEND: Final = 0.5


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a handle needs to know of a stored message."""

    message_id: str
    conversation_id: str | None


def submitting(prefix: str, validated: ValidatedSubmission, *, keep: int, clock: Clock) -> Program[Receipt]:
    """Store the message, send its task, and say under which ids it goes."""
    started_at = clock()
    command = redis_commands.submit(
        prefix, validated.submission, scope=validated.scope, digest=validated.digest, keep=keep
    )
    reply = yield from execute(command)
    if reply.outcome == "conflict":
        raise IdempotencyConflict("this idempotency_key was used before with another text or other options")
    if reply.outcome == "stored":
        yield SendTask(reply.message_id, max(LEAST_TO_SEND, started_at + SUBMIT_SECONDS - clock()))
    return Receipt(reply.message_id, reply.conversation_id or None)


def nudging(prefix: str, message_id: str, *, keep: int) -> Program[Receipt]:
    """Make a message of the web app's outbox known, and send its task early."""
    yield from execute(redis_commands.nudge(prefix, message_id, keep=keep))
    yield SendTask(message_id, SUBMIT_SECONDS)
    return Receipt(message_id, None)


def cancelling(prefix: str, message_id: str, clock: Clock, signal: Signal) -> Program[bool]:
    """Ask for a cancellation; False if the message had ended."""
    outcome = yield from execute(redis_commands.cancel(prefix, message_id))
    if outcome is None:
        yield from find_message(prefix, message_id, clock, signal)
        outcome = yield from execute(redis_commands.cancel(prefix, message_id))
    if outcome is None:
        raise not_found()
    return outcome


def looking(prefix: str, message_id: str, clock: Clock, signal: Signal) -> Program[MessageState]:
    """Return what is known of the message."""
    look = yield from find_message(prefix, message_id, clock, signal)
    if look.state is None:
        raise not_found()
    return look.state
