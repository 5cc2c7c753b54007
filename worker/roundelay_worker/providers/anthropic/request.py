"""The request of Anthropic's Messages API, as a pure function of what is asked.

Rules borrowed from the service: all results of a turn stand in one user message, before any text; a text block
is never blank; a turn's own blocks go back as they came; the last message is the user's, but for a paused turn,
which goes back as the last one. The prefix tools, system, messages is the same bytes in each request of a run;
only the marks of the cache move (they are no part of what is cached).
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import orjson

from roundelay_worker.loop.history import AssistantText, Call, Exchange, Native, Result, UserText
from roundelay_worker.providers.base import ModelRequest, ToolSpec
from roundelay_worker.providers.encoding import encode
from roundelay_worker.providers.folding import GO_ON, NO_OUTPUT, Message, folded
from roundelay_worker.providers.schema import portable_schema
from roundelay_worker.providers.slices import elements, members, parsed, with_member
from roundelay_worker.providers.wire_ids import IdRule, is_accepted, wire_ids, wire_name

EFFORTS: Final = {"none": "", "minimal": "low"}
"""Efforts that this format spells in another way; '' is thinking switched off."""

THINKING: Final = frozenset({"thinking", "redacted_thinking"})

_IDS: Final = IdRule(longest=64)
_SAFE_LIMITS: Final = (8192, 4096)
_CACHE: Final = {"type": "ephemeral"}
_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'


def to_request(request: ModelRequest, model: str, origin: str) -> dict[str, Any]:
    """Return the request's body as plain values: exactly what ``body_of`` sends."""
    plain: dict[str, Any] = parsed(body_of(request, model, origin))
    return plain


def body_of(request: ModelRequest, model: str, origin: str) -> bytes:
    """Return the request's body as it is sent; ``origin`` says whose native blocks go back as they are."""
    body: dict[str, Any] = {
        **request.extra,
        "model": model,
        "max_tokens": _max_tokens(request),
        "stream": "no_stream" not in request.repairs,
        **_tools(request),
        **_system(request),
        "messages": [
            {"role": message.role, "content": orjson.Fragment(message.content)}
            for message in _messages(request, origin)
        ],
        **_options(request),
    }
    container = _container(request, origin)
    return encode({**body, "container": container} if container else body)


def _max_tokens(request: ModelRequest) -> int:
    """Return the output limit, which this format requires: where it was too high, one that any model takes."""
    if "drop:max_output_tokens" not in request.repairs:
        return request.max_output_tokens
    return next((limit for limit in _SAFE_LIMITS if limit < request.max_output_tokens), request.max_output_tokens)


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    choice = {"tool_choice": {"type": request.tool_choice}} if request.tool_choice else {}
    return {"tools": orjson.Fragment(_declared(request.tools, _caches(request))), **choice}


@lru_cache(maxsize=64)
def _declared(tools: tuple[ToolSpec, ...], marked: bool) -> bytes:
    """Return the declarations, written once for a set of tools; what is cached ends with the last one."""
    declared = [_tool(tool) for tool in tools]
    if marked:
        declared[-1]["cache_control"] = _CACHE
    return encode(declared)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    description = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **description, "input_schema": portable_schema(tool)}


def _system(request: ModelRequest) -> dict[str, Any]:
    if not request.system.strip():
        return {}
    mark = {"cache_control": _CACHE} if _caches_messages(request) else {}
    return {"system": [{"type": "text", "text": request.system, **mark}]}


def _options(request: ModelRequest) -> dict[str, Any]:
    """Return what a model may refuse; each can be dropped by a repair of its name."""
    options = _thinking(request.reasoning_effort) if "drop:reasoning_effort" not in request.repairs else {}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    return {name: value for name, value in options.items() if f"drop:{name}" not in request.repairs}


def _thinking(effort: str | None) -> dict[str, Any]:
    """Return nothing unless an effort is asked for: some models refuse a configuration, others think by themselves."""
    if not effort:
        return {}
    level = EFFORTS.get(effort, effort)
    if not level:
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}


def _caches(request: ModelRequest) -> bool:
    return "drop:cache_control" not in request.repairs


def _caches_messages(request: ModelRequest) -> bool:
    """Return whether a later request can profit: after the closing turn, with its own system prompt, none can."""
    return _caches(request) and request.tool_choice != "none"


