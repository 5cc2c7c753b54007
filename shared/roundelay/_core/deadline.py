"""Deadlines of calls: how long a program waits, and how long it tolerates a Redis that is away.

Workers mark in Redis when it holds everything that the database knows. Until then an unknown id may have been
forgotten by a Redis that was emptied, so it is looked up again for some seconds, and is never called unknown.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from roundelay._core import redis_commands
from roundelay._core.operations import Program, Signal, WaitFor, execute
from roundelay._core.redis_commands import Snapshot
from roundelay._core.shared_reader import Clock
from roundelay.errors import AnswerTimeout, MessageNotFound, ServiceUnavailable, Unreachable
from roundelay.updates import MessageState

LIMIT_AWAY: Final = 60.0
"""Seconds without any contact with Redis after which a wait without timeout is given up."""

LEAST_LOOK: Final = 1.0
MOST_LOOK: Final = 4.0
"""Bounds in seconds of one look; the last one, when the caller's time is over, has the least."""


@dataclass(slots=True)
class Deadline:
    """The deadline of one call, and what was known last."""

    prefix: str
    message_id: str
    timeout: float | None
    clock: Clock
    state: MessageState | None = None
    is_filled: bool = False
    """Redis held what the database knows when it was looked at last."""
    _started_at: float = field(init=False)
    _contact_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._started_at = self._contact_at = self.clock()

    def left(self, most: float) -> float:
        """Return how long to wait now, at most ``most`` seconds."""
        if self.timeout is None:
            return most
        return max(0.0, min(most, self._started_at + self.timeout - self.clock()))

    @property
    def is_over(self) -> bool:
        """Whether the caller's timeout has passed."""
        return self.left(1.0) <= 0.0

    def look(self) -> Program[Snapshot]:
        """Look at the message; a failure that may pass raises ``Unreachable`` until it lasted too long."""
        try:
            command = replace(
                redis_commands.look(self.prefix, self.message_id), limit=max(LEAST_LOOK, self.left(MOST_LOOK))
            )
            look = yield from execute(command)
        except Unreachable as error:
            self.tolerate(error)
            raise
        self.note_contact()
        self.state, self.is_filled = look.state or self.state, look.is_filled
        return look

    def note_contact(self) -> None:
        """Redis answered."""
        self._contact_at = self.clock()

    def tolerate(self, error: Unreachable) -> None:
        """Raise what ends the call if Redis was away too long, or the caller's time is over."""
        if self.is_over and self.state is not None:
            raise self.timed_out() from error
        if self.is_over or self.clock() - self._contact_at > LIMIT_AWAY:
            raise ServiceUnavailable(str(error)) from error

    def timed_out(self) -> AnswerTimeout | MessageNotFound | ServiceUnavailable:
        """Return the error for a message that has not ended in time."""
        if self.state is None:
            return not_found(is_filled=self.is_filled)
        text = f"no answer within {self.timeout:g} s; the message is {self.state.status} and goes on"
        if self.state.worker == "lost":
            text += " as soon as a worker takes over: the one that ran it has gone silent"
        return AnswerTimeout(text, self.state)


def not_found(*, is_filled: bool = True) -> MessageNotFound | ServiceUnavailable:
    """Return the error for an id that Redis does not know; one that was emptied knows nothing of what it forgot."""
    if is_filled:
        return MessageNotFound("no such message here, or its records have expired")
    return ServiceUnavailable("Redis was emptied, or is new, and no worker has filled it yet: ask again later")


FORGOTTEN_SECONDS: Final = 10.0
"""How long workers that listen have to bring a message back."""
NOBODY_SECONDS: Final = 0.7
"""How long to wait for a worker that listens: after a restart of Redis they are back within half a second."""
SOON: Final = 0.2
RESTORE_SECONDS: Final = 3.0
"""Seconds that the workers have to publish an ended message again before what is missing of it is called lost."""


@dataclass(slots=True)
class ForgottenCheck:
    """Decides how long an unknown id is looked up again; the time starts with the first look that does not know it."""

    prefix: str
    message_id: str
    clock: Clock
    _since: float | None = None

    def lasts(self, look: Snapshot) -> Program[bool]:
        """Ask the workers to restore the message and return whether to look again."""
        if look.is_filled:
            return False
        now = self.clock()
        self._since = now if self._since is None else self._since
        listening = yield from execute(redis_commands.restore(self.prefix, self.message_id))
        return now - self._since < (FORGOTTEN_SECONDS if listening else NOBODY_SECONDS)


def find_message(prefix: str, message_id: str, clock: Clock, signal: Signal) -> Program[Snapshot]:
    """Look until the message is known; MessageNotFound if it is not, ServiceUnavailable if nobody can know."""
    forgotten = ForgottenCheck(prefix, message_id, clock)
    while not (look := (yield from execute(redis_commands.look(prefix, message_id)))).known:
        if not (yield from forgotten.lasts(look)):
            raise not_found(is_filled=look.is_filled)
        yield WaitFor(signal, SOON)
    return look
