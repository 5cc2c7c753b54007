"""The program of ``follow``: every durable update once and in order, whatever happens to stream and reader.

All followers of a process share one blocking XREAD. A cursor keeps its follower's place in its stream and a small
buffer. When a slow follower's buffer is full it is dropped and the cursor detached: the follower then reads the stream
itself from its place, so it misses no durable update and costs the other followers nothing. The reader is woken by a
stream of its own, which is read along with the others: a wake before the XREAD ends it as well as one during it.
"""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, assert_never
from uuid import uuid4

from pydantic import ValidationError

from roundelay import names
from roundelay._core import redis_commands
from roundelay._core.deadline import RESTORE_SECONDS, Deadline, ForgottenCheck, not_found
from roundelay._core.operations import Command, Emit, Program, Signal, WaitFor, WakeReader, execute
from roundelay._core.redis_commands import Entry, Snapshot, StreamId
from roundelay._core.shared_reader import Clock, Pause, SharedReader, pauses
from roundelay.errors import RoundelayError, Unreachable
from roundelay.updates import Answer, Ended, Gap, TextDelta, TextReset, Update

BUFFER: Final = 256
BLOCK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Read:
    """Block on these streams, each from the id given."""

    streams: dict[str, StreamId]

    @property
    def words(self) -> tuple[str | int, ...]:
        """The command as sent."""
        ids = [f"{seq}-{position}" for seq, position in self.streams.values()]
        return (
            "XREAD",
            "COUNT",
            redis_commands.PAGE,
            "BLOCK",
            int(BLOCK_SECONDS * 1000),
            "STREAMS",
            *self.streams,
            *ids,
        )


class StreamCursor:
    """One follower's place in one stream, with the entries not taken yet; guarded by the lock of ``StreamCursors``."""

    def __init__(self, stream: str, signal: Signal) -> None:
        self.stream = stream
        self.signal = signal
        self.tail: StreamId = (0, 0)
        self.entries: list[Entry] = []
        self.is_detached = True

    def take(self) -> tuple[list[Entry], bool]:
        """Return the new entries in order, and whether the follower must read the stream itself from now on."""
        entries, self.entries = self.entries, []
        return entries, self.is_detached

    def offer(self, entries: list[Entry]) -> None:
        """Buffer what is new; when the buffer is full, drop it and detach from the shared reader."""
        news = [entry for entry in entries if entry[0] > self.tail]
        if news:
            self.entries.extend(news)
            self.tail = news[-1][0]
        if len(self.entries) > BUFFER:
            self.detach()
        self.signal.set()

    def detach(self) -> None:
        """Leave the follower to read the stream itself."""
        self.entries = []
        self.is_detached = True
        self.signal.set()


