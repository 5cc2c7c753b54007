"""The program of ``follow``: every durable update once and in order, whatever happens to stream and reader."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, assert_never

from pydantic import ValidationError

from roundelay import names
from roundelay._core import redis_commands
from roundelay._core.deadline import Deadline, not_found
from roundelay._core.forgotten import ForgottenCheck
from roundelay._core.operations import Emit, Program, Signal, WaitFor, WakeReader, execute
from roundelay._core.redis_commands import Entry
from roundelay._core.shared_reader import pauses
from roundelay._core.snapshot import Snapshot, StreamId
from roundelay._core.stream_reader import StreamCursor, StreamCursors
from roundelay.errors import Unreachable
from roundelay.updates import Answer, Update

CHECK_EVERY: Final = 10.0
"""Seconds of silence after which the follower looks whether the message has ended unnoticed."""

RESTORE_SECONDS: Final = 3.0
"""Seconds that the workers have to rebuild the stream of an ended message before its rest is called lost."""

FORGOTTEN_SECONDS: Final = 30.0
"""Seconds that the workers have to publish a message again that an emptied Redis has forgotten."""

SOON: Final = 0.5
LARGEST_SEQ: Final = 2**63 - 1
"""Redis refuses stream ids that are much larger."""


@dataclass(slots=True)
class Tracker:
    """Turns stream entries into updates: none twice, and a ``gap`` for what is missing."""

    message_id: str
    seq: int = 0
    ended: bool = False
    cursor: StreamId = field(init=False)

    def __post_init__(self) -> None:
        self.cursor = (self.seq, 0)

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

    def end(self, answer: Answer, seq: int | None) -> Update:
        """Return ``ended``, under its number where that is known."""
        self.ended = True
        return Update(kind="ended", at=answer.finished_at, message_id=self.message_id, seq=seq, answer=answer)

    def _next(self, entry_id: StreamId, text: bytes) -> Iterator[Update]:
        seq, position = entry_id
        update = _parse(text)
        if update is None:  # written by nobody we know; if it was durable, the next one shows the gap
            return
        if position == 0 and seq > self.seq + 1:
            yield self._gap(seq - 1, update.at)
        if position == 0:
            self.seq = seq
        elif seq > self.seq:
            yield self._gap(seq, update.at)
        self.ended = update.kind == "ended"
        yield update

    def _gap(self, last: int, at: datetime) -> Update:
        first, self.seq = self.seq + 1, last
        return Update(kind="gap", at=at, message_id=self.message_id, missing=(first, last))


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
        """Say every update, then return."""
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
                if look.answer and look.tail and look.tail[0] < self.tracker.seq:  # nobody can have seen that number
                    yield Emit(self.tracker.end(look.answer, look.tail[0]))
            case "unknown":
                if not (yield from self.forgotten.lasts(look)):
                    raise not_found()
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
            raise not_found()

    def _say(self, entries: list[Entry]) -> Program[None]:
        self.was_known = self.was_known or bool(entries)
        for update in self.tracker.take(entries):
            yield Emit(update)
