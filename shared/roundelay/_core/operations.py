"""Operations that a program of the client yields to its runner: the seam between deciding and doing.

A *program* (``waiting``, ``following``, ``submitting`` …) is a generator that decides everything and does nothing: it
yields these values and is sent what came of them, or is thrown a ``RoundelayError``. The sync and the
async runner each perform them in a few lines, so every method is written once (the idea is h11's and sans-IO's).
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from roundelay._core.redis_scripts import Script
from roundelay.errors import RoundelayError, UnreadableRecord
from roundelay.updates import Update

T = TypeVar("T")
_UNREADABLE: Final = "what Redis holds of this message cannot be read: is a worker newer than this client?"
Word = str | int | float


class Signal(Protocol):
    """What ``threading.Event`` and ``asyncio.Event`` have in common."""

    def set(self) -> None:
        """Wake the waiter."""

    def clear(self) -> None:
        """Make the next wait block until ``set``."""


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """One Redis command, or one script with its keys; ``read`` turns the raw reply into what was asked for."""

    words: tuple[Word, ...]
    read: Callable[[Any], T]
    script: Script | None = None
    keys: tuple[str, ...] = ()
    limit: float = 4.0
    """Seconds for one question, connecting and name look-up included."""

    def result(self, reply: Any) -> T:
        """Return what the reply says; a reply of another shape raises ``UnreadableRecord``."""
        try:
            return self.read(reply)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # "from None": pydantic's errors hold what they could not read
            raise UnreadableRecord(f"{_UNREADABLE} ({type(error).__name__})") from None

    def command(self, *, by_text: bool = False) -> tuple[Word, ...]:
        """Return the command as sent; ``by_text`` for a server that does not know the script yet."""
        if self.script is None:
            return self.words
        name = ("EVAL", self.script.text) if by_text else ("EVALSHA", self.script.sha)
        return (*name, len(self.keys), *self.keys, *self.words)


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Wait until the signal is set, at most ``timeout`` seconds."""

    signal: Signal
    timeout: float


@dataclass(frozen=True, slots=True)
class WakeReader:
    """Wake this reader so that it notices a change at once; start it if it is not running."""

    reader: "Reader"


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand an update to the caller."""

    update: Update


@dataclass(frozen=True, slots=True)
class SendTask:
    """Send the Celery task of a new message; a failure is logged, since the watchdog finds the message."""

    message_id: str
    limit: float


class Reader(Protocol):
    """What a runner needs to know of a shared reader of this process."""

    name: str

    def claim(self) -> bool:
        """Return True if the caller is the one to start it."""

    def wake(self) -> Command[None]:
        """Return what wakes it where it runs already."""

    def retire(self) -> None:
        """Note that it runs no more."""


Operation = Command[Any] | WaitFor | WakeReader | Emit | SendTask
Program = Generator[Operation, Any, T]


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of an operation: its reply, or the error to raise in the program."""

    reply: Any = None
    error: RoundelayError | None = None


def advance(program: Program[Any], reply: Reply) -> Operation:
    """Go on with a program, to its next operation; StopIteration carries its result."""
    if reply.error is not None:
        return program.throw(reply.error)
    return program.send(reply.reply)


def execute(command: Command[T]) -> Program[T]:
    """Execute a command within a program, keeping the type of its reply."""
    reply: T = yield command
    return reply
