"""Server-sent events, read from bytes that may be cut anywhere.

Lenient where real servers are: a last event without its blank line counts, a byte-order mark is skipped,
bytes that are no UTF-8 are replaced. Comments, and events without any ``data``, are signs of life and come
out as events named ``COMMENT``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from roundelay_worker.providers.base import ModelFailure

COMMENT: Final = ":"
"""The event name of comments, which no server uses for an event."""

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""One line, or the ``data`` of one event, may not be longer than this."""

BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; ``data`` is its data lines joined by newlines, ``event`` is ``message`` where none was named."""

    event: str
    data: str


class EventReader:
    """Turns bytes into events in constant memory; raises ModelFailure for a line or an event without bounds."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._after_cr = False
        self._at_start = True
        self._name = ""
        self._lines: list[bytes] = []
        self._lines_size = 0

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete; those before a line without bounds come before its failure."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\n" not in data and b"\r" not in data:
            self._keep(data)
            return
        lines = b"".join((*self._rest, data)).splitlines(keepends=True)
        self._rest, self._rest_size = [], 0
        rest = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        self._after_cr = not rest and lines[-1].endswith(b"\r")
        yield from self._events(lines)
        self._keep(rest)

    def close(self) -> Iterator[ServerEvent]:
        """Yield what the end of the stream completes: the last event, if it lacked its blank line."""
        line = b"".join(self._rest)
        self._rest, self._rest_size = [], 0
        yield from self._events([line, b""] if line else [b""])

    def _keep(self, part: bytes) -> None:
        self._rest_size += len(part)
        self._check(self._rest_size)
        if part:
            self._rest.append(part)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise ModelFailure("provider_error", f"The model server sent an event above {self._limit} bytes.")

    def _events(self, lines: list[bytes]) -> Iterator[ServerEvent]:
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(BOM)
        for ended in lines:
            line = ended.rstrip(b"\r\n")
            if not line:
                yield from self._end_of_event()
            elif line.startswith(b":"):
                yield ServerEvent(COMMENT, line[1:].strip().decode(errors="replace"))
            else:
                self._field(line)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._lines.append(value.removeprefix(b" "))
            self._lines_size += len(value)
            self._check(self._lines_size)
        elif name == b"event":
            self._name = value.strip().decode(errors="replace")

    def _end_of_event(self) -> Iterator[ServerEvent]:
        name, lines = self._name, self._lines
        self._name, self._lines, self._lines_size = "", [], 0
        if lines:
            yield ServerEvent(name or "message", b"\n".join(lines).decode(errors="replace"))
        elif name:
            yield ServerEvent(COMMENT, name)
