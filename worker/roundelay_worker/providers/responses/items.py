"""The items of a Responses reply, joined from all that its events tell of them; pure.

Two tellings are of one item when its ``call_id`` or its ``id`` says so; two ``call_id`` are two calls, whatever else
they share. Positions (``output_index``) are no identity: servers count from one, leave gaps, and give one position to
several items. A position is believed where there is nothing else to go by: for a piece that names no known item, and
for an item still under way that comes back with another id, as proxies make one for each event.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from roundelay_worker.providers.loose import as_word
from roundelay_worker.providers.responses.item import CALL, MESSAGE, GrowingItem, Item, words

_OPEN: Final = object()
"""Stands in a key for the words of an item that never was done."""


class Items:
    """The items of one reply, in the order they were first told of."""

    def __init__(self) -> None:
        self._items: list[GrowingItem] = []
        self._by_name: dict[tuple[str, str], GrowingItem] = {}
        self._at: dict[int, GrowingItem] = {}

    def begin(self, item: Item, place: object) -> None:
        """Take an item as it begins."""
        growing = self._named(item)
        if growing is None:
            under_way = self._under_way(item, place)
            growing = under_way if under_way is not None and not under_way.begun else self._new(item)
        growing.begun = growing.begun or item
        self._note(growing, item, place)

    def done(self, item: Item, place: object) -> None:
        """Take an item as it is done."""
        growing = self._named(item)
        if growing is None or growing.is_another(item):
            growing = self._under_way(item, place) or self._again(item, place) or self._new(item)
        growing.done.append(item)
        self._note(growing, item, place)

    def of(self, kind: str, event: Mapping[str, Any]) -> GrowingItem:
        """Return the item that a piece belongs to; ``kind`` is the type of such items, '' for any."""
        place = position(event.get("output_index"))
        named = self._by_name.get(("id", as_word(event.get("item_id"))))
        placed = self._at.get(place) if place is not None else next(reversed(self._items), None)
        growing = next((one for one in (named, placed) if one is not None and one.may_be(kind)), None)
        if growing is None:
            growing = self._new({"type": kind})
            self._note(growing, {"id": event.get("item_id")}, place)
        return growing

    def take_listed(self, items: Iterable[Item]) -> None:
        """Take the items as the end of the reply lists them: those that a name finds, then those that are alike."""
        unnamed: list[tuple[int, Item]] = []
        for rank, item in enumerate(items):
            growing = self._named(item)
            if growing is None or growing.is_listed_beside(item):
                unnamed.append((rank, item))
            else:
                growing.take_listed(item, rank)
        alike = _Alike(self._items)
        places = {growing.rank: growing.place for growing in self._items if growing.listed}
        for rank, item in unnamed:
            growing = self._repeated(item) or alike.take(item) or self._new(item, places.get(rank - 1, -1))
            growing.take_listed(item, rank)
            places[rank] = growing.place
            self._note(growing, item, None)

    def _repeated(self, item: Item) -> GrowingItem | None:
        """Return the item that an entry before this one in the list gave the name to."""
        growing = self._named(item)
        if growing is None or not growing.is_listed_beside(item):
            return growing
        call_id = as_word(item.get("call_id"))
        same = (one for one in self._items if call_id and one.call_id == call_id and not one.listed)
        return next((one for one in same if not one.is_listed_beside(item)), None)

    def whole(self) -> list[Item]:
        """Return the items as they stand: ordered as the end lists them if it has all, else by position.

        What only stray pieces tell counts where nothing else of its kind was told.
        """
        told = {growing.kind for growing in self._items if growing.is_told}
        kept = [growing for growing in self._items if growing.kind and (growing.is_told or growing.kind not in told)]
        if all(growing.listed for growing in kept):
            kept.sort(key=lambda growing: growing.rank)
        else:
            kept.sort(key=lambda growing: growing.place)
        return [growing.whole() for growing in kept]

    def _named(self, item: Item) -> GrowingItem | None:
        """Return the item with the same ``call_id``, else the one with the same ``id`` and no other ``call_id``."""
        known = (self._by_name.get((key, as_word(item.get(key)))) for key in ("call_id", "id"))
        return next((one for one in known if one is not None and one.may_be_told_by(item)), None)

    def _under_way(self, item: Item, place: object) -> GrowingItem | None:
        """Return the item that is under way at this place, unless something contradicts that it is this one."""
        known = self._at.get(at) if (at := position(place)) is not None else None
        return known if known is not None and not known.done and known.may_be_told_by(item) else None

    def _again(self, item: Item, place: object) -> GrowingItem | None:
        """Return the item that was done in this place in the very same words; one with a name is known by that."""
        known = self._at.get(at) if (at := position(place)) is not None else None
        return known if known is not None and not known.named and item in known.done[:1] else None

    def _new(self, item: Item, place: int | None = None) -> GrowingItem:
        before = self._items[-1].place if self._items else 0
        self._items.append(GrowingItem(as_word(item.get("type")), before if place is None else place))
        return self._items[-1]

    def _note(self, growing: GrowingItem, item: Mapping[str, Any], place: object) -> None:
        """Remember the names and the place that an item was told under; the first of a name keeps it."""
        growing.call_id = growing.call_id or as_word(item.get("call_id"))
        if not growing.kind or growing.call_id:  # what has the id of a call may first be told under another type
            growing.kind = as_word(item.get("type")) or growing.kind
        for key in ("call_id", "id"):
            if name := as_word(item.get(key)):
                growing.named = True
                self._by_name.setdefault((key, name), growing)
        if (at := position(place)) is not None:
            growing.stand(at)
            self._at[at] = growing


class _Alike:
    """Items that the end of the reply may list under other names, or under none."""

    def __init__(self, items: Iterable[GrowingItem]) -> None:
        self._waiting: defaultdict[object, deque[GrowingItem]] = defaultdict(deque)
        for growing in items:
            if not growing.listed:
                item = growing.whole()
                self._waiting[_key(item, bool(growing.call_id))].append(growing)
                if not growing.done:
                    self._waiting[_key(item, bool(growing.call_id), open_=True)].append(growing)

    def take(self, item: Item) -> GrowingItem | None:
        """Return the next one that is alike: a call with an id is only like one without; open words may be any."""
        has_ids = (False,) if as_word(item.get("call_id")) else (False, True)
        for key in (_key(item, has_id, open_=open_) for open_ in (False, True) for has_id in has_ids):
            waiting = self._waiting[key]
            while waiting:
                if not (growing := waiting.popleft()).listed:
                    return growing
        return None


def _key(item: Item, has_id: bool, *, open_: bool = False) -> object:
    kind = as_word(item.get("type"))
    if kind == CALL:
        return kind, has_id, as_word(item.get("name")), _OPEN if open_ else str(item.get("arguments"))
    return (kind, _OPEN if open_ else words(item).strip()) if kind == MESSAGE else kind


def position(value: object) -> int | None:
    """Return the value if it is a position, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
