"""What Chat Completions refuses: OpenAI's rules, and those of compatible servers that a safe client also keeps."""

import json
import re
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
    "model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens "
    "max_completion_tokens temperature top_p n stop seed frequency_penalty presence_penalty logit_bias logprobs "
    "top_logprobs user store metadata response_format reasoning_effort service_tier prompt_cache_key "
    "prompt_cache_retention safety_identifier verbosity prediction modalities web_search_options functions "
    "function_call reasoning provider usage transforms enable_thinking thinking chat_template_kwargs top_k "
    "min_p options"
)
_MESSAGE = words(
    "role content name tool_calls tool_call_id refusal reasoning_content reasoning reasoning_details "
    "annotations audio function_call prefix cache_control extra_content"
)
_ROLES = ("system", "developer", "user", "assistant", "tool")
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_LONGEST_ID = 40


@dataclass(frozen=True)
class _Request:
    body: Json
    headers: dict[str, str]
    rules: Rules

    @cached_property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @cached_property
    def messages(self) -> list[Json]:
        return self.body.get("messages") or []

    @cached_property
    def tools(self) -> list[Json]:
        return self.body.get("tools") or []


def check(body: Json, headers: Mapping[str, str], rules: Rules = USUAL) -> Refusal | None:
    """Return what Chat Completions would refuse a request with, None if it would be answered."""
    return first(_Request(body, lowered(headers), rules), _RULES)


