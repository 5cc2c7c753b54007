"""Every method of the client as a program, written once for the sync and the async client."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from roundelay._core import redis_commands
from roundelay._core.deadline import Deadline, find_message, not_found
from roundelay._core.follow import Follow, StreamCursors
from roundelay._core.operations import Program, SendTask, Signal, execute
from roundelay._core.shared_reader import Clock
from roundelay._core.validation import ValidatedSubmission, validate
from roundelay._core.wait import Subscriptions, Wait
from roundelay.errors import IdempotencyConflict
from roundelay.names import ID_PATTERN
from roundelay.settings import Settings
from roundelay.updates import Answer, MessageState

SUBMIT_SECONDS: Final = 4.5
"""Within this time a submit has answered or failed."""

LEAST_TO_SEND: Final = 0.5

IMPORT_SECONDS: Final = 3.5
"""Seconds for the imports of a process's first call; on a cold disk they may take longer than the call itself."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a handle needs to know of a stored message."""

    message_id: str
    conversation_id: str | None


def submitting(
    prefix: str, validated: ValidatedSubmission, *, keep: int, clock: Clock, started_at: float
) -> Program[Receipt]:
    """Store the message, send its task, and say under which ids it goes."""
    command = redis_commands.submit(
        prefix, validated.submission, scope=validated.scope, digest=validated.digest, keep=keep
    )
    limit = min(command.limit, max(LEAST_TO_SEND, started_at + SUBMIT_SECONDS - clock()))
    reply = yield from execute(replace(command, limit=limit))
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


def check_id(message_id: str) -> None:
    """Raise MessageNotFound for what can be no id: nothing has it, and not every text can be sent to Redis."""
    if not isinstance(message_id, str) or re.fullmatch(ID_PATTERN, message_id) is None:
        raise not_found()


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one client; a runner runs each."""

    settings: Settings
    clock: Clock = time.monotonic

    def submit(self, text: str, options: Mapping[str, Any], *, started_at: float) -> Program[Receipt]:
        """Check at once, then store and send, all within some seconds from ``started_at``."""
        validated = validate(text, options, max_message_bytes=self.settings.max_message_bytes)
        return submitting(self.settings.prefix, validated, keep=self._keep, clock=self.clock, started_at=started_at)

    def nudge(self, message_id: str) -> Program[Receipt]:
        """Hurry a message of the web app's outbox."""
        check_id(message_id)
        return nudging(self.settings.prefix, message_id, keep=self._keep)

    def cancel(self, message_id: str, signal: Signal) -> Program[bool]:
        """Ask for a cancellation."""
        check_id(message_id)
        return cancelling(self.settings.prefix, message_id, self.clock, signal)

    def state(self, message_id: str, signal: Signal) -> Program[MessageState]:
        """Look."""
        check_id(message_id)
        return looking(self.settings.prefix, message_id, self.clock, signal)

    def wait(
        self, message_id: str, timeout: float | None, subscriptions: Subscriptions, signal: Signal
    ) -> Program[Answer]:
        """Wait for the answer."""
        check_id(message_id)
        return Wait(self._deadline(message_id, timeout), subscriptions, signal).run()

    def follow(
        self, message_id: str, after: int, timeout: float | None, cursors: StreamCursors, signal: Signal
    ) -> Program[None]:
        """Follow the updates."""
        check_id(message_id)
        if not isinstance(after, int) or after < 0:
            raise ValueError("after is the seq of the last update seen, a whole number, 0 for all")
        return Follow(self._deadline(message_id, timeout), after, cursors, signal).run()

    def _deadline(self, message_id: str, timeout: float | None) -> Deadline:
        return Deadline(self.settings.prefix, message_id, timeout, self.clock)

    @property
    def _keep(self) -> int:
        return max(redis_commands.KEEP_SECONDS, self.settings.answer_ttl)
