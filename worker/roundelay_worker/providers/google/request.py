"""The request of Gemini's generateContent, as a pure function of what is asked.

Rules borrowed from the service: a model's content follows a user's; the responses to the calls of one turn stand
alone in one content, as many and in the same order; a part of the model goes back as it came, signature and all.
From Gemini 3 on the first call of each turn must be signed; one that another model made carries the documented
word that skips the check.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import orjson

from roundelay_worker.loop.history import AssistantText, Call, Exchange, Native, Result, UserText
from roundelay_worker.providers.base import ModelRequest, ToolSpec
from roundelay_worker.providers.encoding import encode
from roundelay_worker.providers.folding import GO_ON, Message, folded
from roundelay_worker.providers.schema import portable_schema, takes_nothing
from roundelay_worker.providers.slices import elements, members, parsed, with_member
from roundelay_worker.providers.wire_ids import IdRule, is_accepted, wire_ids, wire_name

UNSIGNED: Final = "skip_thought_signature_validator"
"""The signature of calls that this model did not make."""

LEVELS: Final = {"none": "minimal", "xhigh": "high", "max": "high"}
"""Efforts that ``thinkingLevel`` spells in another way."""

BUDGETS: Final = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
    "max": 24576,
}
"""Efforts as ``thinkingBudget``, the only way of Gemini 2.5; Google's own table for its OpenAI surface."""

_IDS: Final = IdRule(longest=64)
_ROLES: Final = {"user": "user", "model": "model", "results": "user"}


def to_request(request: ModelRequest, model: str, origin: str) -> dict[str, Any]:
    """Return the request's body as plain values: exactly what ``body_of`` sends."""
    plain: dict[str, Any] = parsed(body_of(request, model, origin))
    return plain


def body_of(request: ModelRequest, model: str, origin: str) -> bytes:
    """Return the request's body as it is sent; ``origin`` says whose native parts go back as they are."""
    system = {"systemInstruction": {"parts": [{"text": request.system}]}} if request.system.strip() else {}
    contents = [
        {"role": _ROLES[message.role], "parts": orjson.Fragment(message.content)}
        for message in _contents(request, model, origin)
    ]
    ours = {**system, **_tools(request), "generationConfig": _generation(request, model), "contents": contents}
    return encode({**request.extra, **ours})


def is_second_generation(model: str) -> bool:
    """Return whether the model is of Gemini 2 or older: thinking by budget, calls without signatures."""
    name = model.rpartition("/")[2]
    return name.startswith(("gemini-1", "gemini-2"))


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = {"tools": orjson.Fragment(_declared(request.tools))}
    if request.tool_choice is None:
        return tools
    return {**tools, "toolConfig": {"functionCallingConfig": {"mode": request.tool_choice.upper()}}}


@lru_cache(maxsize=64)
def _declared(tools: tuple[ToolSpec, ...]) -> bytes:
    """Return the declarations, written once for a set of tools."""
    return encode([{"functionDeclarations": [_declaration(tool) for tool in tools]}])


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    """Declare a tool; a schema without parameters is refused by this format, so it is left out."""
    schema = portable_schema(tool)
    parameters = {} if takes_nothing(schema) else {"parametersJsonSchema": schema}
    return {"name": tool.name, "description": tool.description, **parameters}


