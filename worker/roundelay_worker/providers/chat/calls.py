"""Calls joined from the pieces that Chat Completions servers stream, however they number them."""

from collections.abc import Mapping
from typing import Any

import orjson

from roundelay_worker.loop.history import Call
from roundelay_worker.providers.arguments import read_call


class _Growing:
    """One call as it grows."""

    def __init__(self) -> None:
        self.wire_id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.whole: dict[str, Any] | None = None
        self.extra: dict[str, Any] = {}

    @property
    def arguments(self) -> object:
        return self.whole if self.whole is not None else "".join(self.pieces)

    def is_whole(self) -> bool:
        """Say whether the arguments are an object already."""
        if self.whole is not None:
            return True
        try:
            return isinstance(orjson.loads("".join(self.pieces)), dict)
        except orjson.JSONDecodeError:
            return False

    def add(self, delta: Mapping[str, Any]) -> str:
        """Take a piece and return what it brought."""
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        wire_id, name, arguments = delta.get("id"), function.get("name"), function.get("arguments")
        if isinstance(wire_id, str) and wire_id not in {"", "null"}:
            self.wire_id = wire_id
        if isinstance(name, str) and name:
            self.name = name
        if isinstance(arguments, dict):
            self.whole = arguments
        elif isinstance(arguments, str):
            self.pieces.append(arguments)
        self.extra |= {key: value for key, value in delta.items() if key not in _KNOWN and value is not None}
        return str(arguments or name or "")


_KNOWN = frozenset({"id", "index", "type", "function"})


class CallsInPieces:
    """The calls of one reply, in the order they began."""

    def __init__(self) -> None:
        self._calls: list[_Growing] = []
        self._by_index: dict[int, _Growing] = {}

    def add(self, delta: Mapping[str, Any]) -> str:
        """Take one element of ``delta.tool_calls`` and return what it brought, '' for nothing."""
        return self._call_of(delta).add(delta)

    def _call_of(self, delta: Mapping[str, Any]) -> _Growing:
        """Find the call a piece belongs to: by index unless the piece clearly begins another, else the last."""
        index = delta.get("index")
        known = self._by_index.get(index) if isinstance(index, int) else self._by_id(delta) or self._last()
        if known is None or self._begins_another(known, delta):
            known = _Growing()
            self._calls.append(known)
        if isinstance(index, int):
            self._by_index[index] = known
        return known

    def _by_id(self, delta: Mapping[str, Any]) -> _Growing | None:
        wire_id = delta.get("id")
        return next((call for call in self._calls if wire_id and call.wire_id == wire_id), None)

    def _last(self) -> _Growing | None:
        return self._calls[-1] if self._calls else None

    @staticmethod
    def _begins_another(known: _Growing, delta: Mapping[str, Any]) -> bool:
        wire_id = delta.get("id")
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        if isinstance(wire_id, str) and wire_id and known.wire_id:
            return wire_id not in {known.wire_id, "null"} and bool(function.get("name"))
        return bool(function.get("name") and function.get("arguments")) and known.is_whole()

    def calls(self) -> tuple[Call, ...]:
        """Return the calls as they stand."""
        return tuple(read_call(call.name, call.arguments, call.wire_id) for call in self._calls)

    def native(self) -> list[dict[str, Any]]:
        """Return the calls as they go back, with whatever else the server put on them."""
        return [
            {
                "id": call.wire_id,
                "type": "function",
                "function": {"name": call.name, "arguments": read_call("", call.arguments).arguments},
                **call.extra,
            }
            for call in self._calls
        ]
