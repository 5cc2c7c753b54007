"""What OpenAI's Responses API refuses of a stateless request (``store: false``), rule by rule, in its own words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from roundelay_worker.testing.fake_llm import models, seals
from roundelay_worker.testing.fake_llm.check_openai import call_name, common, functions
from roundelay_worker.testing.fake_llm.errors import openai as refused
from roundelay_worker.testing.fake_llm.refusal import (
    USUAL,
    Json,
    Refusal,
    Rules,
    as_object,
    first,
    is_list_of_objects,
    lowered,
    words,
)
from roundelay_worker.testing.fake_llm.script import MARK

_TOP = words(
    "model input instructions tools tool_choice parallel_tool_calls store include reasoning text "
    "max_output_tokens max_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention "
    "context_management truncation stream stream_options temperature top_p top_logprobs metadata user "
    "safety_identifier service_tier background previous_response_id conversation prompt moderation"
)
_KEYS: dict[str, frozenset[str]] = {
    "message": frozenset({"id", "role", "content", "status", "phase", "agent"}),
    "reasoning": frozenset({"id", "summary", "content", "encrypted_content", "status"}),
    "function_call": frozenset({"id", "call_id", "name", "arguments", "status", "namespace", "caller"}),
    "function_call_output": frozenset({"id", "call_id", "output", "status", "caller"}),
}
_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_INPUT_PARTS = ("input_text", "input_image", "input_file")
_OUTPUT_PARTS = ("output_text", "refusal")
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_LONGEST_ID = 64
_LONGEST_NAME = 128
_LONGEST_OUTPUT = 10 * 1024 * 1024
_LEAST_ROOM = 16


@dataclass(frozen=True)
class _Request:
    body: Json
    headers: dict[str, str]
    rules: Rules

    @cached_property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @cached_property
    def items(self) -> list[Json]:
        return as_items(self.body.get("input"))

    @cached_property
    def tools(self) -> list[Json]:
        return self.body.get("tools") or []


def check(body: Json, headers: Mapping[str, str], rules: Rules = USUAL) -> Refusal | None:
    """Return what the Responses API would refuse a request with, None if it would be answered."""
    return first(_Request(body, lowered(headers), rules), _RULES)


def as_items(asked: Any) -> list[Json]:
    """Return an input as items; a plain string is one message of the user."""
    return [{"role": "user", "content": asked}] if isinstance(asked, str) else asked or []


def kind_of(item: Json) -> str:
    """Return an item's type; what has a role and no type is a message."""
    return str(item.get("type") or ("message" if "role" in item else ""))


def is_model(item: Json) -> bool:
    """Say whether an item was written by the model."""
    kind = kind_of(item)
    return kind in {"reasoning", "function_call"} or (kind == "message" and item.get("role") == "assistant")


