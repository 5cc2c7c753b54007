"""What both of OpenAI's formats refuse: keys, sizes, models, and declarations of functions."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from roundelay_worker.testing.fake_llm import models
from roundelay_worker.testing.fake_llm.errors import openai as refused
from roundelay_worker.testing.fake_llm.refusal import Json, Refusal, Rules, bearer, body_bytes, key_is_valid
from roundelay_worker.testing.fake_llm.schemas import NO_UNION, strict_faults, top_level_unions

_LIMIT = 64 * 1024 * 1024
_MOST_TOOLS = 128


def common(body: Json, headers: dict[str, str], rules: Rules) -> Iterator[Refusal]:
    """Yield what is refused before the conversation is looked at."""
    yield from _door(headers, rules)
    model = body.get("model")
    if not isinstance(model, str) or not model:
        yield refused("no_model", "you must provide a model parameter", "model", "missing_required_parameter")
        return
    limit = models.number(model, "body") or rules.body_limit or _LIMIT
    if body_bytes(headers) > limit:
        yield refused("too_large", "Request too large", status=413)
    if models.has(model, "missing"):
        yield refused("model_not_found", f"The model `{model}` does not exist.", "model", "model_not_found", status=404)
    if models.has(model, "no-tools") and body.get("tools"):
        yield refused("tools_unsupported", f"{model} does not support tools")
    if models.has(model, "no-stream") and body.get("stream"):
        message = "Unsupported value: 'stream' does not support true with this model. Supported values are: false."
        yield refused("stream_unsupported", message, "stream", "unsupported_value")
    yield from _amounts(body, headers, model)


def _door(headers: dict[str, str], rules: Rules) -> Iterator[Refusal]:
    key = bearer(headers)
    if rules.key == "":
        return
    if not key:
        message = "You didn't provide an API key. You need to provide your API key in an Authorization header."
        yield refused("no_key", message, status=401)
    elif not key_is_valid(key, rules):
        yield refused("bad_key", "Incorrect API key provided.", None, "invalid_api_key", status=401)


def _amounts(body: Json, headers: dict[str, str], model: str) -> Iterator[Refusal]:
    temperature = body.get("temperature")
    if temperature is not None and not 0 <= temperature <= 2:  # noqa: PLR2004
        bound, code = (
            ("below minimum", "decimal_below_min_value")
            if temperature < 0
            else ("above maximum", "decimal_above_max_value")
        )
        limit = "a value >= 0" if temperature < 0 else "a value <= 2"
        message = f"Invalid 'temperature': decimal {bound} value. Expected {limit}, but got {temperature} instead."
        yield refused("temperature_range", message, "temperature", code)
    room = models.number(model, "context")
    size = body_bytes(headers) // 4
    if room is not None and size > room:
        message = (
            f"This model's maximum context length is {room} tokens. However, your messages resulted in {size} tokens."
        )
        yield refused("overflow", message, "messages", "context_length_exceeded")


def functions(declared: Sequence[Any], inside: str, longest: int) -> Iterator[Refusal]:
    """Yield what is wrong with declared functions; ``inside`` is the path from a tool to its function."""
    if len(declared) > _MOST_TOOLS:
        yield refused("too_many_tools", "Invalid 'tools': array too long.", "tools", "array_above_max_length")
    names: set[str] = set()
    for place, function in enumerate(declared):
        name = function.get("name")
        if not isinstance(name, str) or not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name):
            message = f"Invalid 'tools[{place}]{inside}.name': string does not match pattern."
            yield refused(
                "tool_name", f"{message} Expected a string that matches '^[a-zA-Z0-9_-]+$'.", "tools", "invalid_value"
            )
        if name in names:
            yield refused("tool_names", f"Duplicate function name '{name}'.", "tools")
        names.add(str(name))
        yield from _schema(function, str(name), f"tools[{place}]{inside}.parameters")


def call_name(name: str, place: str, longest: int = 64) -> Iterator[Refusal]:
    """Yield what is wrong with the name of a call in a history: the rule is that of declared ones."""
    if not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name):
        message = f"Invalid '{place}': string does not match pattern. Expected a string that matches the pattern"
        yield refused("call_name", f"{message} '^[a-zA-Z0-9_-]+$'.", place, "invalid_value")


def _schema(function: Json, name: str, place: str) -> Iterator[Refusal]:
    schema = function.get("parameters")
    prefix = f"Invalid schema for function '{name}': "
    if schema is None:
        return
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield _bad_schema(f"{prefix}schema must be a JSON Schema of 'type: \"object\"'.", place, "schema_type")
    elif top_level_unions(schema):
        yield _bad_schema(prefix + NO_UNION, place, "schema_union")
    elif function.get("strict"):
        yield from (_bad_schema(prefix + fault, place, "schema_strict") for fault in strict_faults(schema))


def _bad_schema(message: str, place: str, rule: str) -> Refusal:
    return refused(rule, message, place, "invalid_function_parameters")
