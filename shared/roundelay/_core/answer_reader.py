"""Many answers through one pub/sub connection: the desk of tickets, and the program of its reader.

A ticket is told when its channel is subscribed (again), so that its holder looks at the stored answer from
then on without a hole: subscribe first, then look, then listen.
"""

import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from roundelay import names
from roundelay._core import redis_commands
from roundelay._core.operations import Command, Signal
from roundelay._core.shared_reader import Clock, Pause, SharedReader, pauses
from roundelay.errors import RoundelayError

SILENCE_SECONDS: Final = 5.0
"""After this long without a word the connection is pinged; after the same again it is given up."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe to these channels."""

    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Unsubscribe from these channels."""

    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Make the server say something."""


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for a notice; None after ``timeout`` seconds."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Notice:
    """What the server said: ``kind`` is subscribe, unsubscribe, message or pong."""

    kind: str
    channel: str = ""
    body: bytes = b""


ListenOperation = Subscribe | Unsubscribe | Ping | Receive | Pause


class Subscription:
    """One waiter's place at the desk; guarded by the desk's lock."""

    def __init__(self, channel: str, signal: Signal) -> None:
        self.channel = channel
        self.signal = signal
        self.answer: bytes | None = None

    def bring(self, answer: bytes | None) -> None:
        """Bring the answer, or (None) say that the channel is subscribed from now on."""
        self.answer = answer or self.answer
        self.signal.set()


class Subscriptions(SharedReader):
    """All tickets of a client process, and which channels are subscribed."""

    name = "answers"

    def __init__(self, prefix: str, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._wake = names.wake_key(prefix, uuid4().hex)
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._asked: set[str] = set()
        self._unconfirmed: Counter[str] = Counter()

    def wake(self) -> Command[None]:
        """Return what makes the reader look for changes."""
        return redis_commands.wake_channel(self._wake)

    def watch(self, subscription: Subscription) -> None:
        """Tell ``ticket`` from now on what its channel says, first of all that it is subscribed."""
        with self.lock:
            self._subscriptions.setdefault(subscription.channel, set()).add(subscription)
            if subscription.channel in self._asked and not self._unconfirmed[subscription.channel]:
                subscription.bring(None)

    def leave(self, subscription: Subscription) -> None:
        """Tell ``ticket`` nothing any more."""
        with self.lock:
            subscriptions = self._subscriptions.get(subscription.channel, set())
            subscriptions.discard(subscription)
            if not subscriptions:
                self._subscriptions.pop(subscription.channel, None)

    def changes(self) -> list[Subscribe | Unsubscribe]:
        """Return what is to be asked of the server, and count on its being asked."""
        with self.lock:
            wanted = {self._wake, *self._subscriptions}
            more, less = sorted(wanted - self._asked), sorted(self._asked - wanted)
            self._asked = wanted
            self._unconfirmed.update(more)
        changes = (Subscribe(tuple(more)) if more else None, Unsubscribe(tuple(less)) if less else None)
        return [change for change in changes if change is not None]

    def take(self, notice: Notice) -> None:
        """Tell the tickets of the notice's channel."""
        with self.lock:
            if notice.kind == "message":
                self._tell(notice.channel, notice.body)
            elif notice.kind == "subscribe":
                self._confirm(notice.channel)

    def start_again(self) -> None:
        """The connection was lost: nothing is subscribed."""
        with self.lock:
            self._asked.clear()
            self._unconfirmed.clear()

    def _confirm(self, channel: str) -> None:
        # A channel left and asked for again has two confirmations under way; only the last one counts.
        self._unconfirmed[channel] -= 1
        if self._unconfirmed[channel] <= 0:
            del self._unconfirmed[channel]
            self._tell(channel, None)

    def _tell(self, channel: str, answer: bytes | None) -> None:
        for subscription in self._subscriptions.get(channel, ()):
            subscription.bring(answer)

    def _is_used(self) -> bool:
        return bool(self._subscriptions)


class _Silent(RoundelayError):
    """The connection did not even answer a ping."""


def listening(subscriptions: Subscriptions) -> Generator[ListenOperation, Any, None]:
    """Listen for all tickets until nobody waits any more; yields what to do and is sent notices."""
    pause = pauses()
    subscriptions.start_again()  # what the reader before this one had subscribed is gone with its connection
    while subscriptions.goes_on():
        try:
            yield from subscriptions.changes()
            notice = yield from _next_notice()
        except RoundelayError:
            subscriptions.start_again()
            yield next(pause)
        else:
            subscriptions.take(notice)
            pause = pauses()


def _next_notice() -> Generator[ListenOperation, Any, Notice]:
    notice: Notice | None = yield Receive(SILENCE_SECONDS)
    if notice is None:
        yield Ping()
        notice = yield Receive(SILENCE_SECONDS)
    if notice is None:
        raise _Silent
    return notice
