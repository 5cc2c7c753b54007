"""The program of ``wait``: subscribe first, then look at the stored answer, then listen.

All waiters of a process share one pub/sub connection. A subscription is signalled when the server confirms its channel,
also after a reconnect, and its waiter reads the stored answer only then: an answer published in between cannot be lost.
"""

import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pydantic import ValidationError

from roundelay import names
from roundelay._core import redis_commands
from roundelay._core.deadline import RESTORE_SECONDS, Deadline, ForgottenCheck, not_found
from roundelay._core.operations import Command, Program, Signal, WaitFor, WakeReader, execute
from roundelay._core.redis_commands import Snapshot
from roundelay._core.shared_reader import Clock, Pause, SharedReader, pauses
from roundelay.errors import RoundelayError, Unreachable
from roundelay.updates import Answer

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
    """One waiter's subscription to an answer; guarded by the lock of ``Subscriptions``."""

    def __init__(self, channel: str, signal: Signal) -> None:
        self.channel = channel
        self.signal = signal
        self.answer: bytes | None = None

    def bring(self, answer: bytes | None) -> None:
        """Bring the answer, or (None) say that the channel is subscribed from now on."""
        self.answer = answer or self.answer
        self.signal.set()


class Subscriptions(SharedReader):
    """All subscriptions of a process, and the channels that the server has confirmed."""

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
        """Pass what the channel says to ``subscription`` from now on, first that it is subscribed."""
        with self.lock:
            self._subscriptions.setdefault(subscription.channel, set()).add(subscription)
            if subscription.channel in self._asked and not self._unconfirmed[subscription.channel]:
                subscription.bring(None)

    def leave(self, subscription: Subscription) -> None:
        """Stop passing anything to ``subscription``."""
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
        """Pass a notice on to the subscriptions of its channel."""
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
    """Listen for all subscriptions until none is left; yields operations and is sent notices."""
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
        self.restore_until: float | None = None
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
            if (told := self._told()) is not None:
                return told
            try:
                answer = yield from self._look()
            except Unreachable:
                wait = next(delay).seconds
                continue
            if answer is not None:
                return answer
            wait, delay = (ASK_EVERY if self.is_forgotten or self.restore_until else LOOK_EVERY), pauses()
            yield WakeReader(self.subscriptions)

    def _told(self) -> Answer | None:
        """Return the answer that was published; if that cannot be read, the stored one is looked at."""
        told, self.subscription.answer = self.subscription.answer, None
        try:
            return None if told is None else Answer.model_validate_json(told)
        except ValidationError:
            return None

    def _look(self) -> Program[Answer | None]:
        look = yield from self.deadline.look()
        if look.answer is not None:
            return look.answer
        if look.ended:
            yield from self._restore(look)
        else:
            yield from self._note_unknown(look)
        if self.deadline.is_over:
            raise self.deadline.timed_out()
        return None

    def _restore(self, look: Snapshot) -> Program[None]:
        """The message has ended and its answer is gone from Redis: the workers have it, or it has expired."""
        now = self.deadline.clock()
        self.restore_until = self.restore_until or now + RESTORE_SECONDS
        if now >= self.restore_until:
            raise not_found(is_filled=look.is_filled)
        yield from execute(redis_commands.restore(self.deadline.prefix, self.deadline.message_id))

    def _note_unknown(self, look: Snapshot) -> Program[None]:
        self.was_known = self.was_known or look.known
        self.is_forgotten = self.was_known and not look.known
        if self.is_forgotten:  # Redis was emptied: the workers know the message, and publish it again
            yield from execute(redis_commands.restore(self.deadline.prefix, self.deadline.message_id))
        elif not look.known:
            if not (yield from self.forgotten.lasts(look)):
                raise not_found(is_filled=look.is_filled)
            self.is_forgotten = True
