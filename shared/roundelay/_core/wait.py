"""The program of ``wait``: subscribe first, then look at the stored answer, then listen."""

from typing import Final

from roundelay import names
from roundelay._core import redis_commands
from roundelay._core.answer_reader import Subscription, Subscriptions
from roundelay._core.deadline import Deadline, not_found
from roundelay._core.forgotten import ForgottenCheck
from roundelay._core.operations import Program, Signal, WaitFor, WakeReader, execute
from roundelay._core.shared_reader import pauses
from roundelay._core.snapshot import Snapshot
from roundelay.errors import Unreachable
from roundelay.updates import Answer

SUBSCRIBED_WITHIN: Final = 2.0
"""Seconds to wait for the subscription before looking without it (a server may forbid SUBSCRIBE)."""

LOOK_EVERY: Final = 10.0
"""Seconds after which the stored answer is looked at anyway: no lost message is ever final."""

ASK_EVERY: Final = 0.5
"""Seconds between hints to the workers, who may be away themselves, that Redis has forgotten the message."""


class Wait:
    """One call of ``wait``."""

    def __init__(self, deadline: Deadline, subscriptions: Subscriptions, signal: Signal) -> None:
        self.deadline, self.subscriptions, self.signal = deadline, subscriptions, signal
        self.subscription = Subscription(names.answer_key(deadline.prefix, deadline.message_id), signal)
        self.was_known = self.is_forgotten = False
        self.forgotten = ForgottenCheck(deadline.prefix, deadline.message_id, deadline.clock)

    def run(self) -> Program[Answer]:
        """Return the answer, whatever its status."""
        self.subscriptions.watch(self.subscription)
        try:
            yield WakeReader(self.subscriptions)
            return (yield from self._until_answered())
        finally:
            self.subscriptions.leave(self.subscription)

    def _until_answered(self) -> Program[Answer]:
        wait, delay = SUBSCRIBED_WITHIN, pauses()
        while True:
            yield WaitFor(self.signal, self.deadline.left(wait))
            self.signal.clear()
            if self.subscription.answer is not None:
                return Answer.model_validate_json(self.subscription.answer)
            try:
                answer = yield from self._look()
            except Unreachable:
                wait = next(delay).seconds
                continue
            if answer is not None:
                return answer
            wait, delay = (ASK_EVERY if self.is_forgotten else LOOK_EVERY), pauses()
            yield WakeReader(self.subscriptions)

    def _look(self) -> Program[Answer | None]:
        look = yield from self.deadline.look()
        if look.answer is not None:
            return look.answer
        yield from self._note_unknown(look)
        if self.deadline.is_over:
            raise self.deadline.timed_out()
        return None

    def _note_unknown(self, look: Snapshot) -> Program[None]:
        self.was_known = self.was_known or look.known
        self.is_forgotten = self.was_known and not look.known
        if self.is_forgotten:  # Redis was emptied: the workers know the message, and publish it again
            yield from execute(redis_commands.restore(self.deadline.prefix, self.deadline.message_id))
        elif not look.known:
            if not (yield from self.forgotten.lasts(look)):
                raise not_found()
            self.is_forgotten = True