def _generation(request: ModelRequest, model: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "drop:max_output_tokens" not in request.repairs:
        options["maxOutputTokens"] = request.max_output_tokens
    if request.temperature is not None and "drop:temperature" not in request.repairs:
        options["temperature"] = request.temperature
    thinking = _thinking(request.reasoning_effort, model)
    if thinking and "drop:reasoning_effort" not in request.repairs:
        options["thinkingConfig"] = thinking
    return options


def _thinking(effort: str | None, model: str) -> dict[str, Any]:
    if not effort:
        return {}
    if not is_second_generation(model):
        return {"thinkingLevel": LEVELS.get(effort, effort)}
    return {"thinkingBudget": BUDGETS[effort]} if effort in BUDGETS else {}


def _contents(request: ModelRequest, model: str, origin: str) -> list[Message]:
    contents = folded(_pieces(request, model, origin))
    if contents and contents[0].role == "model":
        contents.insert(0, Message("user", [_text(GO_ON)]))
    steering = request.nudge.strip()
    if not contents or contents[-1].role == "model":
        steering = steering or GO_ON
    if steering:
        contents.append(Message("user", [_text(steering)]))
    return contents


def _pieces(request: ModelRequest, model: str, origin: str) -> Iterator[tuple[str, bytes]]:
    signed = not is_second_generation(model)
    for entry, ids in zip(request.history, wire_ids(request.history, _IDS), strict=True):
        match entry:
            case UserText():
                yield "user", _text(entry.text)
            case AssistantText():
                yield "model", _text(entry.text)
            case Exchange():
                native = None if "drop_reasoning" in request.repairs else entry.turn.native
                if native is not None and native.origin == origin:
                    yield from _replayed(entry, native, ids)
                else:
                    yield from _rebuilt(entry, ids, signed=signed)


def _replayed(exchange: Exchange, native: Native, ids: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Give a turn's own parts back as they came, but for ids used before and odd names; calls without an id stay so."""
    calls = exchange.turn.calls
    kept = [call_id if call.wire_id else "" for call, call_id in zip(calls, ids, strict=True)]
    same = is_accepted(calls, kept)
    yield "model", (native.blocks.strip()[1:-1] if same else _renamed(native.blocks, calls, kept)).encode()
    for call, call_id, result in zip(calls, kept, exchange.results, strict=True):
        yield "results", _response(wire_name(call.name), call_id, result)


def _renamed(blocks: str, calls: tuple[Call, ...], ids: list[str]) -> str:
    wanted = iter(zip(calls, ids, strict=True))
    parts = []
    for part in elements(blocks):
        called = members(part).get("functionCall", "")
        is_call = isinstance(parsed(called or "null"), dict)
        parts.append(with_member(part, "functionCall", _written(called, *next(wanted))) if is_call else part)
    return ",".join(parts)


def _written(called: str, call: Call, call_id: str) -> str:
    named = with_member(called, "name", encode(wire_name(call.name)).decode())
    return with_member(named, "id", encode(call_id).decode()) if call_id else named


def _rebuilt(exchange: Exchange, ids: tuple[str, ...], *, signed: bool) -> Iterator[tuple[str, bytes]]:
    """Write a turn that is not this model's own from the neutral view; only the first call of a turn is signed."""
    yield "model", _text(exchange.turn.text)
    for place, (call, call_id) in enumerate(zip(exchange.turn.calls, ids, strict=True)):
        yield "model", _call(call, call_id, UNSIGNED if signed and place == 0 else "")
    for call, call_id, result in zip(exchange.turn.calls, ids, exchange.results, strict=True):
        yield "results", _response(wire_name(call.name), call_id, result)


def _text(text: str) -> bytes:
    return encode({"text": text}) if text.strip() else b""


def _call(call: Call, call_id: str, signature: str) -> bytes:
    part: dict[str, Any] = {
        "functionCall": {"name": wire_name(call.name), "args": orjson.Fragment(call.arguments), "id": call_id}
    }
    if signature:
        part["thoughtSignature"] = signature
    return encode(part)


def _response(name: str, call_id: str, result: Result) -> bytes:
    """Return the response to one call: an object with ``output``, or with ``error``."""
    response: dict[str, Any] = {"name": name, "response": _outcome(result)}
    if call_id:
        response["id"] = call_id
    return encode({"functionResponse": response})


def _outcome(result: Result) -> dict[str, Any]:
    if not result.is_error:
        return {"output": result.text}
    try:
        error = orjson.loads(result.text)
    except orjson.JSONDecodeError:
        return {"error": result.text}
    return {"error": error["error"]} if isinstance(error, dict) and "error" in error else {"error": error}
