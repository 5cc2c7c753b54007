"""An OpenAI Responses reply read from its stream, or from one body, by the same rules; pure.

Which events tell of the same item is said in ``openai_items``. Where a proxy splices replies, a reply begins anew
with the ``response.created`` of another one, and the first end is the end.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from roundelay_worker.loop.history import Call, Finish, Native, Turn
from roundelay_worker.providers.arguments import called_name, read_calls
from roundelay_worker.providers.base import ModelFailure, ModelRequest
from roundelay_worker.providers.encoding import native_text
from roundelay_worker.providers.events import ServerEvent
from roundelay_worker.providers.failures import classify_error
from roundelay_worker.providers.leaked import has_leaked_calls
from roundelay_worker.providers.loose import as_object, as_word
from roundelay_worker.providers.reading import ALIVE, Piece, TextPiece, cut_off, unreadable
from roundelay_worker.providers.responses.item import CALL, MESSAGE, Item, kind_of, parts_of, words
from roundelay_worker.providers.responses.items import Items
from roundelay_worker.providers.slices import parsed
from roundelay_worker.providers.thoughts import without_thoughts
from roundelay_worker.providers.usage import read_usage

FINISHES: Final[dict[tuple[str, str], Finish]] = {
    ("completed", ""): "complete",
    ("incomplete", "max_output_tokens"): "cut",
    ("incomplete", "max_tokens"): "cut",
    ("incomplete", "content_filter"): "refused",
    ("incomplete", "model_context_window_exceeded"): "overflow",
}
"""What ``status`` and ``incomplete_details.reason`` mean; what is not here is ``unknown``."""

_TERMINAL: Final = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_BEGUN: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_UNDER_WAY: Final = frozenset({"", "queued", "in_progress"})
_AFTER_TERMINAL: Final = 0.25
_JUNK: Final = frozenset({"id", "status", "logprobs", "parsed", "parsed_arguments"})
_OWN_ITEMS: Final = frozenset({MESSAGE, "reasoning", CALL})


class ResponsesAssembly:
    """A Responses reply under construction."""

    def __init__(self, request: ModelRequest, origin: str) -> None:
        self._tools = frozenset(tool.name for tool in request.tools)
        self._origin = origin
        self._items = Items()
        self._id = ""
        self._created = False
        self._shown = False
        self._status = ""
        self._response: Mapping[str, Any] = {}

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that the end of the body is worth."""
        return _AFTER_TERMINAL if self._status else None

    def add(self, event: ServerEvent) -> list[Piece]:
        """Take one event; raise ModelFailure for an error inside the stream."""
        if event.data.strip() == "[DONE]":
            return [ALIVE]
        try:
            value = parsed(event.data)
        except ValueError as exc:
            raise cut_off() from exc
        if not isinstance(value, dict):
            raise unreadable()
        if self._status:
            return [ALIVE]
        return [self._take(as_word(value.get("type")) or event.event, value)]

    def read_whole(self, body: bytes) -> Turn:
        """Return the turn that one body holds; raise ModelFailure for an error in it."""
        try:
            response = parsed(body.decode(errors="replace"))
        except ValueError as exc:
            raise unreadable() from exc
        if isinstance(response, list) or (isinstance(response, dict) and _is_error(response)):
            raise classify_error(response)
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise unreadable()
        self._end(as_word(response.get("status")) or "completed", response)
        return self.turn()

    def turn(self) -> Turn:
        """Return the turn; raise ModelFailure, ``reply_cut_off`` if no terminal event came."""
        if not self._status:
            raise cut_off()
        if self._status in {"cancelled", "queued", "in_progress"}:
            raise ModelFailure("provider_error", f"The model server left the reply {self._status}.")
        items = [(item, _calls(item, self._tools)) for item in self._items.whole()]
        text, calls = _visible(item for item, _ in items), tuple(call for _, called in items for call in called)
        reason = as_word(as_object(self._response.get("incomplete_details")).get("reason"))
        native = native_text([back for item, called in items for back in _going_back(item, called)])
        finish, refused = self._judged([item for item, _ in items], text, calls, reason)
        return Turn(
            text="" if finish == "refused" and not refused else text,
            calls=calls,
            finish=finish,
            cut_call=finish == "cut" and bool(calls),
            usage=read_usage(as_object(self._response.get("usage")), "input_tokens", "output_tokens"),
            native=Native(self._origin, native) if native is not None else None,
            note=reason or self._status,
        )

    def _judged(self, items: list[Item], text: str, calls: tuple[Call, ...], reason: str) -> tuple[Finish, bool]:
        """Return how the reply ended, and whether the model declined in words of its own."""
        if any(part.get("type") == "refusal" for item in items for part in parts_of(item)):
            return "refused", True
        finish = FINISHES.get((self._status, reason if self._status == "incomplete" else ""), "unknown")
        if finish != "complete":
            return finish, False
        unnamed = any(not call.name for call in calls)
        malformed = unnamed or (not calls and has_leaked_calls(text, self._tools))
        return ("malformed" if malformed else "complete"), False

    def _take(self, kind: str, event: Mapping[str, Any]) -> Piece:
        if kind == "error" or (event.get("error") and kind not in _TERMINAL):
            raise classify_error(event)
        item, place = event.get("item"), event.get("output_index")
        if kind == "response.created":
            self._begin(as_word(as_object(event.get("response")).get("id")))
        elif kind in _TERMINAL or _is_unknown_end(kind, event):
            self._end(_TERMINAL.get(kind, ""), as_object(event.get("response")))
        elif kind == "response.output_item.added" and isinstance(item, dict):
            self._items.begin(item, place)
        elif kind == "response.output_item.done" and isinstance(item, dict):
            self._items.done(item, place)
        elif kind.endswith(".delta"):
            return self._grow(kind, event)
        elif kind.endswith(".done") and kind_of(kind):
            self._items.of(kind_of(kind), event).end(kind, event)
        return ALIVE

    def _grow(self, kind: str, event: Mapping[str, Any]) -> Piece:
        piece = self._items.of(kind_of(kind), event).add(kind, event)
        self._shown = self._shown or isinstance(piece, TextPiece)
        return piece

    def _begin(self, response_id: str) -> None:
        """Begin anew with another response; the start of this one may come again, or late."""
        if self._created and not (response_id and response_id == self._id):
            if self._shown:
                raise cut_off()
            self._items = Items()
        self._created, self._id = True, response_id

    def _end(self, status: str, response: Mapping[str, Any]) -> None:
        """Take the terminal value; a status inside the response is more exact than the event's name."""
        self._status = as_word(response.get("status")) or status
        self._response = response
        if self._status == "failed":
            raise classify_error(response.get("error") or {"type": "server_error"})
        output = response.get("output")
        self._items.take_listed([item for item in output if isinstance(item, dict)] if isinstance(output, list) else [])