class StreamCursors(SharedReader):
    """All stream cursors of a process; guarded by its lock."""

    name = "updates"

    def __init__(self, prefix: str, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._wake = names.wake_key(prefix, uuid4().hex)
        self._woken_at: StreamId = (0, 0)
        self._cursors: dict[str, set[StreamCursor]] = {}

    def wake(self) -> Command[None]:
        """Return what ends the reader's XREAD, now or the next one."""
        return redis_commands.wake_stream(self._wake)

    def join(self, cursor: StreamCursor, after: StreamId) -> None:
        """Deliver every entry after ``after`` to ``cursor`` from now on."""
        with self.lock:
            cursor.tail, cursor.entries, cursor.is_detached = after, [], False
            self._cursors.setdefault(cursor.stream, set()).add(cursor)

    def leave(self, cursor: StreamCursor) -> None:
        """Stop delivering to ``cursor``."""
        with self.lock:
            self._drop(cursor)

    def take(self, cursor: StreamCursor) -> tuple[list[Entry], bool]:
        """Return the new entries, and whether the follower must read its stream itself from now on."""
        with self.lock:
            return cursor.take()

    def request(self) -> Read:
        """Return what is to be read next: each stream from its slowest cursor on."""
        with self.lock:
            tails = {stream: min(cursor.tail for cursor in cursors) for stream, cursors in self._cursors.items()}
            return Read({self._wake: self._woken_at, **tails})

    def deliver(self, request: Read, streams: dict[str, list[Entry]]) -> None:
        """Deliver what was read, except to cursors that joined meanwhile at an earlier place."""
        with self.lock:
            for entry_id, _ in streams.pop(self._wake, []):
                self._woken_at = entry_id
            for stream, entries in streams.items():
                for cursor in list(self._cursors.get(stream, ())):
                    self._bring(cursor, request.streams[stream], entries)

    def detach_all(self) -> None:
        """The connection was lost: each follower looks for itself what became of its stream."""
        with self.lock:
            for cursor in [cursor for cursors in self._cursors.values() for cursor in cursors]:
                cursor.detach()
                self._drop(cursor)

    def _bring(self, cursor: StreamCursor, start: StreamId, entries: list[Entry]) -> None:
        if start <= cursor.tail:
            cursor.offer(entries)
        if cursor.is_detached:
            self._drop(cursor)

    def _drop(self, cursor: StreamCursor) -> None:
        cursors = self._cursors.get(cursor.stream, set())
        cursors.discard(cursor)
        if not cursors:
            self._cursors.pop(cursor.stream, None)

    def _is_used(self) -> bool:
        return bool(self._cursors)


def reading(cursors: StreamCursors) -> Generator[Read | Pause, Any, None]:
    """Read for all cursors until none is left; yields operations and is sent the replies of XREAD."""
    pause = pauses()
    while cursors.goes_on():
        request = cursors.request()
        try:
            reply = yield request
            streams = redis_commands.read_streams(reply)
        except (RoundelayError, ValueError, TypeError, LookupError):  # away, or what came is no reply
            cursors.detach_all()
            yield next(pause)
        else:
            cursors.deliver(request, streams)
            pause = pauses()


CHECK_EVERY: Final = 10.0
"""Seconds of silence after which the follower looks whether the message has ended unnoticed."""

FORGOTTEN_SECONDS: Final = 30.0
"""Seconds that the workers have to publish a message again that an emptied Redis has forgotten."""

SOON: Final = 0.5
LARGEST_SEQ: Final = 2**63 - 1
"""Redis refuses stream ids that are much larger."""


@dataclass(frozen=True, slots=True)
class _ShownText:
    """How many characters of an attempt at a turn were returned."""

    turn: int
    attempt: int | None
    length: int


@dataclass(slots=True)
class Tracker:
    """Turns stream entries into updates: none twice, and a ``gap`` for what is missing."""

    message_id: str
    seq: int = 0
    ended: bool = False
    unreadable: StreamId | None = None
    """The place of the last entry that is no update that we know."""
    cursor: StreamId = field(init=False)
    resumed_at: int | None = field(init=False)
    """The update after which this reader goes on: it may have shown the text behind it already."""
    _text: "_ShownText | None" = None

    def __post_init__(self) -> None:
        self.cursor = (self.seq, 0)
        self.resumed_at = self.seq or None

    def take(self, entries: list[Entry]) -> Iterator[Update]:
        """Return the updates of these entries that were not returned before, up to ``ended``."""
        for entry_id, text in entries:
            if entry_id > self.cursor and not self.ended:
                self.cursor = entry_id
                yield from self._next(entry_id, text)

    def close(self, answer: Answer, last_seq: int) -> Iterator[Update]:
        """Return what can still be said of a message whose stream is lost: the gap, and its end."""
        if last_seq - 1 > self.seq:
            yield self._gap(last_seq - 1, answer.finished_at)
        yield self.end(answer, last_seq if last_seq > self.seq else None)

    def end(self, answer: Answer, seq: int | None) -> Ended:
        """Return ``ended``, under its number where that is known."""
        self.ended = True
        return Ended(at=answer.finished_at, message_id=self.message_id, seq=seq, answer=answer)

    def _next(self, entry_id: StreamId, text: bytes) -> Iterator[Update]:
        seq, position = entry_id
        update = _parse(text)
        if update is None:  # if it was durable, the next one shows the gap
            self.unreadable = entry_id
            return
        if position == 0 and seq > self.seq + 1:
            yield self._gap(seq - 1, update.at)
        if position == 0:
            self.seq = seq
        elif seq > self.seq:
            yield self._gap(seq, update.at)
        self.ended = isinstance(update, Ended)
        if isinstance(update, TextDelta):
            yield from self._add_text(update, seq)
        else:
            if isinstance(update, TextReset):
                self._text = _ShownText(update.turn, update.attempt, 0)
            yield update

    def _add_text(self, delta: TextDelta, seq: int) -> Iterator[Update]:
        """Return the part of this piece that was not returned before, behind a reset where older text may be shown."""
        shown = self._text
        if shown is None or (shown.turn, shown.attempt) != (delta.turn, delta.attempt):
            is_resumed = shown is None and seq == self.resumed_at
            if is_resumed or (shown is not None and shown.turn == delta.turn):
                yield TextReset(at=delta.at, message_id=self.message_id, turn=delta.turn, attempt=delta.attempt)
            shown = _ShownText(delta.turn, delta.attempt, 0)
        known = max(0, shown.length - delta.offset)
        length = max(shown.length, delta.offset + len(delta.text))
        self._text = _ShownText(delta.turn, delta.attempt, length)
        if known < len(delta.text):
            yield delta.model_copy(update={"text": delta.text[known:], "offset": delta.offset + known})

    def _gap(self, last: int, at: datetime) -> Gap:
        first, self.seq = self.seq + 1, last
        return Gap(at=at, message_id=self.message_id, missing=(first, last))


def _parse(text: bytes) -> Update | None:
    try:
        return Update.model_validate_json(text)
    except ValidationError:
        return None


Course = Literal["listen", "restore", "unknown", "done"]
"""What a follower does next: wait for news, ask the workers for what the stream lacks, or end."""


def decide(look: Snapshot, tracker: Tracker, *, was_known: bool) -> Course:
    """Return what to do after a look, when the stream was read to its end."""
    if look.tail is not None and look.tail > tracker.cursor:
        return "listen"  # the reader is bringing it
    if look.tail_ends:
        return "done"
    if look.ended:
        return "restore"  # or the answer came a moment before its update
    if look.tail is None and (look.state.seq > 0 if look.state else was_known):
        return "restore"
    return "listen" if look.known else "unknown"


class Follow:
    """One call of ``follow``."""

    def __init__(self, deadline: Deadline, after: int, cursors: StreamCursors, signal: Signal) -> None:
        self.deadline, self.cursors, self.signal = deadline, cursors, signal
        self.tracker = Tracker(deadline.message_id, min(after, LARGEST_SEQ))
        self.cursor = StreamCursor(names.updates_key(deadline.prefix, deadline.message_id), signal)
        self.forgotten = ForgottenCheck(deadline.prefix, deadline.message_id, deadline.clock)
        self.was_known = False
        self.is_done = False
        self.restore_until: float | None = None

    def run(self) -> Program[None]:
        """Emit every update, then return."""
        delay = pauses()
        try:
            while not (self.is_done or self.tracker.ended):
                try:
                    yield from self._turn()
                    delay = pauses()
                except Unreachable as error:
                    self.deadline.tolerate(error)
                    self.signal.clear()
                    yield WaitFor(self.signal, self.deadline.left(next(delay).seconds))
        finally:
            self.cursors.leave(self.cursor)

    def _turn(self) -> Program[None]:
        yield from self._read_stored()
        if self.tracker.ended:
            return
        self.signal.clear()
        self.cursors.join(self.cursor, self.tracker.cursor)
        yield WakeReader(self.cursors)
        look = yield from self.deadline.look()
        yield from self._act(look)

    def _read_stored(self) -> Program[None]:
        is_full = True
        while is_full and not self.tracker.ended:
            entries = yield from execute(redis_commands.page(self.cursor.stream, self.tracker.cursor))
            is_full = len(entries) == redis_commands.PAGE
            yield from self._say(entries)

    def _act(self, look: Snapshot) -> Program[None]:
        course = decide(look, self.tracker, was_known=self.was_known)
        is_behind = look.tail is not None and look.tail > self.tracker.cursor
        self.was_known = self.was_known or look.known
        if self.deadline.is_over and course != "done":
            raise self.deadline.timed_out()
        match course:
            case "done":
                self.is_done = True
                is_beyond = look.tail is not None and look.tail[0] < self.tracker.seq
                if look.tail and look.answer and (is_beyond or self.tracker.unreadable == look.tail):
                    yield Emit(self.tracker.end(look.answer, look.tail[0]))
            case "unknown":
                if not (yield from self.forgotten.lasts(look)):
                    raise not_found(is_filled=look.is_filled)
                yield from self._listen(SOON)
            case "listen":
                self.restore_until = None
                yield from self._listen(SOON if is_behind else CHECK_EVERY)
            case "restore":
                yield from self._restore(look)
            case _:
                assert_never(course)

    def _listen(self, quiet: float) -> Program[None]:
        is_detached = False
        while not is_detached:
            yield WaitFor(self.signal, self.deadline.left(quiet))
            self.signal.clear()
            entries, is_detached = self.cursors.take(self.cursor)
            yield from self._say(entries)
            if self.tracker.ended or self.deadline.is_over or not entries:
                return

    def _restore(self, look: Snapshot) -> Program[None]:
        now = self.deadline.clock()
        if self.restore_until is None:
            self.restore_until = now + (RESTORE_SECONDS if look.ended else FORGOTTEN_SECONDS)
        if now >= self.restore_until:
            yield from self._give_up(look)
        else:
            yield from execute(redis_commands.restore(self.deadline.prefix, self.deadline.message_id))
            yield from self._listen(SOON)

    def _give_up(self, look: Snapshot) -> Program[None]:
        self.restore_until = None
        if look.answer is not None:
            for update in self.tracker.close(look.answer, look.state.seq if look.state else 0):
                yield Emit(update)
        elif look.ended or not look.known:
            raise not_found(is_filled=look.is_filled)

    def _say(self, entries: list[Entry]) -> Program[None]:
        self.was_known = self.was_known or bool(entries)
        for update in self.tracker.take(entries):
            yield Emit(update)