def _messages(request: ModelRequest, origin: str) -> list[Message]:
    messages = folded(_pieces(request, origin))
    if messages and messages[0].role != "user":
        messages.insert(0, Message("user", [_text(GO_ON)]))
    if _caches_messages(request):
        _mark(messages)
    if messages and messages[-1].role == "assistant" and _is_paused(request, origin):
        return messages
    steering = request.nudge.strip()
    if not messages or messages[-1].role == "assistant":
        messages.append(Message("user", []))
        steering = steering or GO_ON
    if block := _text(steering):
        messages[-1].blocks.append(block)
    return messages


def _mark(messages: list[Message]) -> None:
    """Mark the last two messages of the user: where this request is written to the cache, and where the last one was.

    A nudge comes after the mark, since the next request will not have it.
    """
    for message in [message for message in messages if message.role == "user"][-2:]:
        message.blocks[-1] = message.blocks[-1][:-1] + _MARK


def _is_paused(request: ModelRequest, origin: str) -> bool:
    last = request.history[-1]
    return isinstance(last, Exchange) and _own(last, origin) is not None


def _pieces(request: ModelRequest, origin: str) -> Iterator[tuple[str, bytes]]:
    for entry, ids in zip(request.history, wire_ids(request.history, _IDS), strict=True):
        match entry:
            case UserText():
                yield "user", _text(entry.text)
            case AssistantText():
                yield "assistant", _text(entry.text)
            case Exchange():
                yield from _exchange(entry, ids, origin, drop_reasoning="drop_reasoning" in request.repairs)


def _exchange(
    exchange: Exchange, ids: tuple[str, ...], origin: str, *, drop_reasoning: bool
) -> Iterator[tuple[str, bytes]]:
    native = _own(exchange, origin)
    if native is None:
        yield "assistant", _text(exchange.turn.text)
        for call, call_id in zip(exchange.turn.calls, ids, strict=True):
            yield "assistant", _call(call, call_id)
    else:
        yield "assistant", _replayed(native, exchange.turn.calls, ids, drop_reasoning=drop_reasoning)
    for result, call_id in zip(exchange.results, ids, strict=True):
        yield "user", _result(result, call_id)


def _own(exchange: Exchange, origin: str) -> Native | None:
    native = exchange.turn.native
    return native if native is not None and native.origin == origin else None


def _replayed(native: Native, calls: tuple[Call, ...], ids: tuple[str, ...], *, drop_reasoning: bool) -> bytes:
    """Return the turn's own blocks as they came, but for what is refused: ids used before, odd names, thinking."""
    content = _content(native)
    if not drop_reasoning and is_accepted(calls, ids):
        return content.strip()[1:-1].encode()
    wanted = iter(zip(calls, ids, strict=True))
    blocks = []
    for block in elements(content):
        kind = parsed(block).get("type")
        if kind == "tool_use":
            call, call_id = next(wanted)
            named = with_member(block, "name", encode(wire_name(call.name)).decode())
            blocks.append(with_member(named, "id", encode(call_id).decode()))
        elif not (drop_reasoning and kind in THINKING):
            blocks.append(block)
    return ",".join(blocks).encode()


def _content(native: Native) -> str:
    """Return the JSON array of the blocks; a turn that ran in a container is an object that names it."""
    return native.blocks if native.blocks.startswith("[") else members(native.blocks)["content"]


def _container(request: ModelRequest, origin: str) -> str:
    """Return the id of the last container that a turn of ours ran in, '' if there was none."""
    for entry in reversed(request.history):
        native = _own(entry, origin) if isinstance(entry, Exchange) else None
        if native is not None and native.blocks.startswith("{"):
            return str(parsed(members(native.blocks)["container"]))
    return ""


def _text(text: str) -> bytes:
    return encode({"type": "text", "text": text}) if text.strip() else b""


def _call(call: Call, call_id: str) -> bytes:
    return encode(
        {"type": "tool_use", "id": call_id, "name": wire_name(call.name), "input": orjson.Fragment(call.arguments)}
    )


def _result(result: Result, call_id: str) -> bytes:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": result.text or NO_OUTPUT}
    if result.is_error:
        block["is_error"] = True
    return encode(block)
