"""A neutral request written as an OpenAI Responses request that leaves nothing behind (``store: false``); pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from roundelay_worker.loop.history import AssistantText, Exchange, Turn, UserText
from roundelay_worker.providers.base import ModelRequest, ToolSpec
from roundelay_worker.providers.encoding import encode, verbatim
from roundelay_worker.providers.schema import portable_schema
from roundelay_worker.providers.wire_ids import IdRule, is_accepted, wire_ids, wire_name

Item = dict[str, Any] | orjson.Fragment

NO_OUTPUT: Final = "(no output)"
_GO_ON: Final = "Please go on."
_IDS: Final = IdRule(longest=64)
_LEAST_OUTPUT: Final = 16
_NEVER_DROPPED: Final = frozenset({"model", "input", "tools", "stream"})
_WIRE_NAMES: Final = {"reasoning_effort": "reasoning"}


@dataclass(frozen=True, slots=True)
class ResponsesTarget:
    """Whom a request is written for; ``origin`` says whose native blocks go back as they are."""

    model: str
    origin: str


def to_request(request: ModelRequest, target: ResponsesTarget) -> dict[str, Any]:
    """Return the request's body as plain values: exactly what ``body_of`` sends."""
    plain: dict[str, Any] = orjson.loads(body_of(request, target))
    return plain


def body_of(request: ModelRequest, target: ResponsesTarget) -> bytes:
    """Return the request's body as it is sent."""
    return encode(_composed(request, target))


def _composed(request: ModelRequest, target: ResponsesTarget) -> dict[str, Any]:
    body: dict[str, Any] = {"model": target.model}
    if request.tools:
        body["tools"] = _tools(request.tools, strict_is_known="drop:strict" not in request.repairs)
    if request.system:
        body["instructions"] = request.system
    body["input"] = list(_input(request, target))
    if request.tools and request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    body = {**request.extra, **body, **_options(request)}
    for repair in request.repairs:
        name = repair.removeprefix("drop:")
        if name != repair and name not in _NEVER_DROPPED:
            body.pop(_WIRE_NAMES.get(name, name), None)
    return body


def _options(request: ModelRequest) -> dict[str, Any]:
    options: dict[str, Any] = {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": max(request.max_output_tokens, _LEAST_OUTPUT),
        "stream": "no_stream" not in request.repairs,
    }
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        options["reasoning"] = {"effort": request.reasoning_effort}
    if request.cache_key:
        options["prompt_cache_key"] = request.cache_key
    return options


@lru_cache(maxsize=64)
def _tools(tools: tuple[ToolSpec, ...], *, strict_is_known: bool) -> orjson.Fragment:
    """Return the declarations, written once for a set of tools; left out, ``strict`` would be tried by the server."""
    strict = {"strict": False} if strict_is_known else {}
    declared = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": portable_schema(tool),
            **strict,
        }
        for tool in tools
    ]
    return verbatim(orjson.dumps(declared).decode())


def _input(request: ModelRequest, target: ResponsesTarget) -> Iterator[Item]:
    ids = wire_ids(request.history, _IDS)
    last = ""
    for entry, entry_ids in zip(request.history, ids, strict=True):
        match entry:
            case UserText(text) | AssistantText(text) if text.strip():
                last = "user" if isinstance(entry, UserText) else "assistant"
                yield {"role": last, "content": text}
            case Exchange(turn, results):
                yield from _turn(turn, entry_ids, target, request)
                for call_id, result in zip(entry_ids, results, strict=True):
                    yield {"type": "function_call_output", "call_id": call_id, "output": result.text or NO_OUTPUT}
                last = "output" if results else "assistant"
            case _:
                pass
    if request.nudge or last == "assistant":
        yield {"role": "user", "content": request.nudge or _GO_ON}


def _turn(turn: Turn, ids: tuple[str, ...], target: ResponsesTarget, request: ModelRequest) -> Iterator[Item]:
    """Yield a turn's items in the server's own words where it is its own, else written from the neutral view."""
    if turn.native is None or turn.native.origin != target.origin:
        yield from _rebuilt(turn, ids)
        return
    if "drop_reasoning" not in request.repairs and is_accepted(turn.calls, ids):
        if turn.native.blocks != "[]":
            yield verbatim(turn.native.blocks[1:-1])  # the items of a list, spliced into the list around them
        return
    items: list[dict[str, Any]] = orjson.loads(turn.native.blocks)
    if "drop_reasoning" in request.repairs:
        items = [item for item in items if item.get("type") != "reasoning"]
    calls = iter(zip(turn.calls, ids, strict=True))
    for item in items:
        if item.get("type") == "function_call":
            call, call_id = next(calls)
            yield {**item, "call_id": call_id, "name": wire_name(call.name)}
        else:
            yield item


def _rebuilt(turn: Turn, ids: tuple[str, ...]) -> Iterator[Item]:
    if turn.text.strip():
        yield {"role": "assistant", "content": turn.text}
    for call, call_id in zip(turn.calls, ids, strict=True):
        name = wire_name(call.name)
        yield {"type": "function_call", "call_id": call_id, "name": name, "arguments": call.arguments}
