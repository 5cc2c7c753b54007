"""Each refusal of the Messages API: a minimal offending request, and the nearest one that is accepted."""

from typing import Any

import pytest

from roundelay_worker.testing.fake_llm import CHECKS, Rules

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
OBJECT = {"type": "object", "properties": {}}
TOOL = {"name": "add", "input_schema": OBJECT}
AUTO = {"type": "auto"}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def model(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(words: str = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(identifier: str = "t1", **changes: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identifier, "name": "add", "input": {}, **changes}


def result(identifier: str = "t1", **changes: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": identifier, "content": "2", **changes}


def ask(*messages: Any, **changes: Any) -> dict[str, Any]:
    body = {"model": "claude-opus-4-6", "max_tokens": 100, "messages": list(messages) or [user(text())], **changes}
    return {name: value for name, value in body.items() if value is not None}


def tooled(*messages: Any, **changes: Any) -> dict[str, Any]:
    return ask(*messages, **{"tools": [TOOL], **changes})


def schema(changed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return ask(tools=[{"name": "add", "input_schema": changed, **more}])


ROUND = [user(text()), model(call()), user(result())]
TWO = [user(text()), model(call("t1"), call("t2"))]
THINK = {"type": "enabled", "budget_tokens": 1024}
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False, "required": ["a"]}
PAUSED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}

ROWS = [
    ("unknown_field", "foo: Extra inputs", ask(metadata={}), ask(foo=1)),
    ("no_model", "model: Field required", ask(), ask(model=None)),
    ("no_max_tokens", "max_tokens: Field required", ask(), ask(max_tokens=None)),
    ("no_messages", "messages: Field required", ask(), {"model": "m", "max_tokens": 1}),
    ("bad_max_tokens", "max_tokens", ask(max_tokens=0), ask(max_tokens=-1)),
    ("model_not_found", "model: fake-missing", ask(model="fake"), ask(model="fake-missing")),
    ("tools_unsupported", "does not support tools", ask(model="fake-no-tools"), tooled(model="fake-no-tools")),
    ("stream_unsupported", "stream", ask(model="fake-no-stream"), ask(model="fake-no-stream", stream=True)),
    ("sampling", "temperature", ask(temperature=0.5), ask(model="claude-opus-4-7", temperature=0.5)),
    ("sampling", "temperature", ask(model="fake", temperature=0.5), ask(model="fake-no-temperature", temperature=0.5)),
    (
        "sampling",
        "temperature",
        ask(model="claude-sonnet-5", temperature=1),
        ask(model="claude-sonnet-5", temperature=0),
    ),
    (
        "sampling",
        "may only be set to 1 when thinking",
        ask(temperature=1, thinking={"type": "adaptive"}),
        ask(temperature=0, thinking={"type": "adaptive"}),
    ),
    ("no_messages", "at least one message", ask(), ask(messages=[])),
    ("role", "role 'system' is not supported", ask(), ask(user(text()), {"role": "system", "content": "x"})),
    ("role", "messages.1.role", ask(), ask(user(text()), {"role": "tool", "content": "x"})),
    ("content", "messages.0.content", ask(), ask({"role": "user", "content": None})),
    ("empty_content", "must have non-empty content", ask(), ask(user())),
    (
        "first_role",
        "first message must use",
        ask(user(text()), model(text()), user(text())),
        ask(model(text()), user(text())),
    ),
    ("block_type", "messages.0.content.0.type", ask(), ask(user({"text": "x"}))),
    ("unknown_field", "text.foo", ask(user(text(citations=None))), ask(user(text(foo=1)))),
    (
        "block_role",
        "`tool_result` blocks can only be",
        tooled(*ROUND),
        tooled(user(text()), model(result()), user(text())),
    ),
    ("empty_text", "text content blocks must be non-empty", ask(), ask(user(text("")))),
    ("empty_text", "text content blocks must be non-empty", ask(), ask({"role": "user", "content": [text("")]})),
    ("empty_text", "system: text", ask(system=[text("x")]), ask(system=[text("")])),
    ("blank_text", "non-whitespace", ask(), ask(user(text(" \n")))),
    (
        "no_signature",
        "signature: Field required",
        ask(),
        ask(user(text()), model({"type": "thinking", "thinking": "x"})),
    ),
    ("call_id", "tool_use.id", tooled(*ROUND), tooled(user(text()), model(call("a.b")), user(result("a.b")))),
    ("call_id", "tool_use.id", tooled(*ROUND), tooled(user(text()), model(call("a" * 65)), user(result("a" * 65)))),
    ("call_input", "valid dictionary", tooled(*ROUND), tooled(user(text()), model(call(input="{}")), user(result()))),
    ("call_name", "tool_use.name", tooled(*ROUND), tooled(user(text()), model(call(name="a b")), user(result()))),
    (
        "result_id",
        "tool_use_id: Field required",
        tooled(*ROUND),
        tooled(*ROUND[:2], user({"type": "tool_result", "content": "x"})),
    ),
    ("result_content", "tool_result.content", tooled(*ROUND), tooled(*ROUND[:2], user(result(content=[])))),
    ("result_content", "tool_result.content", tooled(*ROUND), tooled(*ROUND[:2], user(result(content={"a": 1})))),
    (
        "empty_text",
        "non-empty",
        tooled(*ROUND[:2], user(result(content=[text()]))),
        tooled(*ROUND[:2], user(result(content=[text("")]))),
    ),
    (
        "is_error",
        "valid boolean",
        tooled(*ROUND[:2], user(result(is_error=True))),
        tooled(*ROUND[:2], user(result(is_error="yes"))),
    ),
    (
        "unanswered_call",
        "without `tool_result` blocks immediately after: t2",
        tooled(*TWO, user(result("t1"), result("t2"))),
        tooled(*TWO, user(result("t1"))),
    ),
    ("unanswered_call", "messages.1: `tool_use` ids were found", tooled(*ROUND), tooled(*ROUND[:2], user(text()))),
    ("unanswered_call", "messages.1: `tool_use` ids were found", tooled(*ROUND), tooled(*ROUND[:2])),
    ("unanswered_call", "t1", tooled(*ROUND), tooled(*ROUND[:2], user(text()), model(text()), user(result()))),
    (
        "results_first",
        "immediately after: t1",
        tooled(*ROUND[:2], user(result(), text())),
        tooled(*ROUND[:2], user(text(), result())),
    ),
    (
        "results_first",
        "immediately after: t1",
        tooled(*ROUND[:2], user(result()), user(text())),
        tooled(*ROUND[:2], user(text()), user(result())),
    ),
    (
        "result_without_call",
        "unexpected `tool_use_id` found in `tool_result` blocks: t9",
        tooled(*ROUND),
        tooled(user(text(), result("t9"))),
    ),
    ("result_without_call", "t9", tooled(*ROUND), tooled(*ROUND[:2], user(result(), result("t9")))),
    ("duplicate_result", "must have a single result", tooled(*ROUND), tooled(*ROUND[:2], user(result(), result()))),
    (
        "duplicate_id",
        "ids must be unique",
        tooled(*TWO, user(result("t1"), result("t2"))),
        tooled(user(text()), model(call(), call()), user(result())),
    ),
    (
        "duplicate_id",
        "ids must be unique",
        tooled(*ROUND, model(call("t2")), user(result("t2"))),
        tooled(*ROUND, model(call()), user(result())),
    ),
    (
        "prefill",
        "does not support assistant message prefill",
        ask(user(text()), model(PAUSED)),
        ask(user(text()), model(text())),
    ),
    (
        "prefill",
        "prefill",
        ask(user(text()), model(text()), model="claude-opus-4-5"),
        ask(user(text()), model(text()), model="fake"),
    ),
    (
        "ends_in_thinking",
        "cannot be `thinking`",
        ask(user(text()), model({"type": "redacted_thinking", "data": "x"}, text()), user(text())),
        ask(user(text()), model({"type": "redacted_thinking", "data": "x"}), user(text())),
    ),
    ("tools", "valid list", tooled(), ask(tools=["add"])),
    ("tool_name", "name", tooled(), ask(tools=[{"name": "a b", "input_schema": OBJECT}])),
    ("tool_names", "unique", ask(tools=[TOOL, {**TOOL, "name": "b"}]), ask(tools=[TOOL, TOOL])),
    ("history_needs_tools", "must define tools", tooled(*ROUND), ask(*ROUND)),
    ("history_needs_tools", "must define tools", tooled(*ROUND), ask(*ROUND, tools=[])),
    ("schema", "input_schema: Field required", tooled(), ask(tools=[{"name": "add"}])),
    ("schema_type", "Input should be 'object'", schema({"type": "object"}), schema({"properties": {}})),
    (
        "schema_union",
        "oneOf, allOf, or anyOf at the top level",
        schema({"type": "object", "properties": {"a": {"anyOf": [{}]}}}),
        schema({"type": "object", "anyOf": []}),
    ),
    (
        "schema_strict",
        "additionalProperties",
        schema(CLOSED, strict=True),
        schema({**CLOSED, "additionalProperties": True}, strict=True),
    ),
    (
        "schema_strict",
        "Missing 'a'",
        schema({**CLOSED, "required": []}),
        schema({**CLOSED, "required": []}, strict=True),
    ),
    ("tool_choice", "Input tag", tooled(tool_choice=AUTO), tooled(tool_choice="auto")),
    (
        "tool_choice",
        "disable_parallel_tool_use",
        tooled(tool_choice={**AUTO, "disable_parallel_tool_use": True}),
        tooled(tool_choice={"type": "none", "disable_parallel_tool_use": True}),
    ),
    (
        "tool_choice",
        "Tool 'b' not found",
        tooled(tool_choice={"type": "tool", "name": "add"}),
        tooled(tool_choice={"type": "tool", "name": "b"}),
    ),
    (
        "choice_without_tools",
        "tool_choice may only",
        tooled(tool_choice={"type": "none"}),
        ask(tool_choice={"type": "none"}),
    ),
    (
        "forced_thinking",
        "when tool_choice forces tool use",
        tooled(tool_choice={"type": "any"}, thinking={"type": "adaptive"}),
        tooled(tool_choice={"type": "any"}, thinking=THINK, max_tokens=2000),
    ),
    (
        "forced_tool",
        "forcing",
        tooled(tool_choice=AUTO, model="claude-fable-5"),
        tooled(tool_choice={"type": "any"}, model="claude-fable-5"),
    ),
    ("thinking", "Input tag", ask(thinking={"type": "adaptive"}), ask(thinking={"type": "on"})),
    (
        "thinking_enabled",
        "not supported",
        ask(thinking=THINK, max_tokens=2000),
        ask(thinking=THINK, max_tokens=2000, model="claude-opus-4-7"),
    ),
    (
        "thinking_off",
        "disabled",
        ask(thinking={"type": "disabled"}),
        ask(thinking={"type": "disabled"}, model="claude-fable-5"),
    ),
    (
        "budget",
        "1024",
        ask(thinking=THINK, max_tokens=2000),
        ask(thinking={**THINK, "budget_tokens": 10}, max_tokens=2000),
    ),
    ("budget", "must be greater than", ask(thinking=THINK, max_tokens=1025), ask(thinking=THINK, max_tokens=1024)),
    (
        "effort",
        "does not support effort level 'xhigh'. Supported levels: high, low, max, medium.",
        ask(output_config={"effort": "max"}),
        ask(output_config={"effort": "xhigh"}),
    ),
    (
        "effort",
        "effort",
        ask(output_config={"effort": "low"}, model="fake"),
        ask(output_config={"effort": "low"}, model="fake-no-effort"),
    ),
    (
        "signature",
        "Invalid `signature` in `thinking` block",
        ask(),
        ask(user(text()), model({"type": "thinking", "thinking": "x", "signature": "forged"}, text()), user(text())),
    ),
    (
        "cache",
        "Found 5",
        ask(user(*[text(cache_control={"type": "ephemeral"})] * 4)),
        ask(user(*[text(cache_control={"type": "ephemeral"})] * 5)),
    ),
]


@pytest.mark.parametrize(("rule", "words", "good", "bad"), ROWS, ids=[f"{n}-{row[0]}" for n, row in enumerate(ROWS)])
def test_a_request_that_breaks_one_rule_is_refused_and_its_neighbour_is_not(rule, words, good, bad):
    lenient = Rules(foreign=rule != "signature")
    assert CHECKS["anthropic"](good, HEADERS, lenient) is None
    refusal = CHECKS["anthropic"](bad, HEADERS, lenient)
    assert refusal is not None
    assert refusal.rule == rule
    assert words in refusal.message
    assert refusal.status == (404 if rule == "model_not_found" else 400)
    assert refusal.body["error"]["message"] == refusal.message


@pytest.mark.parametrize(
    ("rule", "status", "headers"),
    [
        ("no_key", 401, {"anthropic-version": "2023-06-01"}),
        ("bad_key", 401, {**HEADERS, "x-api-key": "invalid-1"}),
        ("two_keys", 401, {**HEADERS, "Authorization": "Bearer k"}),
        ("no_version", 400, {"X-Api-Key": "k"}),
        ("too_large", 413, {**HEADERS, "content-length": str(33 * 1024 * 1024)}),
    ],
)
def test_a_request_with_the_wrong_headers_is_refused(rule, status, headers):
    refusal = CHECKS["anthropic"](ask(), headers, Rules())
    assert refusal is not None
    assert (refusal.rule, refusal.status) == (rule, status)


def test_a_bearer_token_alone_is_accepted():
    headers = {"Authorization": "Bearer k", "anthropic-version": "2023-06-01"}
    assert CHECKS["anthropic"](ask(), headers, Rules()) is None


def test_a_prompt_beyond_the_context_of_the_model_is_refused():
    long = {**HEADERS, "content-length": "5000"}
    assert CHECKS["anthropic"](ask(model="fake-context-2000"), long, Rules()) is None
    refusal = CHECKS["anthropic"](ask(model="fake-context-1000"), long, Rules())
    assert refusal is not None
    assert refusal.message == "prompt is too long: 1250 tokens > 1000 maximum"
