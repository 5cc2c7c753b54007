"""The program of ``wait``: subscribe first, then look at the stored answer, then listen."""

from typing import Final

from roundelay import asks, names
from roundelay.doubt import Doubt
from roundelay.errors import Unreachable
from roundelay.hub import pauses
from roundelay.looks import Look
from roundelay.ops import Bell, Hear, Program, Rouse, ask
from roundelay.patience import Patience, not_found
from roundelay.tickets import Desk, Ticket
from roundelay.updates import Answer

SUBSCRIBED_WITHIN: Final = 2.0
"""Seconds to wait for the subscription before looking without it (a server may forbid SUBSCRIBE)."""

LOOK_EVERY: Final = 10.0
"""Seconds after which the stored answer is looked at anyway: no lost message is ever final."""

ASK_EVERY: Final = 0.5
"""Seconds between hints to the workers, who may be away themselves, that Redis has forgotten the message."""


class Wait:
    """One call of ``wait``."""

    def __init__(self, patience: Patience, desk: Desk, bell: Bell) -> None:
        self.patience, self.desk, self.bell = patience, desk, bell
        self.ticket = Ticket(names.answer_key(patience.prefix, patience.message_id), bell)
        self.was_known = self.is_forgotten = False
        self.doubt = Doubt(patience.prefix, patience.message_id, patience.clock)

    def run(self) -> Program[Answer]:
        """Return the answer, whatever its status."""
        self.desk.watch(self.ticket)
        try:
            yield Rouse(self.desk)
            return (yield from self._until_answered())
        finally:
            self.desk.leave(self.ticket)

    def _until_answered(self) -> Program[Answer]:
        wait, delay = SUBSCRIBED_WITHIN, pauses()
        while True:
            yield Hear(self.bell, self.patience.left(wait))
            self.bell.clear()
            if self.ticket.answer is not None:
                return Answer.model_validate_json(self.ticket.answer)
            try:
                answer = yield from self._look()
            except Unreachable:
                wait = next(delay).seconds
                continue
            if answer is not None:
                return answer
            wait, delay = (ASK_EVERY if self.is_forgotten else LOOK_EVERY), pauses()
            yield Rouse(self.desk)

    def _look(self) -> Program[Answer | None]:
        look = yield from self.patience.look()
        if look.answer is not None:
            return look.answer
        yield from self._note_unknown(look)
        if self.patience.is_over:
            raise self.patience.timed_out()
        return None

    def _note_unknown(self, look: Look) -> Program[None]:
        self.was_known = self.was_known or look.known
        self.is_forgotten = self.was_known and not look.known
        if self.is_forgotten:  # Redis was emptied: the workers know the message, and publish it again
            yield from ask(asks.restore(self.patience.prefix, self.patience.message_id))
        elif not look.known:
            if not (yield from self.doubt.lasts(look)):
                raise not_found()
            self.is_forgotten = True
