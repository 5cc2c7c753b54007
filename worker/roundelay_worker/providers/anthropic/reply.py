"""The reply of Anthropic's Messages API: a reply under construction, and the turn that it makes.

Intermediaries break the order of events in known ways, and each has an answer here. The same ``message_start``
twice is one start. A block that has ended and whose start is sent again stays as it is; one that is said to have
ended too early goes on. Calls are the same by their ids, whatever index they have. A start of *another* message is a
generation begun anew by someone in between: it replaces what came before, unless text of it was already shown; then
the attempt has failed, and the next one begins with a clean page.
"""

from typing import Any, Final

from roundelay_worker.loop.history import Call, Finish, Native, Turn, TurnUsage
from roundelay_worker.providers.anthropic.blocks import Block
from roundelay_worker.providers.base import ModelRequest
from roundelay_worker.providers.encoding import encode
from roundelay_worker.providers.events import ServerEvent
from roundelay_worker.providers.failures import classify_error
from roundelay_worker.providers.leaked import has_leaked_calls
from roundelay_worker.providers.loose import as_count, as_object, as_word
from roundelay_worker.providers.reading import ALIVE, NOTHING, Piece, TextPiece, Thinking, cut_off, unreadable
from roundelay_worker.providers.slices import elements, members, object_of, parsed

FINISHES: Final[dict[str, Finish]] = {
    "end_turn": "complete",
    "stop_sequence": "complete",
    "tool_use": "complete",
    "max_tokens": "cut",
    "pause_turn": "paused",
    "compaction": "paused",
    "refusal": "refused",
    "model_context_window_exceeded": "overflow",
}
"""What each stop reason means to the loop; any other is unknown."""

_LINGER: Final = 5.0
"""Seconds that ``message_stop`` is worth waiting for once the stop reason is known."""


class MessageAssembly:
    """A message under construction, fed with events; ``origin`` is what its native blocks will hold for."""

    def __init__(self, request: ModelRequest, origin: str) -> None:
        self._tool_names = frozenset(tool.name for tool in request.tools)
        self._limit = request.max_output_tokens
        self._origin = origin
        self._shown = False
        self._begin()

    def _begin(self) -> None:
        self._id = ""
        self._blocks: list[Block] = []
        self._by_index: dict[int, Block] = {}
        self._usage: dict[str, Any] = {}
        self._stop = ""
        self._container = ""
        self._over = False

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that what is still missing is worth."""
        if self._over:
            return 0.0
        return _LINGER if self._stop else None

    def add(self, event: ServerEvent) -> list[Piece]:
        """Take one event; raise ModelFailure for an error inside the stream, or an event that cannot be read."""
        if self._over or event.data.strip() == "[DONE]":
            return [ALIVE]
        try:
            content = parsed(event.data)
            if not isinstance(content, dict):
                return [NOTHING]
            return [self._take(content, event.data)]
        except ValueError as exc:
            raise unreadable() from exc

    def turn(self) -> Turn:
        """Return the turn; raise ModelFailure, ``reply_cut_off`` if no stop reason came."""
        if not self._stop and not self._over:
            raise cut_off()
        try:
            return self._turn()
        except ValueError as exc:
            raise unreadable() from exc

    def read_whole(self, body: bytes) -> Turn:
        """Return the turn that one JSON body holds; raise ModelFailure for an error in it."""
        text = body.decode(errors="replace")
        try:
            message = parsed(text)
            _check(message)
            self._blocks = [Block(raw) for raw in elements(members(text)["content"])]
            self._learn(message)
            return self._turn()
        except ValueError as exc:
            raise unreadable() from exc

    def _take(self, event: dict[str, Any], raw: str) -> Piece:
        match event.get("type"):
            case "message_start":
                self._start(as_object(event.get("message")))
            case "content_block_start":
                self._open(event.get("index"), Block(members(raw).get("content_block", "")))
            case "content_block_delta":
                return self._grow(self._at(event.get("index")), as_object(event.get("delta")))
            case "content_block_stop":
                self._at(event.get("index")).end()
            case "message_delta":
                self._learn({**as_object(event.get("delta")), "usage": event.get("usage")})
            case "message_stop":
                self._over = True
            case "error":
                raise classify_error(event)
        return ALIVE

    def _start(self, message: dict[str, Any]) -> None:
        message_id = as_word(message.get("id"))
        if self._blocks and message_id != self._id:
            if self._shown:
                raise cut_off()
            self._begin()
        self._id = message_id
        self._learn(message)

    def _open(self, index: object, block: Block) -> None:
        """Begin a block, unless it has begun: of an index used again, another kind or id makes another block."""
        known = self._by_index.get(index) if isinstance(index, int) else None
        if known is not None and known.key == block.key:
            known.begin_again()
        else:
            self._blocks.append(block)
            self._by_index[index if isinstance(index, int) else len(self._blocks) - 1] = block

    def _at(self, index: object) -> Block:
        """Return the block that an event is about; some intermediaries leave it to the order."""
        block = self._by_index.get(index) if isinstance(index, int) else next(reversed(self._blocks), None)
        if block is None:
            raise unreadable()
        return block

    def _grow(self, block: Block, delta: dict[str, Any]) -> Piece:
        text = block.grow(delta)
        if not text:
            return NOTHING
        if delta.get("type") != "text_delta":
            return Thinking(text)
        self._shown = True
        return TextPiece(text)

    def _learn(self, message: dict[str, Any]) -> None:
        """Keep what a message says about itself; usage is cumulative, so the last number counts."""
        usage = as_object(message.get("usage"))
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        self._stop = as_word(message.get("stop_reason")) or self._stop
        self._container = as_word(as_object(message.get("container")).get("id")) or self._container

    def _turn(self) -> Turn:
        self._blocks = _each_once(self._blocks)
        calls = tuple(call for block in self._blocks if (call := block.call()) is not None)
        text = "".join(block.text for block in self._blocks)
        usage = _usage(self._usage)
        finish = self._finish(text, calls, usage)
        if finish not in ("complete", "paused"):
            said = "" if finish == "refused" else text
            return Turn(said, finish=finish, usage=usage, cut_call=bool(calls), note=self._stop)
        native = Native(self._origin, self._native())
        return Turn(text, calls, finish, usage, native, note=self._stop)

    def _finish(self, text: str, calls: tuple[Call, ...], usage: TurnUsage | None) -> Finish:
        """Judge by the content first: a pause with calls goes on by their results, "complete" is only a word."""
        finish = FINISHES.get(self._stop, "unknown") if self._stop else "malformed"
        if finish not in ("complete", "paused"):
            return finish
        if any(call.fault for call in calls) and usage and usage.output_tokens >= self._limit:
            return "cut"
        if any(not call.name for call in calls) or (not calls and has_leaked_calls(text, self._tool_names)):
            return "malformed"
        return "complete" if calls else finish

    def _native(self) -> str:
        content = "[" + ",".join(block.verbatim() for block in self._blocks if not block.is_blank) + "]"
        if not self._container:
            return content
        return object_of({"container": encode(self._container).decode(), "content": content})


def _each_once(blocks: list[Block]) -> list[Block]:
    """Return the blocks without calls that were told twice; another call under a known id gets an id of its own."""
    kept: dict[tuple[str, str], Block] = {}
    for place, block in enumerate(blocks):
        key, call = block.key, block.call()
        known = kept.get(key) if call is not None and call.wire_id else None
        if known is None:
            kept[key if call is not None and call.wire_id else ("", str(place))] = block
        elif call is not None and block.says_else(known):
            block.rename(f"{call.wire_id}_{place}")
            kept[block.key] = block
        elif known.says_nothing:
            kept[key] = block
    return list(kept.values())


def _check(message: object) -> None:
    """Raise the failure that a body stands for if it is no message."""
    body = as_object(message)
    if body.get("type") == "error":
        raise classify_error(body)
    if not isinstance(body.get("content"), list):
        raise unreadable()


def _usage(usage: dict[str, Any]) -> TurnUsage | None:
    """Return the usage in neutral terms: the input includes what was read from the cache and written to it."""
    if not usage:
        return None
    cached = as_count(usage.get("cache_read_input_tokens"))
    return TurnUsage(
        input_tokens=as_count(usage.get("input_tokens")) + as_count(usage.get("cache_creation_input_tokens")) + cached,
        output_tokens=as_count(usage.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=as_count(as_object(usage.get("output_tokens_details")).get("thinking_tokens")),
    )
