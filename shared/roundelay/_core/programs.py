"""Every verb of the client as a program: what the sync and the async client have in common, which is nearly all."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roundelay._core import redis_commands
from roundelay._core.answer_reader import Subscriptions
from roundelay._core.deadline import Deadline
from roundelay._core.follow import Follow
from roundelay._core.operations import Program, Signal
from roundelay._core.shared_reader import Clock
from roundelay._core.stream_reader import StreamCursors
from roundelay._core.submit import Receipt, cancelling, looking, nudging, submitting
from roundelay._core.validation import validate
from roundelay._core.wait import Wait
from roundelay.settings import Settings
from roundelay.updates import Answer, MessageState


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one client; each is run by a shell."""

    settings: Settings
    clock: Clock = time.monotonic

    def submit(self, text: str, options: Mapping[str, Any]) -> Program[Receipt]:
        """Check at once, then store and send."""
        validated = validate(text, options, max_message_bytes=self.settings.max_message_bytes)
        return submitting(self.settings.prefix, validated, keep=self._keep, clock=self.clock)

    def nudge(self, message_id: str) -> Program[Receipt]:
        """Hurry a message of the web app's outbox."""
        return nudging(self.settings.prefix, message_id, keep=self._keep)

    def cancel(self, message_id: str, signal: Signal) -> Program[bool]:
        """Ask for a cancellation."""
        return cancelling(self.settings.prefix, message_id, self.clock, signal)

    def state(self, message_id: str, signal: Signal) -> Program[MessageState]:
        """Look."""
        return looking(self.settings.prefix, message_id, self.clock, signal)

    def wait(
        self, message_id: str, timeout: float | None, subscriptions: Subscriptions, signal: Signal
    ) -> Program[Answer]:
        """Wait for the answer."""
        return Wait(self._deadline(message_id, timeout), subscriptions, signal).run()

    def follow(
        self, message_id: str, after: int, timeout: float | None, cursors: StreamCursors, signal: Signal
    ) -> Program[None]:
        """Follow the updates."""
        if not isinstance(after, int) or after < 0:
            raise ValueError("after is the seq of the last update seen, a whole number, 0 for all")
        return Follow(self._deadline(message_id, timeout), after, cursors, signal).run()

    def _deadline(self, message_id: str, timeout: float | None) -> Deadline:
        return Deadline(self.settings.prefix, message_id, timeout, self.clock)

    @property
    def _keep(self) -> int:
        return max(redis_commands.KEEP_SECONDS, self.settings.answer_ttl)
