"""Many streams through one blocking XREAD: the board of feeds, and the program of its reader.

A feed keeps its own place in its stream and a small buffer. A slow consumer's buffer is thrown away when it
is full; the consumer then reads the stream itself from its cursor, so it misses no durable update and
costs nobody else anything. The reader is woken through a stream of its own, which is read along with the
others: a wake that comes before the XREAD ends it as well as one that comes during it.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from roundelay import names
from roundelay._core import redis_commands
from roundelay._core.operations import Command, Signal
from roundelay._core.redis_commands import Entry
from roundelay._core.shared_reader import Clock, Pause, SharedReader, pauses
from roundelay._core.snapshot import StreamId
from roundelay.errors import RoundelayError

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
    """One follower's place in one stream, and what came since it last looked; guarded by the board's lock."""

    def __init__(self, stream: str, signal: Signal) -> None:
        self.stream = stream
        self.signal = signal
        self.tail: StreamId = (0, 0)
        self.entries: list[Entry] = []
        self.is_detached = True

    def take(self) -> tuple[list[Entry], bool]:
        """Return what came, in order, and whether the follower must read the stream itself from now on."""
        entries, self.entries = self.entries, []
        return entries, self.is_detached

    def offer(self, entries: list[Entry]) -> None:
        """Take in what is new; when the buffer is full, throw it away and part from the reader."""
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
    """All feeds of a client process; guarded by its lock."""

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
        """Bring ``feed`` everything after ``cursor`` from now on."""
        with self.lock:
            cursor.tail, cursor.entries, cursor.is_detached = after, [], False
            self._cursors.setdefault(cursor.stream, set()).add(cursor)

    def leave(self, cursor: StreamCursor) -> None:
        """Bring ``feed`` nothing any more."""
        with self.lock:
            self._drop(cursor)

    def take(self, cursor: StreamCursor) -> tuple[list[Entry], bool]:
        """Return what came for ``feed``, and whether it must read its stream itself now."""
        with self.lock:
            return cursor.take()

    def request(self) -> Read:
        """Return what is to be read next: each stream from the slowest of its feeds on."""
        with self.lock:
            tails = {stream: min(cursor.tail for cursor in cursors) for stream, cursors in self._cursors.items()}
            return Read({self._wake: self._woken_at, **tails})

    def deliver(self, request: Read, streams: dict[str, list[Entry]]) -> None:
        """Bring what was read to the feeds, leaving out those that joined meanwhile at an earlier place."""
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
    """Read for all feeds until nobody follows any more; yields what to do and is sent what XREAD replied."""
    pause = pauses()
    while cursors.goes_on():
        request = cursors.request()
        try:
            reply = yield request
        except RoundelayError:
            cursors.detach_all()
            yield next(pause)
        else:
            cursors.deliver(request, redis_commands.read_streams(reply))
            pause = pauses()
