"""One item of a Responses reply under construction, told up to four times; pure.

It is told as it begins, by its pieces, when it is done, and in the list at the end. What is done wins; what it lacks
is taken from the list, then from the pieces. Some servers say that an item is done without the words it had.
"""

from collections.abc import Mapping
from typing import Any, Final

from roundelay_worker.providers.arguments import MISSING, are_equal, read_arguments, says_something
from roundelay_worker.providers.loose import as_word
from roundelay_worker.providers.reading import NOTHING, Piece, TextPiece, Thinking
from roundelay_worker.providers.thoughts import ThoughtFilter

CALL: Final = "function_call"
MESSAGE: Final = "message"

Item = dict[str, Any]

_WORDS: Final = {"output_text": "text", "refusal": "refusal"}
"""Kinds of parts of a message, and the member that holds their words."""

_OF_THE_BEGINNING: Final = ("id", "call_id", "name", "role", "phase")
"""Members that are taken from an item's beginning; the rest of it may be early or empty."""

_KINDS: Final = (
    ("response.output_text.", MESSAGE),
    ("response.refusal.", MESSAGE),
    ("response.function_call_arguments.", CALL),
    ("response.reasoning", "reasoning"),
)


def kind_of(event: str) -> str:
    """Return the type of the items that events of this name bring pieces of, '' for any."""
    return next((kind for beginning, kind in _KINDS if event.startswith(beginning)), "")


class GrowingItem:
    """An item as it grows; ``place`` and ``rank`` tell where it stands, by position and in the list at the end."""

    def __init__(self, kind: str, place: int) -> None:
        self.kind = kind
        self.call_id = ""
        self.named = False
        self.place = place
        self.rank = 0
        self.begun: Item = {}
        self.done: list[Item] = []
        self.listed: list[Item] = []
        self._placed = False
        self._pieces: dict[tuple[str, str], list[str]] = {}
        self._ends: dict[tuple[str, str], str] = {}
        self._thoughts: dict[str, ThoughtFilter] = {}

    @property
    def is_told(self) -> bool:
        """Return whether more than pieces tell of it."""
        return bool(self.begun or self.done or self.listed)

    def may_be(self, kind: str) -> bool:
        """Return whether it can have pieces of items of this type."""
        return not kind or not self.kind or kind == self.kind

    def may_be_told_by(self, item: Item) -> bool:
        """Return whether nothing contradicts that this tells of it."""
        call_id = as_word(item.get("call_id"))
        if call_id and call_id == self.call_id:
            return True
        return self.may_be(as_word(item.get("type"))) and (not call_id or not self.call_id or call_id == self.call_id)

    def is_another(self, item: Item) -> bool:
        """Return whether this, though a name led here, is done as another item: under another id, or in other words."""
        if not self.done:
            return False
        if self.call_id and item.get("call_id") == self.call_id:
            return _is_other_call(self.done[0], item)
        return as_word(item.get("id")) != as_word(self.done[0].get("id")) or _says_else(self.done[0], item)

    def is_listed_beside(self, item: Item) -> bool:
        """Return whether this stands in the list beside it, in other words under the same id."""
        known = self.listed or (self.done if self.kind == CALL else [])
        return bool(known) and (_is_other_call if self.kind == CALL else _says_else)(known[0], item)

    def stand(self, place: int) -> None:
        """Take a position; the first one stays."""
        if not self._placed:
            self.place, self._placed = place, True

    def take_listed(self, item: Item, rank: int) -> None:
        """Take it as the end of the reply lists it."""
        if not self.listed:
            self.rank = rank
        self.listed.append(item)

    def add(self, event: str, content: Mapping[str, Any]) -> Piece:
        """Take a piece and return what it brought."""
        piece = content.get("delta")
        if not isinstance(piece, str) or not piece:
            return NOTHING
        part = str(content.get("content_index"))
        name = event.removeprefix("response.").removesuffix(".delta")
        self._pieces.setdefault((name, part), []).append(piece)
        if name == "refusal":
            return TextPiece(piece)
        if name != "output_text":
            return Thinking(piece)
        seen, _ = self._thoughts.setdefault(part, ThoughtFilter()).feed(piece)
        return TextPiece(seen) if seen else Thinking(piece)

    def end(self, event: str, content: Mapping[str, Any]) -> None:
        """Take the whole of what came in pieces."""
        name = event.removeprefix("response.").removesuffix(".done")
        whole = content.get("arguments" if self.kind == CALL else _WORDS.get(name, ""))
        if isinstance(whole, str) and whole:
            self._ends[name, str(content.get("content_index"))] = whole

    def whole(self) -> Item:
        """Return the item with all that was told of it."""
        item: Item = {}
        for told in (*self.done, *self.listed) or (self.begun,):
            item |= {key: value for key, value in told.items() if _is_empty(item.get(key))}
        for key in _OF_THE_BEGINNING:
            if _is_empty(item.get(key)) and not _is_empty(self.begun.get(key)):
                item[key] = self.begun[key]
        item["type"] = self.kind
        if self.kind == CALL:
            item["arguments"] = self._arguments()
        if self.kind == MESSAGE and not words(item) and (parts := self._parts()):
            item["content"] = parts
        return item

    def _arguments(self) -> object:
        """Return the best of what was told: whole arguments, else broken ones, since an empty object hides those."""
        ends = [text for (name, _), text in self._ends.items() if name == "function_call_arguments"]
        pieces = "".join("".join(texts) for (name, _), texts in self._pieces.items() if name.startswith(CALL))
        told = [*_arguments(self.done), *ends, *_arguments(self.listed), pieces, self.begun.get("arguments")]
        for is_best in (says_something, _is_broken):
            if best := next(filter(is_best, told), None):
                return best
        return "" if self.done or self.listed or ends else MISSING

    def _parts(self) -> list[dict[str, Any]]:
        keys = dict.fromkeys((*self._pieces, *self._ends))
        return [
            {"type": name, _WORDS[name]: self._ends.get((name, part)) or "".join(self._pieces.get((name, part), ()))}
            for name, part in keys
            if name in _WORDS
        ]


def words(item: Mapping[str, Any]) -> str:
    """Return what a message says, a refusal included."""
    return "".join(as_word(part.get("text")) or as_word(part.get("refusal")) for part in parts_of(item))


def parts_of(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a message; some servers send its text alone."""
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _is_other_call(item: Item, other: Item) -> bool:
    """Say whether two tellings under one ``call_id`` are two calls: whole, of other items, asking differently."""
    ids = [as_word(one.get("id")) for one in (item, other)]
    told = [one.get("arguments") for one in (item, other)]
    return (not all(ids) or ids[0] != ids[1]) and all(map(says_something, told)) and not are_equal(*told)


def _says_else(item: Item, other: Item) -> bool:
    said = {text for text in (words(item).strip(), words(other).strip()) if text}
    return len(said) > 1


def _arguments(items: list[Item]) -> list[object]:
    return [item.get("arguments") for item in items]


def _is_broken(arguments: object) -> bool:
    return bool(read_arguments(arguments)[1])


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})
