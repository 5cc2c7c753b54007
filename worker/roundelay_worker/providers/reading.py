"""How a reply is read, in terms common to all formats.

A format writes an ``Assembly``: a reply under construction, fed with server-sent events. ``BodyReader``
makes a ``Reader`` of it, which is fed bytes and also copes with servers that answer a request for a stream
with one JSON body. What the formats share beside this stands in ``arguments`` (reading the arguments of
calls), ``leaked`` (calls written as text), ``thoughts`` (``<think>`` blocks) and ``wire_ids``.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.base import ModelFailure
from roundelay_worker.providers.events import COMMENT, EventReader, ServerEvent


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
    """The Reader of every format: server-sent events, or one JSON body where a server sends that instead."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._events = EventReader()
        self._plain: list[bytes] | None = None
        self._begun = False

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that what is still missing is worth."""
        return self._assembly.linger

    def feed(self, data: bytes) -> list[Piece]:
        """Take bytes and return what they brought."""
        if not self._begun:
            self._begin(data)
        if not self._begun:
            return [ALIVE] if data else []
        if self._plain is not None:
            self._plain.append(data)
            return [ALIVE] if data.strip() else []
        return self._pieces(self._events.feed(data))

    def finish(self) -> Turn:
        """Return the turn."""
        if self._plain is not None:
            return self._assembly.read_whole(b"".join(self._plain))
        self._pieces(self._events.close())
        return self._assembly.turn()

    def _begin(self, data: bytes) -> None:
        """Decide by the first byte that is no white space: blank lines before a body keep a connection alive."""
        body = data.removeprefix(b"\xef\xbb\xbf").lstrip()
        self._begun = bool(body)
        if body.startswith((b"{", b"[", b"<")):
            self._plain = []

    def _pieces(self, events: list[ServerEvent]) -> list[Piece]:
        pieces: list[Piece] = []
        for event in events:
            if event.event == COMMENT:
                pieces.append(ALIVE)
            else:
                pieces.extend(self._assembly.add(event))
        return pieces


def cut_off() -> ModelFailure:
    """Return the failure of a reply that ended without its terminal value."""
    return ModelFailure("reply_cut_off", "The model's reply broke off before its end.", retryable=True)


def unreadable() -> ModelFailure:
    """Return the failure of a reply with status 200 that is no JSON of the format."""
    return ModelFailure("provider_error", "The model server's reply could not be read.", retryable=True)
