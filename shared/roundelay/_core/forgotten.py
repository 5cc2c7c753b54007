"""Whether an id that Redis does not know may be one that it has forgotten: emptied, and not yet filled again.

Workers say when Redis holds what the database knows. Before that an unknown id is asked for, a few seconds long;
after that it is unknown at once.
"""

from dataclasses import dataclass
from typing import Final

from roundelay._core import redis_commands
from roundelay._core.deadline import not_found
from roundelay._core.operations import Program, Signal, WaitFor, execute
from roundelay._core.shared_reader import Clock
from roundelay._core.snapshot import Snapshot

FORGOTTEN_SECONDS: Final = 10.0
"""How long workers that listen have to bring a message back."""
NOBODY_SECONDS: Final = 0.7
"""How long to wait for a worker that listens: after a restart of Redis they are back within half a second."""
SOON: Final = 0.2


@dataclass(slots=True)
class ForgottenCheck:
    """The doubt about one id; it begins with the first look that does not know it."""

    prefix: str
    message_id: str
    clock: Clock
    _since: float | None = None

    def lasts(self, look: Snapshot) -> Program[bool]:
        """Say whether to look again; the workers have been asked for the message then."""
        if look.is_filled:
            return False
        now = self.clock()
        self._since = now if self._since is None else self._since
        listening = yield from execute(redis_commands.restore(self.prefix, self.message_id))
        return now - self._since < (FORGOTTEN_SECONDS if listening else NOBODY_SECONDS)


def find_message(prefix: str, message_id: str, clock: Clock, signal: Signal) -> Program[Snapshot]:
    """Look until the message is known; raise MessageNotFound when no doubt is left that it is not."""
    forgotten = ForgottenCheck(prefix, message_id, clock)
    while not (look := (yield from execute(redis_commands.look(prefix, message_id)))).known:
        if not (yield from forgotten.lasts(look)):
            raise not_found()
        yield WaitFor(signal, SOON)
    return look
