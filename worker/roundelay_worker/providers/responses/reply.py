"""An OpenAI Responses reply read from its stream, or from one body, by the same rules; pure.

Items are told apart by ``output_index``: proxies change ids between events. What ``output_item.done`` brings
is final: the item as it was added, and the list in the terminal event, may lack its encrypted content.
Where a proxy splices replies, a reply begins anew with ``response.created`` and the first end is the end.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from roundelay_worker.loop.history import Call, Finish, Native, Turn, TurnUsage
from roundelay_worker.providers.arguments import read_call
from roundelay_worker.providers.base import ModelFailure, ModelRequest
from roundelay_worker.providers.events import ServerEvent
from roundelay_worker.providers.failures import classify_error
from roundelay_worker.providers.leaked import has_leaked_calls
from roundelay_worker.providers.reading import ALIVE, NOTHING, Piece, TextPiece, Thinking, cut_off, unreadable
from roundelay_worker.providers.thoughts import ThoughtFilter, without_thoughts
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
_OWN_ITEMS: Final = frozenset({"message", "reasoning", "function_call"})
_PROGRESS: Final = (".delta",)


class ResponsesAssembly:
    """A Responses reply under construction."""

    def __init__(self, request: ModelRequest, origin: str) -> None:
        self._tools = frozenset(tool.name for tool in request.tools)
        self._origin = origin
        self._items: dict[int, dict[str, Any]] = {}
        self._drafts: dict[int, _Draft] = {}
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
            value = orjson.loads(event.data)
        except orjson.JSONDecodeError as exc:
            raise cut_off() from exc
        if not isinstance(value, dict):
            raise unreadable()
        if self._status:
            return [ALIVE]
        return list(self._take(_text(value, "type") or event.event, value))

    def read_whole(self, body: bytes) -> Turn:
        """Return the turn that one body holds; raise ModelFailure for an error in it."""
        try:
            response = orjson.loads(body.strip())
        except orjson.JSONDecodeError as exc:
            raise unreadable() from exc
        if isinstance(response, list) or (isinstance(response, dict) and _is_error(response)):
            raise classify_error(response)
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise unreadable()
        self._end(_text(response, "status") or "completed", response)
        return self.turn()

    def turn(self) -> Turn:
        """Return the turn; raise ModelFailure, ``reply_cut_off`` if no terminal event came."""
        if not self._status:
            raise cut_off()
        if self._status in {"cancelled", "queued", "in_progress"}:
            raise ModelFailure("provider_error", f"The model server left the reply {self._status}.")
        items = self._output()
        text, calls = _visible(items), tuple(_call(item) for item in items if item.get("type") == "function_call")
        reason = _text(_object(self._response, "incomplete_details"), "reason")
        return Turn(
            text=text,
            calls=calls,
            finish=self._judged(items, text, calls, reason),
            usage=self._usage(),
            native=Native(self._origin, orjson.dumps(list(_going_back(items))).decode()),
            note=reason or self._status,
        )

    def _judged(self, items: list[dict[str, Any]], text: str, calls: tuple[Call, ...], reason: str) -> Finish:
        if any(part.get("type") == "refusal" for item in items for part in _parts(item)):
            return "refused"
        finish = FINISHES.get((self._status, reason if self._status == "incomplete" else ""), "unknown")
        if finish != "complete":
            return finish
        unnamed = any(not call.name for call in calls)
        return "malformed" if unnamed or (not calls and has_leaked_calls(text, self._tools)) else "complete"

    def _usage(self) -> TurnUsage | None:
        return read_usage(_object(self._response, "usage"), "input_tokens", "output_tokens")

    def _take(self, kind: str, event: Mapping[str, Any]) -> Iterator[Piece]:
        if kind == "error" or (event.get("error") and kind not in _TERMINAL):
            raise classify_error(event)
        if kind == "response.created":
            self._items, self._drafts = {}, {}
        if kind in _TERMINAL or _is_unknown_end(kind, event):
            self._end(_TERMINAL.get(kind, ""), _object(event, "response"))
            yield ALIVE
        elif kind in {"response.output_item.added", "response.output_item.done"}:
            self._take_item(event, final=kind.endswith("done"))
            yield ALIVE
        elif kind.endswith(_PROGRESS):
            yield self._draft(event).add(kind, event)
        else:
            yield ALIVE

    def _end(self, status: str, response: Mapping[str, Any]) -> None:
        """Take the terminal value; a status inside the response is more exact than the event's name."""
        self._status = _text(response, "status") or status
        self._response = response
        if self._status == "failed":
            raise classify_error(response.get("error") or {"type": "server_error"})

    def _take_item(self, event: Mapping[str, Any], *, final: bool) -> None:
        item = event.get("item")
        if not isinstance(item, dict):
            return
        if final:
            self._items[self._index(event)] = item
        else:
            index = event.get("output_index")
            self._drafts[index if isinstance(index, int) else len(self._drafts)] = _Draft(item)

    def _draft(self, event: Mapping[str, Any]) -> "_Draft":
        return self._drafts.setdefault(self._index(event), _Draft({}))

    def _index(self, event: Mapping[str, Any]) -> int:
        index = event.get("output_index")
        return index if isinstance(index, int) else max(self._drafts, default=0)

    def _output(self) -> list[dict[str, Any]]:
        """Return the items in order: as they were done, else as the end lists them, else as they grew."""
        output = self._response.get("output")
        listed = output if isinstance(output, list) else []
        drafts = {index: draft.item() for index, draft in self._drafts.items()}
        items = drafts | {at: item for at, item in enumerate(listed) if isinstance(item, dict)} | self._items
        return [items[index] for index in sorted(items) if _text(items[index], "type")]


