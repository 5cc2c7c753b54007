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

from roundelay import asks, names
from roundelay.asks import Entry
from roundelay.errors import RoundelayError
from roundelay.hub import Clock, Hub, Pause, pauses
from roundelay.looks import StreamId
from roundelay.ops import Ask, Bell

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
        return ("XREAD", "COUNT", asks.PAGE, "BLOCK", int(BLOCK_SECONDS * 1000), "STREAMS", *self.streams, *ids)


class Feed:
    """One follower's place in one stream, and what came since it last looked; guarded by the board's lock."""

    def __init__(self, stream: str, bell: Bell) -> None:
        self.stream = stream
        self.bell = bell
        self.tail: StreamId = (0, 0)
        self.entries: list[Entry] = []
        self.is_apart = True

    def take(self) -> tuple[list[Entry], bool]:
        """Return what came, in order, and whether the follower must read the stream itself from now on."""
        entries, self.entries = self.entries, []
        return entries, self.is_apart

    def offer(self, entries: list[Entry]) -> None:
        """Take in what is new; when the buffer is full, throw it away and part from the reader."""
        news = [entry for entry in entries if entry[0] > self.tail]
        if news:
            self.entries.extend(news)
            self.tail = news[-1][0]
        if len(self.entries) > BUFFER:
            self.part()
        self.bell.set()

    def part(self) -> None:
        """Leave the follower to read the stream itself."""
        self.entries = []
        self.is_apart = True
        self.bell.set()


class Board(Hub):
    """All feeds of a client process; guarded by its lock."""

    name = "updates"

    def __init__(self, prefix: str, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._wake = names.wake_key(prefix, uuid4().hex)
        self._woken_at: StreamId = (0, 0)
        self._feeds: dict[str, set[Feed]] = {}

    def wake(self) -> Ask[None]:
        """Return what ends the reader's XREAD, now or the next one."""
        return asks.wake_stream(self._wake)

    def join(self, feed: Feed, cursor: StreamId) -> None:
        """Bring ``feed`` everything after ``cursor`` from now on."""
        with self.lock:
            feed.tail, feed.entries, feed.is_apart = cursor, [], False
            self._feeds.setdefault(feed.stream, set()).add(feed)

    def leave(self, feed: Feed) -> None:
        """Bring ``feed`` nothing any more."""
        with self.lock:
            self._drop(feed)

    def take(self, feed: Feed) -> tuple[list[Entry], bool]:
        """Return what came for ``feed``, and whether it must read its stream itself now."""
        with self.lock:
            return feed.take()

    def request(self) -> Read:
        """Return what is to be read next: each stream from the slowest of its feeds on."""
        with self.lock:
            tails = {stream: min(feed.tail for feed in feeds) for stream, feeds in self._feeds.items()}
            return Read({self._wake: self._woken_at, **tails})

    def deliver(self, request: Read, streams: dict[str, list[Entry]]) -> None:
        """Bring what was read to the feeds, leaving out those that joined meanwhile at an earlier place."""
        with self.lock:
            for entry_id, _ in streams.pop(self._wake, []):
                self._woken_at = entry_id
            for stream, entries in streams.items():
                for feed in list(self._feeds.get(stream, ())):
                    self._bring(feed, request.streams[stream], entries)

    def part_all(self) -> None:
        """The connection was lost: each follower looks for itself what became of its stream."""
        with self.lock:
            for feed in [feed for feeds in self._feeds.values() for feed in feeds]:
                feed.part()
                self._drop(feed)

    def _bring(self, feed: Feed, start: StreamId, entries: list[Entry]) -> None:
        if start <= feed.tail:
            feed.offer(entries)
        if feed.is_apart:
            self._drop(feed)

    def _drop(self, feed: Feed) -> None:
        feeds = self._feeds.get(feed.stream, set())
        feeds.discard(feed)
        if not feeds:
            self._feeds.pop(feed.stream, None)

    def _is_used(self) -> bool:
        return bool(self._feeds)


def reading(board: Board) -> Generator[Read | Pause, Any, None]:
    """Read for all feeds until nobody follows any more; yields what to do and is sent what XREAD replied."""
    pause = pauses()
    while board.goes_on():
        request = board.request()
        try:
            reply = yield request
        except RoundelayError:
            board.part_all()
            yield next(pause)
        else:
            board.deliver(request, asks.read_streams(reply))
            pause = pauses()
