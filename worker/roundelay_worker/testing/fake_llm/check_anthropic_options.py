"""What the Messages API refuses of everything but the conversation: keys, sizes, models, tools, options."""

import re
from collections.abc import Iterator
from typing import Any

from roundelay_worker.testing.fake_llm import models
from roundelay_worker.testing.fake_llm.anthropic_request import Request
from roundelay_worker.testing.fake_llm.errors import anthropic as refused
from roundelay_worker.testing.fake_llm.refusal import (
    Json,
    Refusal,
    bearer,
    body_bytes,
    is_list_of_objects,
    key_is_valid,
    words,
)
from roundelay_worker.testing.fake_llm.schemas import strict_faults, top_level_unions

_LIMIT = 32 * 1024 * 1024
_TOP = words(
    "model max_tokens messages system tools tool_choice stop_sequences stream thinking output_config "
    "cache_control metadata service_tier temperature top_p top_k container context_management mcp_servers"
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_LEAST_BUDGET = 1024
_MOST_MARKS = 4


def door(request: Request) -> Iterator[Refusal]:
    """Yield what is wrong with the key."""
    key, token = request.headers.get("x-api-key", ""), bearer(request.headers)
    if request.rules.key == "":
        return
    if not key and not token:
        yield refused("no_key", "x-api-key header is required", 401, "authentication_error")
    elif key and token:
        yield refused("two_keys", "only one of x-api-key and authorization may be sent", 401, "authentication_error")
    elif not key_is_valid(key or token, request.rules):
        yield refused("bad_key", "invalid x-api-key", 401, "authentication_error")


def envelope(request: Request) -> Iterator[Refusal]:
    """Yield what is wrong with version, size and fields."""
    if "anthropic-version" not in request.headers:
        yield refused("no_version", "anthropic-version: header is required")
    limit = models.number(request.model, "body") or request.rules.body_limit or _LIMIT
    if body_bytes(request.headers) > limit:
        yield refused("too_large", "Request exceeds the maximum size", 413, "request_too_large")
    for name in request.body:
        if name not in _TOP:
            yield refused("unknown_field", f"{name}: Extra inputs are not permitted")
    for name in ("model", "max_tokens", "messages"):
        if name not in request.body:
            yield refused(f"no_{name}", f"{name}: Field required")
    room = request.body.get("max_tokens")
    if not isinstance(room, int) or room < 0:
        yield refused("bad_max_tokens", "max_tokens: Input should be greater than or equal to 1")


def model(request: Request) -> Iterator[Refusal]:
    """Yield what this model refuses."""
    model, body = request.model, request.body
    if models.has(model, "missing"):
        yield refused("model_not_found", f"model: {model}", 404, "not_found_error")
    if models.has(model, "no-tools") and request.tools:
        yield refused("tools_unsupported", f"{model} does not support tools")
    if models.has(model, "no-stream") and body.get("stream"):
        yield refused("stream_unsupported", "stream: streaming is not supported on this model")
    yield from _sampling(request)
    room = models.number(model, "context")
    size = body_bytes(request.headers) // 4
    if room is not None and size > room:
        yield refused("overflow", f"prompt is too long: {size} tokens > {room} maximum")


def _sampling(request: Request) -> Iterator[Refusal]:
    for name, usual in (("temperature", 1), ("top_p", None), ("top_k", None)):
        value = request.body.get(name)
        if value is None:
            continue
        changed = "sonnet" in request.model and models.claude_generation(request.model) >= (5, 0) and value != usual
        if changed or models.claude_refuses_sampling(request.model):
            yield refused("sampling", f"{name}: is not supported on this model")
        elif name == "temperature" and value != 1 and request.thinking in {"enabled", "adaptive"}:
            yield refused("sampling", "`temperature` may only be set to 1 when thinking is enabled.")


def tools(request: Request) -> Iterator[Refusal]:
    """Yield what is wrong with the declared tools, or that history needs some."""
    if not is_list_of_objects(request.tools):
        yield refused("tools", "tools: Input should be a valid list")
        return
    names: set[str] = set()
    for place, tool in enumerate(request.tools):
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield refused("tool_name", f"tools.{place}.custom.name: String should match pattern '{_NAME.pattern}'")
        if name in names:
            yield refused("tool_names", "tools: Tool names must be unique.")
        names.add(str(name))
        if tool.get("type", "custom") == "custom":
            yield from _schema(tool, f"tools.{place}.custom")
    if not request.tools and any(b["type"] in {"tool_use", "tool_result"} for _, _, run in request.turns for b in run):
        yield refused(
            "history_needs_tools", "Requests which include `tool_use` or `tool_result` blocks must define tools."
        )


def _schema(tool: Json, place: str) -> Iterator[Refusal]:
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        yield refused("schema", f"{place}.input_schema: Field required")
        return
    if schema.get("type") != "object":
        yield refused("schema_type", f"{place}.input_schema.type: Input should be 'object'")
    if top_level_unions(schema):
        yield refused(
            "schema_union",
            f"{place}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        )
    if tool.get("strict"):
        yield from (refused("schema_strict", f"{place}.input_schema: {fault}") for fault in strict_faults(schema))


def choice(request: Request) -> Iterator[Refusal]:
    """Yield what is wrong with the tool choice."""
    choice = request.body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in {"auto", "any", "tool", "none"}:
        yield refused("tool_choice", "tool_choice: Input tag should be one of 'auto', 'any', 'tool', 'none'")
    if not request.tools:
        yield refused("choice_without_tools", "tool_choice may only be specified while providing `tools`.")
    if kind == "none" and "disable_parallel_tool_use" in choice:
        yield refused("tool_choice", "tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted")
    if kind == "tool" and choice.get("name") not in {tool["name"] for tool in request.tools}:
        yield refused("tool_choice", f"Tool '{choice.get('name')}' not found in provided tools")
    if kind in {"any", "tool"} and request.thinking == "enabled":
        yield refused("forced_thinking", "Thinking may not be enabled when tool_choice forces tool use.")
    if kind in {"any", "tool"} and ("fable" in request.model or "mythos" in request.model):
        yield refused("forced_tool", "tool_choice: forcing tool use is not supported on this model")


def thinking(request: Request) -> Iterator[Refusal]:
    """Yield what is wrong with the thinking configuration."""
    asked, model = request.body.get("thinking"), request.model
    if isinstance(asked, dict):
        if request.thinking not in {"enabled", "adaptive", "disabled"}:
            yield refused("thinking", "thinking: Input tag should be one of 'enabled', 'adaptive', 'disabled'")
        if request.thinking == "enabled":
            yield from _budget(request, asked.get("budget_tokens"))
        if request.thinking == "disabled" and ("fable" in model or "mythos" in model):
            yield refused("thinking_off", "thinking.type.disabled: is not supported on this model")
    yield from _effort(request)


def _budget(request: Request, budget: Any) -> Iterator[Refusal]:
    if models.claude_refuses_budgets(request.model):
        yield refused("thinking_enabled", "thinking.type.enabled: is not supported on this model. Use adaptive.")
    if not isinstance(budget, int) or budget < _LEAST_BUDGET:
        yield refused("budget", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    elif budget >= request.body["max_tokens"]:
        yield refused("budget", "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _effort(request: Request) -> Iterator[Refusal]:
    asked = request.body.get("output_config")
    effort = asked.get("effort") if isinstance(asked, dict) else None
    levels = {"low", "medium", "high", "max"} | (
        {"xhigh"} if models.claude_generation(request.model) >= (4, 7) else set()
    )
    if effort is not None and (effort not in levels or models.has(request.model, "no-effort")):
        yield refused(
            "effort",
            f"This model does not support effort level '{effort}'. Supported levels: {', '.join(sorted(levels))}.",
        )


def cache(request: Request) -> Iterator[Refusal]:
    """Yield what is wrong with marks for the cache and the system prompt."""
    system = request.body.get("system")
    places = [*request.tools, *(system if isinstance(system, list) else ()), request.body]
    places += [block for _, _, run in request.turns for block in run]
    marks = sum(1 for place in places if place.get("cache_control"))
    if marks > _MOST_MARKS:
        yield refused("cache", f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    if isinstance(system, list):
        for block in system:
            if not str(block.get("text", "")).strip():
                yield refused("empty_text", "system: text content blocks must be non-empty")
