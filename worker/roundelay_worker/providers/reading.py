"""How a reply is read, in terms common to all formats.

A format writes an ``Assembly``: a reply under construction, fed with server-sent events. ``BodyReader``
makes a ``Reader`` of it, which is fed bytes and also copes with servers that answer a request for a stream
with one JSON body. What the formats share beside this stands in ``arguments`` (reading the arguments of
calls), ``leaked`` (calls written as text), ``thoughts`` (``<think>`` blocks) and ``wire_ids``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from roundelay_worker.loop.history import Turn
from roundelay_worker.loop.surrogates import TextJoiner, readable, readable_json
from roundelay_worker.providers.base import ModelFailure
from roundelay_worker.providers.events import BOM, COMMENT, EventReader, ServerEvent


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Visible text; only this is shown to readers."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Progress that is not shown: reasoning, or a part of a call.

    ``mark`` tells one piece from another (the piece itself will do), so that the same piece over and over is noticed.
    """

    mark: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life without content: a ping, a comment, the start or end of a block."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """A piece that brought nothing: it counts as silence."""


Piece = TextPiece | Thinking | Alive | Nothing

ALIVE: Final = Alive()
NOTHING: Final = Nothing()

_LEADING: Final = re.compile(rb"\A(?:\s|\xef\xbb\xbf)*")


class Reader(Protocol):
    """Reads one reply from bytes that may be cut anywhere.

    ``linger`` is None while more is needed. Once the terminal value has come it says how many seconds
    the rest of the body (usage, the end marker) is worth waiting for: from then on the turn is whole.
    """

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that what is still missing is worth."""

    def feed(self, data: bytes) -> list[Piece]:
        """Take bytes and return what they brought; raise ModelFailure for an error inside the stream."""

    def finish(self) -> Turn:
        """Return the turn; raise ModelFailure: ``reply_cut_off`` (retryable) if no terminal value came."""


class Assembly(Protocol):
    """A reply of one format under construction; ``linger`` as in ``Reader``."""

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that what is still missing is worth."""

    def add(self, event: ServerEvent) -> list[Piece]:
        """Take one event, never a comment; raise ModelFailure for an error inside the stream."""

    def turn(self) -> Turn:
        """Return the turn; raise ModelFailure, ``reply_cut_off`` if no terminal value came."""

    def read_whole(self, body: bytes) -> Turn:
        """Return the turn that one JSON body holds; raise ModelFailure for an error in it."""


class BodyReader:
    """The Reader of every format: server-sent events, or one JSON body where a server sends that instead.

    What all formats share is done here, once: halves of characters that were cut apart are joined, and what follows
    the end of a turn (an error, an event that cannot be read) changes nothing.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._events = EventReader()
        self._texts = TextJoiner()
        self._plain: list[bytes] | None = None
        self._begun = False
        self._head = b""

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that what is still missing is worth."""
        return self._assembly.linger

    def feed(self, data: bytes) -> list[Piece]:
        """Take bytes and return what they brought."""
        rest = data if self._begun else self._begin(data)
        if not self._begun:
            return [ALIVE] if data else []
        if self._plain is not None:
            self._plain.append(rest)
            return [ALIVE] if rest.strip() else []
        return self._pieces(self._events.feed(rest))

    def finish(self) -> Turn:
        """Return the turn."""
        if self._plain is not None:
            return _readable(self._assembly.read_whole(b"".join(self._plain)))
        self._pieces(self._events.close())
        return _readable(self._assembly.turn())

    def read(self, body: bytes) -> Turn:
        """Return the turn of a reply that came in one piece."""
        return _readable(self._assembly.read_whole(_LEADING.sub(b"", body, count=1)))

    def _begin(self, data: bytes) -> bytes:
        """Decide by the first byte that is neither white space nor a byte-order mark, and return what begins there.

        Blank lines before a body keep a connection alive; a mark may be cut in two.
        """
        head = _LEADING.sub(b"", self._head + data, count=1)
        if BOM.startswith(head):
            self._head = head
            return b""
        self._begun = True
        if head.startswith((b"{", b"[", b"<")):
            self._plain = []
        return head

    def _pieces(self, events: Iterator[ServerEvent]) -> list[Piece]:
        pieces: list[Piece] = []
        try:
            for event in events:
                pieces.extend(self._readable(piece) for piece in self._take(event))
        except ModelFailure:
            if self.linger is None:
                raise
        return pieces

    def _take(self, event: ServerEvent) -> list[Piece]:
        if event.event == COMMENT:
            return [ALIVE]
        ended = self.linger is not None
        try:
            return self._assembly.add(event)
        except ModelFailure:
            if not ended:
                raise
            return [ALIVE]

    def _readable(self, piece: Piece) -> Piece:
        if not isinstance(piece, TextPiece):
            return piece
        text = self._texts.feed(piece.text)
        return TextPiece(text) if text else ALIVE


def _readable(turn: Turn) -> Turn:
    """Return the turn with all its strings readable; arguments are so since they were read."""
    native = turn.native
    return replace(
        turn,
        text=readable(turn.text),
        note=readable(turn.note),
        calls=tuple(replace(call, name=readable(call.name), wire_id=readable(call.wire_id)) for call in turn.calls),
        native=replace(native, blocks=readable_json(native.blocks)) if native is not None else None,
    )


def cut_off() -> ModelFailure:
    """Return the failure of a reply that ended without its terminal value."""
    return ModelFailure("reply_cut_off", "The model's reply broke off before its end.", retryable=True)


def unreadable() -> ModelFailure:
    """Return the failure of a reply with status 200 that is no JSON of the format."""
    return ModelFailure("provider_error", "The model server's reply could not be read.", retryable=True)