def _visible(items: Iterable[Item]) -> str:
    """Return what the model says to the reader: its commentary only where it says nothing else."""
    messages = [item for item in items if item.get("type") == MESSAGE]
    final = [item for item in messages if item.get("phase") != "commentary"]
    texts = (without_thoughts(words(item)) for item in (final or messages))
    return "\n\n".join(text for text in texts if text)


def _calls(item: Item, tool_names: Collection[str]) -> list[Call]:
    if item.get("type") != CALL:
        return []
    name = called_name(as_word(item.get("name")), tool_names)
    return read_calls(name, [item.get("arguments")], item.get("call_id"))


def _going_back(item: Item, calls: list[Call]) -> Iterator[Item]:
    """Yield an item as it goes back: without ids and what is only said in replies, which hold for stored ones.

    Reasoning that is neither encrypted nor told cannot be given back at all.
    """
    kind = item.get("type")
    kept = {key: value for key, value in item.items() if value is not None}
    if kind in _OWN_ITEMS:
        kept = {key: value for key, value in kept.items() if key not in _JUNK}
    if kind == CALL:
        for call in calls:
            yield kept | {"call_id": call.wire_id, "name": call.name, "arguments": call.arguments}
        return
    if kind == MESSAGE:
        kept["content"] = [{k: v for k, v in part.items() if k not in _JUNK} for part in parts_of(item)]
    if kind == "reasoning" and not kept.get("content"):
        kept.pop("content", None)
    if kind != "reasoning" or kept.keys() & {"encrypted_content", "content"}:
        yield kept


def _is_unknown_end(kind: str, event: Mapping[str, Any]) -> bool:
    """Say whether an event that this version does not know brings a whole response which is not under way any more."""
    status = as_word(as_object(event.get("response")).get("status"))
    return kind not in _BEGUN and kind.count(".") == 1 and status not in _UNDER_WAY


def _is_error(response: Mapping[str, Any]) -> bool:
    return bool(response.get("error") or response.get("detail")) and "output" not in response