def essence(item: Json) -> Any:
    """Return what must not change of an item: everything but ids, status and signatures."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part.get("text", part.get("refusal")) for part in parts] or content or None
    summary = [part.get("text") for part in item.get("summary") or ()]
    return [
        kind_of(item),
        seals.bound_name(item.get("name")),
        as_object(item.get("arguments")),
        texts,
        summary,
        item.get("phase"),
    ]


def _envelope(request: _Request) -> Iterator[Refusal]:
    body = request.body
    yield from common(body, request.headers, request.rules)
    for name in body:
        if name not in _TOP:
            yield refused("unknown_field", f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    if body.get("previous_response_id"):
        text = f"Previous response with id '{body['previous_response_id']}' not found."
        yield refused("previous_response", text, "previous_response_id", "previous_response_not_found")
    room = body.get("max_output_tokens")
    if room is not None and room < _LEAST_ROOM:
        text = f"integer below minimum value. Expected a value >= {_LEAST_ROOM}, but got {room} instead."
        yield refused("room", f"Invalid 'max_output_tokens': {text}", "max_output_tokens", "integer_below_min_value")
    if body.get("include") and models.has(request.model, "no-include"):
        text = "Encrypted content is not supported with this model."
        yield refused("include", text, "include", "unsupported_parameter")
    yield from _parameters(request)


def _parameters(request: _Request) -> Iterator[Refusal]:
    asked = request.body.get("reasoning")
    effort = asked.get("effort") if isinstance(asked, dict) else None
    if effort is not None and (effort not in _EFFORTS or models.has(request.model, "no-effort")):
        text = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
        yield refused("effort", text, "reasoning.effort", "unsupported_parameter")
    if models.openai_refuses_temperature(request.model, effort):
        for name in ("temperature", "top_p"):
            if request.body.get(name) is not None:
                text = f"Unsupported parameter: '{name}' is not supported with this model."
                yield refused("temperature", text, name, "unsupported_parameter")
    if request.body.get("parallel_tool_calls") is not None and models.has(request.model, "no-parallel"):
        text = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
        yield refused("parallel_tool_calls", text, "parallel_tool_calls", "unsupported_parameter")


def _shape(request: _Request) -> Iterator[Refusal]:
    if not is_list_of_objects(request.items) or not request.items or request.body["input"] == "":
        yield refused("no_input", "Missing required parameter: 'input'.", "input", "missing_required_parameter")
    for place, item in enumerate(request.items):
        kind, where = kind_of(item), f"input[{place}]"
        if not kind:
            yield refused(
                "item_type", f"Missing required parameter: '{where}.type'.", where, "missing_required_parameter"
            )
        for name, value in item.items():
            known = name == "type" or name in _KEYS.get(kind, item.keys())
            if not known or (value is None and name in {"status", "content"}):
                yield refused(
                    "unknown_field", f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}", "unknown_parameter"
                )
        yield from _id(item, kind, where)
        if kind == "message":
            yield from _message(item, where)
        elif kind in {"function_call", "function_call_output"}:
            yield from _call(item, kind, where)


def _id(item: Json, kind: str, where: str) -> Iterator[Refusal]:
    identifier = item.get("id")
    if identifier is None:
        return
    prefix = _PREFIX.get(kind, "")
    if not isinstance(identifier, str) or not identifier.startswith(prefix):
        text = f"Invalid '{where}.id': '{identifier}'. Expected an ID that begins with '{prefix}'."
        yield refused("item_id", text, f"{where}.id", "invalid_value")
    elif len(identifier) > _LONGEST_ID:
        yield _too_long(f"{where}.id", len(identifier))


def _too_long(where: str, length: int) -> Refusal:
    text = f"Invalid '{where}': string too long. Expected a string with maximum length {_LONGEST_ID}, but got a string"
    return refused("long_id", f"{text} with length {length} instead.", where, "string_above_max_length")


def _message(item: Json, where: str) -> Iterator[Refusal]:
    role, content = item.get("role"), item.get("content")
    if role not in {"user", "assistant", "system", "developer"}:
        text = f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
        yield refused("role", text, f"{where}.role", "invalid_value")
    if isinstance(content, str):
        return
    if not is_list_of_objects(content) or not content:
        yield refused(
            "empty_content", f"Missing required parameter: '{where}.content'.", where, "missing_required_parameter"
        )
    allowed = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
    for number, part in enumerate(content or ()):
        if part.get("type") not in allowed:
            values = " and ".join(map(repr, allowed)) if len(allowed) == 2 else ", ".join(map(repr, allowed))  # noqa: PLR2004
            text = f"Invalid value: '{part.get('type')}'. Supported values are: {values}."
            yield refused("part_type", text, f"{where}.content[{number}]", "invalid_value")
        if part["type"] in {"input_text", "output_text"} and not isinstance(part.get("text"), str):
            text = f"Missing required parameter: '{where}.content[{number}].text'."
            yield refused("content", text, where, "missing_required_parameter")


def _call(item: Json, kind: str, where: str) -> Iterator[Refusal]:
    identifier = item.get("call_id")
    if not isinstance(identifier, str) or not identifier:
        yield refused("call_id", f"Missing required parameter: '{where}.call_id'.", where, "missing_required_parameter")
    elif len(identifier) > _LONGEST_ID:
        yield _too_long(f"{where}.call_id", len(identifier))
    names = ("name", "arguments") if kind == "function_call" else ()
    for name in names:
        if not isinstance(item.get(name), str):
            text = f"Missing required parameter: '{where}.{name}'."
            yield refused("call", text, f"{where}.{name}", "missing_required_parameter")
    if isinstance(item.get("name"), str):
        yield from call_name(item["name"], f"{where}.name", longest=_LONGEST_NAME)
    if kind == "function_call_output":
        yield from _output(item.get("output"), where)


def _output(output: Any, where: str) -> Iterator[Refusal]:
    if is_list_of_objects(output):
        for number, part in enumerate(output):
            if part.get("type") not in _INPUT_PARTS:
                text = f"Invalid value: '{part.get('type')}'."
                yield refused("part_type", text, f"{where}.output[{number}]", "invalid_value")
    elif not isinstance(output, str):
        text = f"Invalid type for '{where}.output': expected one of an array of objects or string."
        yield refused("output", text, f"{where}.output", "invalid_type")
    elif len(output) > _LONGEST_OUTPUT:
        text = f"Invalid '{where}.output': string too long."
        yield refused("output", text, f"{where}.output", "string_above_max_length")


def _pairs(request: _Request) -> Iterator[Refusal]:
    calls: dict[str, None] = {}
    waiting: dict[str, None] = {}
    ids: set[str] = set()
    for item in request.items:
        if item.get("id") in ids:
            yield refused("duplicate_id", f"Duplicate item found with id {item['id']}.", "input")
        ids.add(item.get("id") or "")
        ids.discard("")
        kind, identifier = kind_of(item), item.get("call_id", "")
        if kind == "function_call":
            if identifier in calls:
                yield refused("duplicate_id", f"Duplicate item found with call_id {identifier}.", "input")
            calls[identifier] = waiting[identifier] = None
        elif kind == "function_call_output":
            yield from _answer(identifier, calls, waiting)
            waiting.pop(identifier)
        elif waiting and kind == "message" and item["role"] != "assistant":
            yield _unanswered(waiting)
    if waiting:
        yield _unanswered(waiting)


def _answer(identifier: str, calls: Mapping[str, None], waiting: Mapping[str, None]) -> Iterator[Refusal]:
    if identifier not in calls:
        text = f"No tool call found for function call output with call_id {identifier}."
        yield refused("result_without_call", text, "input")
    elif identifier not in waiting:
        yield refused("duplicate_result", f"Duplicate item found with call_id {identifier}.", "input")


def _unanswered(waiting: Mapping[str, None]) -> Refusal:
    return refused("unanswered_call", f"No tool output found for function call {next(iter(waiting))}.", "input")


def _order(request: _Request) -> Iterator[Refusal]:
    if is_model(request.items[-1]):
        yield refused("prefill", "The last input item must not be written by the assistant.", "input")
    if not request.model.startswith("deepseek"):
        return
    open_calls, answering = 0, False
    for item in request.items:
        kind = kind_of(item)
        apart = is_model(item) and open_calls > 0 and (answering or kind != "function_call")
        if apart:
            yield refused("interleaved", "insufficient tool messages following tool_calls message", "input")
        answering = kind == "function_call_output"
        open_calls += (kind == "function_call") - answering


def _tools(request: _Request) -> Iterator[Refusal]:
    if not is_list_of_objects(request.tools):
        yield refused("tools", "Invalid type for 'tools': expected an array of objects.", "tools", "invalid_type")
    declared = [tool for tool in request.tools if tool.get("type") == "function"]
    if any("function" in tool or not isinstance(tool.get("type"), str) for tool in request.tools):
        yield refused(
            "tools", "Missing required parameter: 'tools[0].name'.", "tools[0].name", "missing_required_parameter"
        )
    yield from functions(declared, "", longest=128)
    choice = request.body.get("tool_choice")
    for name in ("tool_choice", "parallel_tool_calls"):
        if request.body.get(name) is not None and not request.tools:
            text = f"'{name}' is only allowed when 'tools' are specified"
            yield refused("choice_without_tools", text, name)
    if choice is None or choice in ("none", "auto", "required"):
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in {"function", "allowed_tools"}:
        yield refused("tool_choice", f"Invalid value: '{kind}'.", "tool_choice", "invalid_value")
    if kind == "function" and choice.get("name") not in {tool["name"] for tool in declared}:
        yield refused(
            "tool_choice", f"Tool choice '{choice.get('name')}' not found in 'tools' parameter.", "tool_choice"
        )


def _reasoning(request: _Request) -> Iterator[Refusal]:
    for place, item in enumerate(request.items):
        if kind_of(item) == "reasoning":
            yield from _following(request.items, place)
            yield from _encrypted(request, place)
    if not request.rules.stripped:
        yield from _left_out(request)


def _following(items: list[Json], place: int) -> Iterator[Refusal]:
    identifier = items[place].get("id")
    following = items[place + 1] if place + 1 < len(items) else {}
    kind = kind_of(following)
    whole = kind in {"reasoning", "function_call"} or (
        kind == "message" and is_model(following) and following.get("id")
    )
    if identifier and not whole and (kind in _KEYS or not kind):
        text = f"Item '{identifier}' of type 'reasoning' was provided without its required following item."
        yield refused("reasoning_without_item", text, "input")


def _encrypted(request: _Request, place: int) -> Iterator[Refusal]:
    item = request.items[place]
    if not item.get("encrypted_content"):
        text = (
            f"Item with id '{item.get('id', '')}' not found. Items are not persisted when `store` is set to false."
            " Try again with `store` set to true, or remove this item from your input."
        )
        yield refused("not_encrypted", text, "input", status=404)
        return
    seal = seals.read(item["encrypted_content"])
    if seal is None or seal.format != "responses" or seal.model != request.model or seal.state != "done":
        if seal is not None or not request.rules.foreign:
            text = f"The encrypted content {item['encrypted_content'][:4]}… could not be verified."
            yield refused("encrypted", text, None, "invalid_encrypted_content")
        return
    start = place - seal.place
    turn = [essence(each) for each in request.items[max(start, 0) : start + seal.size]]
    if start < 0 or seals.digest(turn) != seal.turn:
        text = f"The encrypted content of item {place} does not belong to the items around it."
        yield refused("changed_turn", text, None, "invalid_encrypted_content")


def _left_out(request: _Request) -> Iterator[Refusal]:
    marked = f"call_{seals.mark('responses', request.model)}"
    thought = False
    for item in request.items[_active(request.items) :]:
        kind = kind_of(item)
        thought = (thought or kind == "reasoning") and is_model(item)
        if kind == "function_call" and item["call_id"].startswith(marked) and not thought:
            text = f"Item '{item.get('id', item['call_id'])}' of type 'function_call' was provided without its required"
            yield refused("reasoning_left_out", f"{text} 'reasoning' item.", "input")


def _active(items: list[Json]) -> int:
    """Return where the active sequence begins: after the last words of the user that do not just follow results."""
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        steering = place > 0 and kind_of(items[place - 1]) == "function_call_output"
        if item.get("role") == "user" and (not steering or MARK in str(item["content"])):
            return place
    return 0


_RULES = (_envelope, _shape, _pairs, _order, _tools, _reasoning)
