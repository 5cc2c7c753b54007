"""Calls joined from the pieces that Chat Completions servers stream, however they number them.

A call is known by its id, whatever index a piece of it has. An index tells only where a piece without an id belongs:
several calls may share one. What comes for a call whose arguments are whole is said again, or is another call.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from roundelay_worker.loop.history import Call
from roundelay_worker.providers.arguments import called_name, read_calls
from roundelay_worker.providers.json_scan import WholeValues
from roundelay_worker.providers.loose import as_object, as_word

_KNOWN = frozenset({"id", "index", "type", "function"})


@dataclass(frozen=True, slots=True)
class _Piece:
    """One element of ``delta.tool_calls``, read without trust."""

    wire_id: str
    index: int | None
    name: str
    arguments: str

    @classmethod
    def of(cls, delta: Mapping[str, Any]) -> "_Piece":
        function, index, wire_id = as_object(delta.get("function")), delta.get("index"), as_word(delta.get("id"))
        is_index = isinstance(index, int) and not isinstance(index, bool)
        return cls(
            wire_id="" if wire_id == "null" else wire_id,
            index=index if is_index else None,
            name=as_word(function.get("name")),
            arguments=_text(function.get("arguments")),
        )


class _Growing:
    """One call as it grows: its arguments may be begun again."""

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.wire_id = ""
        self.names: list[str] = []
        self.tries: list[_Arguments] = []
        self.extra: dict[str, Any] = {}
        self._name = ""

    def name(self, tool_names: Collection[str]) -> str:
        """Return the name as far as it has come; once the arguments have begun, it grows no more."""
        if not self._name or not self.tries[0].begun:
            self._name = _name(self.names, tool_names)
        return self._name

    def begin(self) -> "_Arguments":
        """Begin the arguments, or begin them again."""
        self.tries.append(_Arguments(self))
        return self.tries[-1]


class _Arguments:
    """The arguments of a call as they grow."""

    def __init__(self, call: _Growing) -> None:
        self.call = call
        self.begun = False
        self._pieces: list[str] = []
        self._scan = WholeValues()

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def whole(self) -> bool:
        return self._scan.whole

    def add(self, text: str) -> None:
        self.begun = self.begun or bool(text.strip())
        self._pieces.append(text)
        self._scan.feed(text)


class CallsInPieces:
    """The calls of one reply, in the order they began."""

    def __init__(self, tool_names: Collection[str] = ()) -> None:
        self._tool_names = tool_names
        self._calls: list[_Growing] = []
        self._by_id: dict[str, _Growing] = {}
        self._by_index: dict[int, _Arguments] = {}

    def add(self, delta: Mapping[str, Any]) -> str:
        """Take one element of ``delta.tool_calls`` and return what it brought, '' for nothing."""
        piece = _Piece.of(delta)
        arguments = self._of(piece)
        call = arguments.call
        if piece.wire_id:
            call.wire_id = call.wire_id or piece.wire_id
            self._by_id.setdefault(piece.wire_id, call)
        if piece.index is not None:
            self._by_index[piece.index] = arguments
        if piece.name and not arguments.begun and len(call.tries) == 1:
            call.names.append(piece.name)
        arguments.add(piece.arguments)
        call.extra |= {key: value for key, value in delta.items() if key not in _KNOWN and value is not None}
        return piece.arguments or piece.name

    def calls(self) -> list[tuple[Call, dict[str, Any]]]:
        """Return the calls as they stand, each with whatever else the server put on it."""
        found: list[tuple[Call, dict[str, Any]]] = []
        unnamed: set[tuple[int | None, str, str]] = set()
        for growing in self._calls:
            name = growing.name(self._tool_names)
            for place, call in enumerate(read_calls(name, [each.text for each in growing.tries], growing.wire_id)):
                told = (growing.index, call.name, call.arguments)
                if growing.wire_id or growing.index is None or call.fault or told not in unnamed:
                    found.append((call, {} if place else growing.extra))
                if not growing.wire_id:
                    unnamed.add(told)
        return found

    def _of(self, piece: _Piece) -> _Arguments:
        """Return the arguments that a piece belongs to: of the call of its id, else by index, else of the last call."""
        if (call := self._by_id.get(piece.wire_id)) is not None:
            return self._of_call(call, piece)
        if piece.index is not None:
            known = self._by_index.get(piece.index)
        else:
            known = self._calls[-1].tries[-1] if self._calls else None
        if known is not None and not self._begins_another(known, piece):
            return known
        self._calls.append(_Growing(piece.index))
        return self._calls[-1].begin()

    def _of_call(self, call: _Growing, piece: _Piece) -> _Arguments:
        """Find where a piece goes on; one that names the call once more may say its arguments once more."""
        at_index = self._by_index.get(piece.index) if piece.index is not None else None
        known = at_index if at_index is not None and at_index.call is call else call.tries[-1]
        moved = piece.index is not None and at_index is not known and known.begun
        return call.begin() if piece.name and piece.arguments and (known.whole or moved) else known

    def _begins_another(self, known: _Arguments, piece: _Piece) -> bool:
        if piece.wire_id and known.call.wire_id:  # two ids: some servers make a new one for each piece
            return bool(piece.name)
        if not piece.name or not known.begun:
            return False
        is_other = _name([piece.name], self._tool_names) != known.call.name(self._tool_names)
        return is_other or (known.whole and bool(piece.arguments))


def native_calls(calls: list[tuple[Call, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the calls as they go back."""
    return [
        {
            "id": call.wire_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
            **extra,
        }
        for call, extra in calls
    ]


def _name(pieces: list[str], tool_names: Collection[str]) -> str:
    """Return a name that came in pieces, at once on each piece, or growing with each."""
    joined = called_name("".join(pieces), tool_names)
    if joined in tool_names or len(pieces) < 2:  # noqa: PLR2004 - there is nothing to join
        return joined
    whole = next((name for piece in reversed(pieces) if (name := called_name(piece, tool_names)) in tool_names), "")
    return whole or (pieces[0] if len(set(pieces)) == 1 else joined)


def _text(arguments: object) -> str:
    """Return arguments as text; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    if not arguments:
        return ""
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc
