"""A neutral request written as a Chat Completions request; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from roundelay_worker.loop.history import AssistantText, Exchange, Turn, UserText
from roundelay_worker.providers.base import ModelRequest, Repair, ToolSpec
from roundelay_worker.providers.chat.servers import Limit, Server
from roundelay_worker.providers.encoding import encode, verbatim
from roundelay_worker.providers.schema import portable_schema
from roundelay_worker.providers.wire_ids import IdRule, is_accepted, wire_ids, wire_name

Message = dict[str, Any] | orjson.Fragment

NO_OUTPUT: Final = "(no output)"
"""Stands for an empty result, which some servers refuse."""

_GO_ON: Final = "Please go on."
_BRIDGE: Final = "OK."
_NINE: Final = IdRule(exact=9)
_REASONING_FIELDS: Final = ("reasoning", "thinking", "thought")
_NEVER_DROPPED: Final = frozenset({"model", "messages", "tools", "stream", "max_output_tokens"})


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """Whom a request is written for; ``origin`` says whose native blocks go back as they are."""

    model: str
    origin: str
    server: Server


def to_request(request: ModelRequest, target: ChatTarget) -> dict[str, Any]:
    """Return the request's body as plain values: exactly what ``body_of`` sends."""
    plain: dict[str, Any] = orjson.loads(body_of(request, target))
    return plain


def body_of(request: ModelRequest, target: ChatTarget) -> bytes:
    """Return the request's body as it is sent."""
    return encode(_composed(request, target))


def _composed(request: ModelRequest, target: ChatTarget) -> dict[str, Any]:
    repairs = request.repairs
    body: dict[str, Any] = {"model": target.model, "messages": list(_messages(request, target))}
    if request.tools:
        body["tools"] = _tools(request.tools)
    if request.tools and request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if "drop:max_output_tokens" not in repairs:
        body[_limit(target.server.limit, repairs)] = request.max_output_tokens
    body = {**request.extra, **body, **_options(request, target.server)}
    for repair in repairs:
        if repair.startswith("drop:") and (name := repair.removeprefix("drop:")) not in _NEVER_DROPPED:
            body.pop(name, None)
    return body


def _limit(known: Limit, repairs: frozenset[Repair]) -> Limit:
    if "rename:max_tokens" not in repairs:
        return known
    return "max_tokens" if known == "max_completion_tokens" else "max_completion_tokens"


def _options(request: ModelRequest, server: Server) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        options["reasoning_effort"] = request.reasoning_effort
    if server.cache_key and request.cache_key:
        options["prompt_cache_key"] = request.cache_key
    options["stream"] = "no_stream" not in request.repairs
    if options["stream"] and server.usage_option:
        options["stream_options"] = {"include_usage": True}
    return options


@lru_cache(maxsize=64)
def _tools(tools: tuple[ToolSpec, ...]) -> orjson.Fragment:
    """Return the declarations, written once for a set of tools."""
    declared = [
        {"name": tool.name, "description": tool.description, "parameters": portable_schema(tool)} for tool in tools
    ]
    return verbatim(orjson.dumps([{"type": "function", "function": function} for function in declared]).decode())


def _messages(request: ModelRequest, target: ChatTarget) -> Iterator[Message]:
    yield from _system(request, target)
    yield from _Conversation(request, target).messages()


def _system(request: ModelRequest, target: ChatTarget) -> Iterator[Message]:
    if not request.system or "role:user" in request.repairs:
        return
    content: Any = request.system
    if target.server.marks_cache and target.model.startswith("anthropic/"):
        content = [{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}]
    yield {"role": "developer" if "role:system" in request.repairs else "system", "content": content}


class _Conversation:
    """The history as messages: neighbours of one role are one message, results stand right behind their calls."""

    def __init__(self, request: ModelRequest, target: ChatTarget) -> None:
        self._request = request
        self._target = target
        self._bridges = "role:bridge" in request.repairs
        self._waiting: tuple[str, list[str]] = ("", [])
        self._last = ""

    def messages(self) -> Iterator[Message]:
        """Yield the messages."""
        request = self._request
        if request.system and "role:user" in request.repairs:
            yield from self._say("user", request.system)
        ids = wire_ids(request.history, _NINE if "ids:nine" in request.repairs else self._target.server.ids)
        for entry, entry_ids in zip(request.history, ids, strict=True):
            match entry:
                case UserText(text):
                    yield from self._say("user", text)
                case AssistantText(text):
                    yield from self._say("assistant", text)
                case Exchange():
                    yield from self._exchange(entry, entry_ids)
        if request.nudge:
            yield from self._say("user", request.nudge)
        yield from self._flush()
        if self._last == "assistant":
            yield {"role": "user", "content": _GO_ON}

    def _say(self, role: str, text: str) -> Iterator[Message]:
        """Join a text to its neighbour of the same role, or begin a new message."""
        if not text.strip():
            return
        if role != self._waiting[0]:
            yield from self._flush()
            self._waiting = (role, [])
        self._waiting[1].append(text)

    def _flush(self) -> Iterator[Message]:
        (role, texts), self._waiting = self._waiting, ("", [])
        if not texts:
            return
        if role == "user" and self._last == "tool" and self._bridges:
            yield {"role": "assistant", "content": _BRIDGE}
        self._last = role
        yield {"role": role, "content": "\n\n".join(texts)}

    def _exchange(self, exchange: Exchange, ids: tuple[str, ...]) -> Iterator[Message]:
        if not exchange.turn.calls:
            yield from self._paused(exchange.turn)
            return
        yield from self._flush()
        yield _assistant(exchange.turn, ids, self._target, self._request.repairs)
        for call_id, result in zip(ids, exchange.results, strict=True):
            yield {"role": "tool", "tool_call_id": call_id, "content": result.text or NO_OUTPUT}
        self._last = "tool"

    def _paused(self, turn: Turn) -> Iterator[Message]:
        """Give a turn without calls back as it came; one without any text stands for nothing here."""
        if turn.native is None or turn.native.origin != self._target.origin:
            yield from self._say("assistant", turn.text)
            return
        yield from self._flush()
        yield _assistant(turn, (), self._target, self._request.repairs)
        self._last = "assistant"


def _assistant(turn: Turn, ids: tuple[str, ...], target: ChatTarget, repairs: frozenset[Repair]) -> Message:
    """Return a turn in the server's own words where it is its own, else written from the neutral view."""
    if turn.native is None or turn.native.origin != target.origin:
        return _mended(_rebuilt(turn, ids), target.server, repairs)
    changes = {"drop_reasoning", "add:reasoning_content", "content:empty"} & repairs
    if not changes and is_accepted(turn.calls, ids):
        return verbatim(turn.native.blocks)
    message: dict[str, Any] = orjson.loads(turn.native.blocks)
    for written, call, call_id in zip(message.get("tool_calls", ()), turn.calls, ids, strict=True):
        written["id"] = call_id
        written["function"]["name"] = wire_name(call.name)
    return _mended(message, target.server, repairs)


def _rebuilt(turn: Turn, ids: tuple[str, ...]) -> dict[str, Any]:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": wire_name(call.name), "arguments": call.arguments}}
        for call, call_id in zip(turn.calls, ids, strict=True)
    ]
    return {"role": "assistant", "content": turn.text or None, "tool_calls": calls}


def _mended(message: dict[str, Any], server: Server, repairs: frozenset[Repair]) -> dict[str, Any]:
    if "drop_reasoning" in repairs:
        message = without_reasoning(message)
    if "add:reasoning_content" in repairs:
        message.setdefault("reasoning_content", "")
    if not message.get("content"):
        message["content"] = "" if server.content == "" or "content:empty" in repairs else None
    return message


def without_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assistant message without any reasoning or signature."""
    kept = {key: value for key, value in message.items() if not key.startswith(_REASONING_FIELDS)}
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [part for part in content if part.get("type") != "thinking"]
    if "tool_calls" in kept:
        kept["tool_calls"] = [{k: v for k, v in call.items() if k != "extra_content"} for call in kept["tool_calls"]]
    return kept
