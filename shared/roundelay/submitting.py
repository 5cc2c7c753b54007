"""The programs of ``submit``, ``nudge``, ``cancel`` and ``state``."""

from dataclasses import dataclass
from typing import Final

from roundelay import asks
from roundelay.composing import Parcel
from roundelay.doubt import known_look
from roundelay.errors import IdempotencyConflict
from roundelay.hub import Clock
from roundelay.ops import Bell, Program, Send, ask
from roundelay.patience import not_found
from roundelay.updates import MessageState

SUBMIT_SECONDS: Final = 4.5
"""Within this time a submit has answered or failed."""

LEAST_TO_SEND: Final = 0.5


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a handle needs to know of a stored message."""

    message_id: str
    conversation_id: str | None


def submitting(prefix: str, parcel: Parcel, *, keep: int, clock: Clock) -> Program[Accepted]:
    """Store the message, send its task, and say under which ids it goes."""
    started_at = clock()
    question = asks.submit(prefix, parcel.submission, scope=parcel.scope, digest=parcel.digest, keep=keep)
    verdict = yield from ask(question)
    if verdict.outcome == "conflict":
        raise IdempotencyConflict("this idempotency_key was used before with another text or other options")
    if verdict.outcome == "stored":
        yield Send(verdict.message_id, max(LEAST_TO_SEND, started_at + SUBMIT_SECONDS - clock()))
    return Accepted(verdict.message_id, verdict.conversation_id or None)


def nudging(prefix: str, message_id: str, *, keep: int) -> Program[Accepted]:
    """Make a message of the web app's outbox known, and send its task early."""
    yield from ask(asks.nudge(prefix, message_id, keep=keep))
    yield Send(message_id, SUBMIT_SECONDS)
    return Accepted(message_id, None)


def cancelling(prefix: str, message_id: str, clock: Clock, bell: Bell) -> Program[bool]:
    """Ask for a cancellation; False if the message had ended."""
    outcome = yield from ask(asks.cancel(prefix, message_id))
    if outcome is None:
        yield from known_look(prefix, message_id, clock, bell)
        outcome = yield from ask(asks.cancel(prefix, message_id))
    if outcome is None:
        raise not_found()
    return outcome


def looking(prefix: str, message_id: str, clock: Clock, bell: Bell) -> Program[MessageState]:
    """Return what is known of the message."""
    look = yield from known_look(prefix, message_id, clock, bell)
    if look.state is None:
        raise not_found()
    return look.state
