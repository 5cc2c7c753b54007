"""Whether an id that Redis does not know may be one that it has forgotten: emptied, and not yet filled again.

Workers say when Redis holds what the database knows. Before that an unknown id is asked for, a few seconds long;
after that it is unknown at once.
"""

from dataclasses import dataclass
from typing import Final

from roundelay import asks
from roundelay.hub import Clock
from roundelay.looks import Look
from roundelay.ops import Bell, Hear, Program, ask
from roundelay.patience import not_found

FORGOTTEN_SECONDS: Final = 10.0
"""How long workers that listen have to bring a message back."""
NOBODY_SECONDS: Final = 0.7
"""How long to wait for a worker that listens: after a restart of Redis they are back within half a second."""
SOON: Final = 0.2


@dataclass(slots=True)
class Doubt:
    """The doubt about one id; it begins with the first look that does not know it."""

    prefix: str
    message_id: str
    clock: Clock
    _since: float | None = None

    def lasts(self, look: Look) -> Program[bool]:
        """Say whether to look again; the workers have been asked for the message then."""
        if look.is_filled:
            return False
        now = self.clock()
        self._since = now if self._since is None else self._since
        listening = yield from ask(asks.restore(self.prefix, self.message_id))
        return now - self._since < (FORGOTTEN_SECONDS if listening else NOBODY_SECONDS)


def known_look(prefix: str, message_id: str, clock: Clock, bell: Bell) -> Program[Look]:
    """Look until the message is known; raise MessageNotFound when no doubt is left that it is not."""
    doubt = Doubt(prefix, message_id, clock)
    while not (look := (yield from ask(asks.look(prefix, message_id)))).known:
        if not (yield from doubt.lasts(look)):
            raise not_found()
        yield Hear(bell, SOON)
    return look
