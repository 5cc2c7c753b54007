"""One block of an Anthropic message: as it came, as it grows by deltas, and as it goes back."""

from typing import Any, Final

from roundelay_worker.loop.history import Call
from roundelay_worker.loop.surrogates import readable
from roundelay_worker.providers.arguments import EMPTY, read_arguments
from roundelay_worker.providers.encoding import encode
from roundelay_worker.providers.json_scan import WholeValues
from roundelay_worker.providers.loose import as_object, as_word
from roundelay_worker.providers.slices import members, object_of, parsed

_ARGUMENTS: Final = "partial_json"
_LISTED: Final = {"citation": "citations"}
"""Members of deltas that are one item of a list of the block."""


class Block:
    """A block under construction; what no delta touched keeps the bytes it came in, of whatever kind it is.

    Raises ValueError for what is no block: an object with a type.
    """

    def __init__(self, raw: str) -> None:
        self._ended = False
        self._again = False
        self._arguments_told = WholeValues()
        self._raw = raw
        self._start = as_object(parsed(raw))
        if not as_word(self._start.get("type")):
            raise ValueError("a block without a type")
        self._id = str(self._start.get("id") or "")
        self._strings: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}

    @property
    def kind(self) -> str:
        """Return the type of the block."""
        return str(self._start.get("type"))

    @property
    def key(self) -> tuple[str, str]:
        """Return what tells it from another block: its type, and its id where it has one."""
        return self.kind, self._id

    @property
    def text(self) -> str:
        """Return its visible text, '' for a block of another kind."""
        return self._string("text") if self.kind == "text" else ""

    @property
    def is_blank(self) -> bool:
        """Return whether it is a text block that the service would refuse to take back."""
        return self.kind == "text" and not self.text.strip()

    @property
    def is_empty(self) -> bool:
        """Return whether no delta brought anything yet."""
        return not any(any(texts) for texts in self._strings.values()) and not self._lists

    @property
    def says_nothing(self) -> bool:
        """Return whether it is a call without arguments."""
        return (call := self.call()) is None or call.arguments == EMPTY

    def says_else(self, other: "Block") -> bool:
        """Return whether this is another call than ``other``, which has the same id: in name or arguments."""
        if self.says_nothing or other.says_nothing:
            return False
        mine, theirs = self.call(), other.call()
        return (mine and (mine.name, parsed(mine.arguments))) != (theirs and (theirs.name, parsed(theirs.arguments)))

    def end(self) -> None:
        """Note that it is said to have ended; some servers say so before its arguments."""
        self._ended = True

    def begin_again(self) -> None:
        """Note that its start was sent once more; with what follows it, if it had ended with something in it."""
        self._again = self._ended and not self.is_empty

    def rename(self, call_id: str) -> None:
        """Give it an id of its own."""
        self._id = call_id

    def grow(self, delta: dict[str, Any]) -> str:
        """Add a delta and return the new string it brought: whatever its kind, strings grow and items gather.

        What is sent again adds nothing: deltas behind a second start, or for arguments that are whole.
        """
        if self._again or (self._ended and self._arguments_told.whole):
            return ""
        brought = ""
        for name, value in delta.items():
            if name == "type":
                continue
            if name in _LISTED:
                self._lists.setdefault(_LISTED[name], []).append(value)
            elif isinstance(value, str):
                self._strings.setdefault(name, []).append(value)
                if name == _ARGUMENTS:
                    self._arguments_told.feed(value)
                brought = brought or value
        return brought

    def call(self) -> Call | None:
        """Return the call that the client is asked for, None for any other block; those of the server are not ours."""
        if self.kind != "tool_use":
            return None
        arguments, fault = read_arguments(self._arguments())
        return Call(readable(str(self._start.get("name") or "")), arguments, readable(self._id), fault)

    def verbatim(self) -> str:
        """Return the block as it goes back."""
        grown = {name: encode(self._string(name)).decode() for name in self._strings if name != _ARGUMENTS}
        for name, items in self._lists.items():
            begun = self._start.get(name)
            grown[name] = encode([*(begun if isinstance(begun, list) else []), *items]).decode()
        arguments, fault = read_arguments(self._arguments())
        if self._id != as_word(self._start.get("id")):
            grown["id"] = encode(self._id).decode()
        if _ARGUMENTS in self._strings or (self.kind == "tool_use" and fault):
            grown["input"] = arguments
        return object_of({**members(self._raw), **grown}) if grown else self._raw

    def _string(self, name: str) -> str:
        start = self._start.get(name)
        return readable("".join((start if isinstance(start, str) else "", *self._strings.get(name, ()))))

    def _arguments(self) -> str:
        """Return the JSON text of the arguments: the deltas' if they brought any, else what the block began with."""
        given = members(self._raw).get("input", "")
        return "".join(self._strings.get(_ARGUMENTS, ())) or (given if given != "null" else "")
