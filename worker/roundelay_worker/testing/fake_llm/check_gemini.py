"""What Gemini's generateContent refuses, rule by rule, in its own words.

The model stands in the URL, so the server puts it into the body (``model``, a field of the same request in
Google's own definition). Both spellings of keys are read, as the service does.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from roundelay_worker.testing.fake_llm import models, seals
from roundelay_worker.testing.fake_llm.errors import gemini as refused
from roundelay_worker.testing.fake_llm.errors import named
from roundelay_worker.testing.fake_llm.refusal import (
    USUAL,
    Json,
    Refusal,
    Rules,
    body_bytes,
    first,
    is_list_of_objects,
    key_is_valid,
    lowered,
    words,
)
from roundelay_worker.testing.fake_llm.schemas import openapi_faults
from roundelay_worker.testing.fake_llm.script import MARK

_LIMIT = 20 * 1024 * 1024
_TOP = words("model contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent labels")
_GENERATION = words(
    "maxOutputTokens temperature topP topK stopSequences thinkingConfig responseMimeType responseJsonSchema "
    "responseSchema responseModalities candidateCount seed presencePenalty frequencyPenalty responseLogprobs "
    "logprobs mediaResolution speechConfig imageConfig enableEnhancedCivicAnswers"
)
_PART = words(
    "text thought thoughtSignature functionCall functionResponse inlineData fileData executableCode "
    "codeExecutionResult videoMetadata toolCall toolResponse partMetadata mediaResolution"
)
_SKIPS = frozenset(
    {
        "skip_thought_signature_validator",
        "context_engineering_is_the_way_to_go",
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
        "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv",
    }
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_MODES = frozenset({"AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"})
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the"
    " function call turn."
)
_CALL_TURN = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_RESPONSE_TURN = "Please ensure that function response turn comes immediately after a function call turn."


@dataclass(frozen=True)
class _Request:
    body: Json
    headers: dict[str, str]
    rules: Rules

    @cached_property
    def model(self) -> str:
        return str(self.body.get("model", "")).removeprefix("models/")

    @cached_property
    def contents(self) -> list[Json]:
        return self.body.get("contents") or []

    @cached_property
    def declarations(self) -> list[Json]:
        tools = self.body.get("tools") or []
        return [each for tool in tools for each in get(tool, "functionDeclarations") or ()]


def check(body: Json, headers: Mapping[str, str], rules: Rules = USUAL) -> Refusal | None:
    """Return what generateContent would refuse a request with, None if it would be answered."""
    return first(_Request(body, lowered(headers), rules), _RULES)


def get(value: Json, name: str) -> Any:
    """Return a field by its camelCase name, whichever spelling was sent."""
    return value[name] if name in value else value.get(_snake(name))


def calls_of(parts: list[Json]) -> list[Json]:
    """Return the function calls among parts."""
    return [call for call in (get(part, "functionCall") for part in parts) if call is not None]


def essence(parts: list[Json]) -> Any:
    """Return what must not change of a turn: its visible text and its calls; text parts may be joined."""
    text = "".join(part.get("text") or "" for part in parts if not part.get("thought"))
    return [text, [(seals.bound_name(call.get("name")), call.get("args") or {}) for call in calls_of(parts)]]


def part_essence(part: Json) -> Any:
    """Return what a signature is bound to: the call that it stands on, or that it stands on text."""
    call = get(part, "functionCall")
    return [seals.bound_name(call.get("name")), call.get("args") or {}] if call else "text"


@lru_cache(maxsize=256)
def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: "_" + found.group().lower(), name)


def _unknown(value: Json, known: frozenset[str]) -> Iterator[str]:
    for name in value:
        if name not in known and re.sub(r"_(\w)", lambda found: found.group(1).upper(), name) not in known:
            yield name


def _door(request: _Request) -> Iterator[Refusal]:
    key = request.headers.get("x-goog-api-key", "")
    if request.rules.key == "":
        return
    if not key:
        text = "Method doesn't allow unregistered callers (callers without established identity)."
        yield refused(
            "no_key", f"{text} Please use API Key or other form of API consumer identity.", 403, "PERMISSION_DENIED"
        )
    elif not key_is_valid(key, request.rules):
        bad = named("gemini", "credentials")
        yield Refusal("bad_key", bad.status, bad.message, bad.body)


def _envelope(request: _Request) -> Iterator[Refusal]:
    body, model = request.body, request.model
    limit = models.number(model, "body") or request.rules.body_limit or _LIMIT
    if body_bytes(request.headers) > limit:
        yield refused("too_large", f"Request payload size exceeds the limit: {limit} bytes.", 413)
    for name in _unknown(body, _TOP):
        yield refused("unknown_field", f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
    if models.has(model, "missing"):
        text = f"models/{model} is not found for API version v1beta, or is not supported for generateContent."
        yield refused("model_not_found", text, 404, "NOT_FOUND")
    if models.has(model, "no-tools") and body.get("tools"):
        yield refused("tools_unsupported", f"Function calling is not enabled for models/{model}")
    room, size = models.number(model, "context"), body_bytes(request.headers) // 4
    if room is not None and size > room:
        text = f"The input token count ({size}) exceeds the maximum number of tokens allowed ({room})."
        yield refused("overflow", text)
    yield from _generation(get(body, "generationConfig"), model)


def _generation(config: Any, model: str) -> Iterator[Refusal]:
    if not isinstance(config, dict):
        return
    for name in _unknown(config, _GENERATION):
        text = f"Invalid JSON payload received. Unknown name \"{name}\" at 'generation_config': Cannot find field."
        yield refused("unknown_field", text)
    if config.get("temperature") is not None and models.has(model, "no-temperature"):
        yield refused("temperature", "temperature is not supported by this model.")
    thinking = get(config, "thinkingConfig") or {}
    budget = get(thinking, "thinkingBudget")
    if budget is not None and get(thinking, "thinkingLevel") is not None:
        yield refused("thinking", "You can only set only one of thinking budget and thinking level.")
    if budget == 0 and ("2.5-pro" in model or models.gemini_demands_signatures(model)):
        yield refused("budget", "Budget 0 is invalid. This model only works in thinking mode.")
    if thinking and models.has(model, "no-effort"):
        yield refused("effort", "Thinking is not supported for this model.")


def _shape(request: _Request) -> Iterator[Refusal]:
    contents = request.body.get("contents")
    if not is_list_of_objects(contents) or not contents:
        yield refused("no_contents", "* GenerateContentRequest.contents: contents is not specified")
    for place, content in enumerate(request.contents):
        where, parts = f"GenerateContentRequest.contents[{place}]", content.get("parts")
        if content.get("role") not in {"user", "model"}:
            yield refused("role", "Please use a valid role: user, model.")
        if not is_list_of_objects(parts) or not parts:
            yield refused("empty_parts", f"* {where}.parts: contents.parts must not be empty.")
        for number, part in enumerate(parts or ()):
            yield from _part(part, f"contents[{place}].parts[{number}]", content["role"])
    system = get(request.body, "systemInstruction")
    if system is not None and not (isinstance(system, dict) and system.get("parts")):
        yield refused(
            "empty_parts", "* GenerateContentRequest.system_instruction.parts: contents.parts must not be empty."
        )


def _part(part: Json, where: str, role: str) -> Iterator[Refusal]:
    for name in _unknown(part, _PART):
        text = f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
        yield refused("unknown_field", text)
    if not part.keys() - {"thought", "thoughtSignature", "thought_signature"}:
        yield refused("empty_part", f"* {where}.data: required oneof field 'data' must have one initialized field")
    call, response = get(part, "functionCall"), get(part, "functionResponse")
    if call is not None:
        yield from _call(call, where, role)
    if response is not None:
        yield from _response(response, where, role)


def _call(call: Json, where: str, role: str) -> Iterator[Refusal]:
    if role != "model":
        yield refused("part_role", f"{where}: function calls must come from the model role.")
    if not isinstance(call.get("name"), str) or not call["name"]:
        yield refused("call_name", f"* {where}.function_call.name: Name cannot be empty.")
    elif not _NAME.fullmatch(call["name"]):
        yield refused("call_name", f"* {where}.function_call.name: Invalid function name.")
    if not isinstance(call.get("args", {}), dict):
        yield refused(
            "call_args", f"Invalid value at '{where}.function_call.args' (type.googleapis.com/google.protobuf.Struct)"
        )


def _response(response: Json, where: str, role: str) -> Iterator[Refusal]:
    if role != "user":
        yield refused("part_role", f"{where}: function responses must come from the user role.")
    if not isinstance(response.get("name"), str) or not response["name"]:
        yield refused("response_name", f"* {where}.function_response.name: Name cannot be empty.")
    if not isinstance(response.get("response"), dict):
        place = f"{where}.function_response.response"
        yield refused("response_object", f"Invalid value at '{place}' (type.googleapis.com/google.protobuf.Struct)")


def _pairs(request: _Request) -> Iterator[Refusal]:
    waiting: list[Json] = []
    seen: set[str] = set()
    before = ""
    for place, content in enumerate(request.contents):
        parts, role = content["parts"], content["role"]
        if role == "model":
            calls = calls_of(parts)
            if waiting or (calls and before != "user"):
                yield refused("unanswered_call" if waiting else "call_turn", _CALL_TURN)
            for identifier in (call["id"] for call in calls if call.get("id")):
                if identifier in seen:
                    yield refused("duplicate_id", f"Duplicate function call id '{identifier}'.")
                seen.add(identifier)
            waiting = calls
        else:
            yield from _answers(parts, waiting)
            waiting = []
        if place == 0 and role == "model":
            yield refused("first_role", "Please ensure that the first content has the user role.")
        before = role
    if waiting:
        yield refused("unanswered_call", _COUNT)
    if before == "model":
        yield refused(
            "prefill", "Please ensure that single turn requests end with a user role or the role field is empty."
        )


def _answers(parts: list[Json], waiting: list[Json]) -> Iterator[Refusal]:
    responses = [found for found in (get(part, "functionResponse") for part in parts) if found is not None]
    if responses and not waiting:
        yield refused("result_without_call", _RESPONSE_TURN)
    if len(responses) != len(waiting):
        yield refused("response_count", _COUNT)
    if responses and len(responses) != len(parts):
        yield refused("mixed_parts", "Please ensure that function response parts are not mixed with other parts.")
    for call, response in zip(waiting, responses, strict=True):
        if call.get("name") != response["name"]:
            yield refused("response_order", f"{_COUNT} Function response '{response['name']}' does not match its call.")
        if call.get("id") and response.get("id") != call["id"]:
            yield refused(
                "response_id", f"Function response id '{response.get('id')}' does not match its function call."
            )


def _tools(request: _Request) -> Iterator[Refusal]:
    tools = request.body.get("tools")
    if tools is not None and not is_list_of_objects(tools):
        yield refused("tools", "Invalid value at 'tools'")
    names: set[str] = set()
    for place, declared in enumerate(request.declarations):
        where = f"tools[0].function_declarations[{place}]"
        name = declared.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            text = "Invalid function name. Must start with a letter or an underscore."
            yield refused("tool_name", f"* GenerateContentRequest.{where}.name: {text}")
        if name in names:
            yield refused("tool_names", f"Duplicate function declaration found: {name}")
        names.add(str(name))
        yield from _schema(declared, where)
    yield from _config(request)


def _schema(declared: Json, where: str) -> Iterator[Refusal]:
    parameters, schema = declared.get("parameters"), get(declared, "parametersJsonSchema")
    if parameters is not None and schema is not None:
        yield refused("schema_twice", f"{where}: only one of parameters and parameters_json_schema may be set")
    if parameters is not None:
        for fault in openapi_faults(parameters, f"{where}.parameters"):
            yield refused("schema_openapi", f"Invalid JSON payload received. {fault}")
    if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
        yield refused("schema_type", f"{where}.parameters_json_schema: schema must be of type object")


def _config(request: _Request) -> Iterator[Refusal]:
    config = get(request.body, "toolConfig")
    calling = get(config, "functionCallingConfig") if isinstance(config, dict) else None
    if calling is None:
        return
    if not request.declarations:
        yield refused("choice_without_tools", "Function calling config is set without function_declarations")
    mode, allowed = str(calling.get("mode", "AUTO")).upper(), get(calling, "allowedFunctionNames")
    if mode not in _MODES:
        yield refused("mode", f"Invalid value at 'tool_config.function_calling_config.mode' \"{mode}\"")
    if allowed and mode not in {"ANY", "VALIDATED"}:
        yield refused("allowed_names", "Allowed function names should be set only when the mode is ANY or VALIDATED.")
    if request.body.get("cachedContent"):
        yield refused("cached", "Tool config, tools and system instruction should not be set with cached content.")


def _signatures(request: _Request) -> Iterator[Refusal]:
    active = _active(request.contents)
    for place, content in enumerate(request.contents):
        if content["role"] != "model":
            continue
        for part in content["parts"]:
            signature = get(part, "thoughtSignature")
            if signature is not None and signature not in _SKIPS:
                yield from _signature(request, part, content["parts"], signature)
        if place > active and models.gemini_demands_signatures(request.model):
            yield from _unsigned(content["parts"], place)


def _signature(request: _Request, part: Json, parts: list[Json], signature: Any) -> Iterator[Refusal]:
    seal = seals.read(signature)
    if seal is None:
        if not request.rules.foreign:
            yield refused("signature", "Invalid thought signature.")
    elif seal.format != "gemini" or seal.model != request.model:
        yield refused("signature", "Corrupted thought signature.")
    elif seal.item != seals.digest(part_essence(part)) or seal.turn != seals.digest(essence(parts)):
        yield refused("changed_turn", "Corrupted thought signature.")


def _unsigned(parts: list[Json], place: int) -> Iterator[Refusal]:
    for number, part in enumerate(parts):
        call = get(part, "functionCall")
        if call is None:
            continue
        if get(part, "thoughtSignature") is None:
            yield refused(
                "unsigned_call",
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
                " correctly, and missing thought_signature may lead to degraded model performance. Additional data,"
                f" function call `default_api:{call['name']}` , position {place + number + 1}.",
            )
        return


def _active(contents: list[Json]) -> int:
    """Return where the current turn begins: the last words of the user that do not just follow results."""
    for place in range(len(contents) - 1, -1, -1):
        parts = contents[place]["parts"]
        if contents[place]["role"] != "user" or any(get(part, "functionResponse") for part in parts):
            continue
        after_results = place > 0 and any(get(part, "functionResponse") for part in contents[place - 1]["parts"])
        if not after_results or any(MARK in (part.get("text") or "") for part in parts):
            return place
    return -1


_RULES = (_door, _envelope, _shape, _pairs, _tools, _signatures)
