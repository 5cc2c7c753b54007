"""Lists of parts that come in pieces (content, ``reasoning_details``), joined without copying what has come."""

from collections.abc import Mapping
from typing import Any, Final

_TEXTS: Final = ("text", "summary", "thinking", "data")
_ENDS: Final = ("signature", "data")


class GrowingParts:
    """Parts in order: a piece continues the last part if kind and index agree and that one is not sealed yet."""

    def __init__(self) -> None:
        self._parts: list[_GrowingPart] = []

    def add(self, piece: Mapping[str, Any]) -> None:
        """Take one piece of a part."""
        if not self._parts or not self._parts[-1].goes_on_with(piece):
            self._parts.append(_GrowingPart())
        self._parts[-1].add(piece)

    def whole(self) -> list[dict[str, Any]]:
        """Return the parts as they stand."""
        return [part.whole() for part in self._parts]


class _GrowingPart:
    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, GrowingParts] = {}

    def goes_on_with(self, piece: Mapping[str, Any]) -> bool:
        same = all(self._fields.get(key) == piece.get(key) for key in ("type", "index"))
        sealed = any(self._fields.get(key) or key in self._texts for key in _ENDS)
        return same and not (sealed and any(piece.get(key) for key in _TEXTS))

    def add(self, piece: Mapping[str, Any]) -> None:
        for key, value in piece.items():
            if key in _TEXTS and isinstance(value, str):
                self._texts.setdefault(key, []).append(value)
            elif key in _TEXTS and isinstance(value, list) and all(isinstance(part, dict) for part in value):
                self._add_list(key, value)
            elif value is not None or key not in self._fields:
                self._fields[key] = value

    def _add_list(self, key: str, pieces: list[dict[str, Any]]) -> None:
        growing = self._lists.setdefault(key, GrowingParts())
        for piece in pieces:
            growing.add(piece)

    def whole(self) -> dict[str, Any]:
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        return self._fields | texts | {key: parts.whole() for key, parts in self._lists.items()}
