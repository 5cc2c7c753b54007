"""Every verb of the client as a program: what the sync and the async client have in common, which is nearly all."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roundelay import asks
from roundelay.composing import compose
from roundelay.feeds import Board
from roundelay.following import Follow
from roundelay.hub import Clock
from roundelay.ops import Bell, Program
from roundelay.patience import Patience
from roundelay.settings import Settings
from roundelay.submitting import Accepted, cancelling, looking, nudging, submitting
from roundelay.tickets import Desk
from roundelay.updates import Answer, MessageState
from roundelay.waiting import Wait


@dataclass(frozen=True, slots=True)
class Verbs:
    """The programs of one client; each is run by a shell."""

    settings: Settings
    clock: Clock = time.monotonic

    def submit(self, text: str, options: Mapping[str, Any]) -> Program[Accepted]:
        """Check at once, then store and send."""
        parcel = compose(text, options, max_message_bytes=self.settings.max_message_bytes)
        return submitting(self.settings.prefix, parcel, keep=self._keep, clock=self.clock)

    def nudge(self, message_id: str) -> Program[Accepted]:
        """Hurry a message of the web app's outbox."""
        return nudging(self.settings.prefix, message_id, keep=self._keep)

    def cancel(self, message_id: str, bell: Bell) -> Program[bool]:
        """Ask for a cancellation."""
        return cancelling(self.settings.prefix, message_id, self.clock, bell)

    def state(self, message_id: str, bell: Bell) -> Program[MessageState]:
        """Look."""
        return looking(self.settings.prefix, message_id, self.clock, bell)

    def wait(self, message_id: str, timeout: float | None, desk: Desk, bell: Bell) -> Program[Answer]:
        """Wait for the answer."""
        return Wait(self._patience(message_id, timeout), desk, bell).run()

    def follow(self, message_id: str, after: int, timeout: float | None, board: Board, bell: Bell) -> Program[None]:
        """Follow the updates."""
        if not isinstance(after, int) or after < 0:
            raise ValueError("after is the seq of the last update seen, a whole number, 0 for all")
        return Follow(self._patience(message_id, timeout), after, board, bell).run()

    def _patience(self, message_id: str, timeout: float | None) -> Patience:
        return Patience(self.settings.prefix, message_id, timeout, self.clock)

    @property
    def _keep(self) -> int:
        return max(asks.KEEP_SECONDS, self.settings.answer_ttl)