def essence(message: Json) -> Any:
    """Return what must not change of a reply: its text and its calls without their ids."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [(seals.bound_name(function["name"]), as_object(function["arguments"])) for function in functions]
    return [message.get("content") or "", calls]


def _envelope(request: _Request) -> Iterator[Refusal]:
    body, model = request.body, request.model
    yield from common(body, request.headers, request.rules)
    for name in body:
        if name not in _TOP:
            yield refused("unknown_field", f"Unrecognized request argument supplied: {name}")
    if body.get("stream_options") is not None and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield refused("stream_options", message, "stream_options")
    renamed = "is not supported with this model. Use"
    if body.get("max_tokens") is not None and models.openai_renamed_max_tokens(model):
        message = f"Unsupported parameter: 'max_tokens' {renamed} 'max_completion_tokens' instead."
        yield refused("max_tokens", message, "max_tokens", "unsupported_parameter")
    if body.get("max_completion_tokens") is not None and models.has(model, "no-max-completion-tokens"):
        message = f"Unsupported parameter: 'max_completion_tokens' {renamed} 'max_tokens' instead."
        yield refused("max_tokens", message, "max_completion_tokens", "unsupported_parameter")
    effort = body.get("reasoning_effort")
    if models.openai_refuses_temperature(model, effort) and body.get("temperature", 1) != 1:
        message = "Unsupported parameter: 'temperature' is not supported with this model."
        yield refused("temperature", message, "temperature", "unsupported_parameter")
    yield from _unsupported(request)


def _unsupported(request: _Request) -> Iterator[Refusal]:
    flags = {"stop": "no-stop", "stream_options": "no-usage", "parallel_tool_calls": "no-parallel"}
    for name, flag in {**flags, "reasoning_effort": "no-effort"}.items():
        by_name = name == "stop" and request.model.startswith("gpt-5")
        if request.body.get(name) is not None and (by_name or models.has(request.model, flag)):
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            yield refused(name, message, name, "unsupported_parameter")


def _shape(request: _Request) -> Iterator[Refusal]:
    if not is_list_of_objects(request.body.get("messages")) or not request.messages:
        text = "empty array. Expected an array with minimum length 1, but got an empty array instead."
        yield refused("no_messages", f"Invalid 'messages': {text}", "messages", "empty_array")
    for place, message in enumerate(request.messages):
        where = f"messages[{place}]"
        yield from _role(request, message.get("role"), where)
        for name in message.keys() - _MESSAGE:
            yield refused("unknown_field", f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}")
        if message["role"] == "assistant":
            yield from _assistant(request, message, where)
        else:
            yield from _content(message, where)


def _role(request: _Request, role: Any, place: str) -> Iterator[Refusal]:
    if role not in _ROLES:
        message = f"Invalid value: '{role}'. Supported values are: {', '.join(map(repr, _ROLES))}."
        yield refused("role", message, f"{place}.role", "invalid_value")
    refuses = models.has(request.model, f"no-{role}") or request.model.startswith("o1-mini")
    if role in {"system", "developer"} and refuses:
        message = f"Unsupported value: '{place}.role' does not support '{role}' with this model."
        yield refused("role", message, f"{place}.role", "unsupported_value")


def _content(message: Json, place: str) -> Iterator[Refusal]:
    content = message.get("content")
    if isinstance(content, str) or (is_list_of_objects(content) and content):
        yield from _parts(content, message["role"], place)
    elif content == []:
        yield refused("empty_content", f"Invalid '{place}.content': empty array.", f"{place}.content", "empty_array")
    else:
        found = "null" if content is None else type(content).__name__
        text = f"Invalid value for 'content': expected a string, got {found}."
        yield refused("content", text, f"{place}.content")


def _parts(content: Any, role: str, place: str) -> Iterator[Refusal]:
    if isinstance(content, str):
        return
    allowed = {"text", "image_url", "input_audio", "file"} if role == "user" else {"text"}
    for number, part in enumerate(content):
        if part.get("type") not in allowed:
            text = "Content blocks are expected to be either text or image_url type"
            yield refused("part_type", text, f"{place}.content[{number}].type")
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            yield refused("content", f"Missing required parameter: '{place}.content[{number}].text'.", place)


def _assistant(request: _Request, message: Json, place: str) -> Iterator[Refusal]:
    content, calls = message.get("content"), message.get("tool_calls")
    if calls == []:
        text = f"Invalid '{place}.tool_calls': empty array. Expected an array with minimum length 1."
        yield refused("empty_calls", text, f"{place}.tool_calls", "empty_array")
    if not content and not calls:
        yield refused(
            "empty_assistant", f"Invalid assistant message: '{place}' has neither content nor tool calls.", place
        )
    if content is None and models.has(request.model, "no-null-content"):
        yield refused("null_content", "invalid message content type: <nil>", place)
    if content == "" and models.has(request.model, "no-empty-content"):
        yield refused("empty_content", f"'{place}.content' must not be empty", place)
    if content is not None and not isinstance(content, (str, list)):
        yield refused("content", "Invalid value for 'content': expected a string.", f"{place}.content")
    for number, call in enumerate(calls or ()):
        yield from _call(request, call, f"{place}.tool_calls[{number}]")
    if calls and models.chat_needs_reasoning(request.model):
        yield from _reasoning_content(message)


def _reasoning_content(message: Json) -> Iterator[Refusal]:
    if not isinstance(message.get("reasoning_content"), str):
        yield refused("reasoning_content", "The reasoning_content in the thinking mode must be passed back to the API.")


def _call(request: _Request, call: Any, place: str) -> Iterator[Refusal]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        yield refused(
            "call", f"Missing required parameter: '{place}.function.name'.", place, "missing_required_parameter"
        )
        return
    yield from call_name(function["name"], f"{place}.function.name")
    if call.get("type") != "function":
        yield refused("call_type", f"Missing required parameter: '{place}.type'.", place, "missing_required_parameter")
    if not isinstance(function.get("arguments"), str) or not _is_object(function["arguments"]):
        yield refused("arguments", "invalid tool call arguments", f"{place}.function.arguments")
    identifier = call.get("id")
    if not isinstance(identifier, str) or not identifier:
        yield refused("call_id", f"Missing required parameter: '{place}.id'.", place, "missing_required_parameter")
    elif len(identifier) > _LONGEST_ID:
        text = f"Invalid '{place}.id': string too long. Expected a string with maximum length {_LONGEST_ID}, but got a"
        yield refused(
            "call_id", f"{text} string with length {len(identifier)} instead.", place, "string_above_max_length"
        )
    elif "mistral" in request.model and not _MISTRAL_ID.fullmatch(identifier):
        text = f"Tool call id was {identifier} but must be a-z, A-Z, 0-9, with a length of 9."
        yield refused("call_id", text, place, "invalid_request")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except json.JSONDecodeError:
        return False


def _pairs(request: _Request) -> Iterator[Refusal]:
    waiting: dict[str, None] = {}
    seen: set[str] = set()
    before = ""
    for place, message in enumerate(request.messages):
        role = message["role"]
        if role == "tool":
            yield from _answer(message, waiting, place)
            waiting.pop(message["tool_call_id"])
        elif waiting:
            yield _unanswered(waiting)
        if role == "user" and before == "tool" and models.has(request.model, "no-user-after-tool"):
            yield refused("user_after_tool", "Unexpected role 'user' after role 'tool'")
        for call in message.get("tool_calls") or ():
            if call["id"] in seen:
                yield refused(
                    "duplicate_id", f"Duplicate value for 'tool_call_id' of '{call['id']}' in message[{place}]"
                )
            seen.add(call["id"])
            waiting[call["id"]] = None
        before = role
    if waiting:
        yield _unanswered(waiting)
    if before == "assistant":
        text = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
        yield refused("prefill", text)


def _answer(message: Json, waiting: Mapping[str, None], place: int) -> Iterator[Refusal]:
    if not isinstance(message.get("tool_call_id"), str):
        text = f"Missing required parameter: 'messages[{place}].tool_call_id'."
        yield refused("result_id", text, f"messages[{place}]", "missing_required_parameter")
    elif message["tool_call_id"] not in waiting:
        text = (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        )
        yield refused("result_without_call", text, f"messages.[{place}].role")


def _unanswered(waiting: Mapping[str, None]) -> Refusal:
    return refused(
        "unanswered_call",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
        f" The following tool_call_ids did not have response messages: {', '.join(waiting)}",
        "messages",
    )


def _tools(request: _Request) -> Iterator[Refusal]:
    if request.body.get("tools") == []:
        yield refused("empty_tools", "[] is too short - 'tools'", "tools")
    if not is_list_of_objects(request.tools):
        yield refused("tools", "Invalid type for 'tools': expected an array of objects.", "tools")
    declared = [tool.get("function") for tool in request.tools if tool.get("type") == "function"]
    if len(declared) < len(request.tools) or not is_list_of_objects(declared):
        yield refused(
            "tools", "Missing required parameter: 'tools[0].function'.", "tools", "missing_required_parameter"
        )
    yield from functions(declared, ".function", longest=64)
    yield from _choice(request, {str(function["name"]) for function in declared if function})


def _choice(request: _Request, names: set[str]) -> Iterator[Refusal]:
    for name in ("tool_choice", "parallel_tool_calls"):
        if request.body.get(name) is not None and not request.tools:
            text = f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
            yield refused("choice_without_tools", text, name)
    choice = request.body.get("tool_choice")
    if choice is None or choice in ("none", "auto", "required"):
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in {"function", "allowed_tools"}:
        yield refused("tool_choice", f"Invalid value: '{kind}'. Supported values are: 'none', 'auto', and 'required'.")
    wanted = choice.get("function", {}).get("name")
    if kind == "function" and wanted not in names:
        yield refused("tool_choice", f"Tool choice '{wanted}' not found in 'tools' parameter.", "tool_choice")


def _reasoning(request: _Request) -> Iterator[Refusal]:
    said = [place for place, message in enumerate(request.messages) if _is_said(request.messages, place, message)]
    active = said[-1] if said else -1
    marked = f"call_{seals.mark('chat', request.model)}" if models.chat_signs_reasoning(request.model) else "no id"
    for place, message in enumerate(request.messages):
        if message["role"] != "assistant":
            continue
        details = message.get("reasoning_details") or []
        yield from _signatures(request, message, details, place)
        thought = any(call["id"].startswith(marked) for call in message.get("tool_calls") or ())
        if thought and not details and place > active and not request.rules.stripped:
            text = f"messages[{place}]: reasoning_details of the turn must be passed back with its tool calls."
            yield refused("reasoning_left_out", text, f"messages[{place}]")


def _is_said(messages: list[Json], place: int, message: Json) -> bool:
    steering = place > 0 and messages[place - 1]["role"] == "tool" and MARK not in str(message.get("content"))
    return bool(message["role"] == "user" and not steering)


def _signatures(request: _Request, message: Json, details: Any, place: int) -> Iterator[Refusal]:
    if not is_list_of_objects(details):
        yield refused("reasoning_details", f"Invalid 'messages[{place}].reasoning_details'.", f"messages[{place}]")
    thought = "".join(detail.get("text") or "" for detail in details)
    for signature in (detail["signature"] for detail in details if detail.get("signature")):
        seal = seals.read(signature)
        if seal is None or seal.model != request.model:
            if not request.rules.foreign:
                yield refused("signature", f"messages[{place}]: Invalid signature in reasoning_details.", "messages")
        elif seal.turn != seals.digest([essence(message), thought]):
            yield refused("changed_turn", f"messages[{place}]: reasoning cannot be modified.", "messages")


_RULES = (_envelope, _shape, _pairs, _tools, _reasoning)