class _Draft:
    """An item that is being streamed: kept only for servers that never say it is done."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self._item = item
        self._pieces: dict[str, list[str]] = {}
        self._thoughts: dict[object, ThoughtFilter] = {}

    def add(self, kind: str, event: Mapping[str, Any]) -> Piece:
        delta = event.get("delta")
        if not isinstance(delta, str) or not delta:
            return NOTHING
        self._pieces.setdefault(kind, []).append(delta)
        if kind == "response.refusal.delta":
            return TextPiece(delta)
        if kind != "response.output_text.delta":
            return Thinking(delta)
        seen, _ = self._thoughts.setdefault(str(event.get("content_index")), ThoughtFilter()).feed(delta)
        return TextPiece(seen) if seen else Thinking(delta)

    def item(self) -> dict[str, Any]:
        """Return the item with what has come of it."""
        item = dict(self._item)
        if arguments := self._pieces.get("response.function_call_arguments.delta"):
            item["arguments"] = "".join(arguments)
        for kind, part, key in _DRAFT_PARTS:
            if pieces := self._pieces.get(kind):
                item["type"] = "message"
                item["content"] = [{"type": part, key: "".join(pieces)}]
        return item


_DRAFT_PARTS: Final = (
    ("response.output_text.delta", "output_text", "text"),
    ("response.refusal.delta", "refusal", "refusal"),
)


def _visible(items: list[dict[str, Any]]) -> str:
    """Return what the model says to the reader: its commentary only where it says nothing else."""
    messages = [item for item in items if item.get("type") == "message"]
    final = [item for item in messages if item.get("phase") != "commentary"]
    texts = (_said(item) for item in (final or messages))
    return "\n\n".join(text for text in texts if text)


def _said(item: Mapping[str, Any]) -> str:
    texts = (_text(part, "text") or _text(part, "refusal") for part in _parts(item))
    return without_thoughts("".join(texts))


def _call(item: Mapping[str, Any]) -> Call:
    return read_call(_text(item, "name"), item.get("arguments"), item.get("call_id"))


def _going_back(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the items as they go back: without ids and what is only said in replies, which hold for stored ones.

    Reasoning that is neither encrypted nor told cannot be given back at all.
    """
    for item in items:
        kept = {key: value for key, value in item.items() if value is not None}
        if item.get("type") in _OWN_ITEMS:
            kept = {key: value for key, value in kept.items() if key not in _JUNK}
        if item.get("type") == "function_call":
            kept["arguments"] = _call(item).arguments
        if item.get("type") == "message":
            kept["content"] = [{k: v for k, v in part.items() if k not in _JUNK} for part in _parts(item)]
        if item.get("type") == "reasoning":
            if not kept.get("content"):
                kept.pop("content", None)
            if not kept.keys() & {"encrypted_content", "content"}:
                continue
        yield kept


def _is_unknown_end(kind: str, event: Mapping[str, Any]) -> bool:
    """Say whether an event that this version does not know brings a whole response which is not under way any more."""
    status = _text(_object(event, "response"), "status")
    return kind not in _BEGUN and kind.count(".") == 1 and status not in _UNDER_WAY


def _is_error(response: Mapping[str, Any]) -> bool:
    return bool(response.get("error") or response.get("detail")) and "output" not in response


def _parts(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _text(holder: Mapping[str, Any], key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def _object(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}
