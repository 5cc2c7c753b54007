"""Each refusal of Chat Completions: a minimal offending request, and the nearest one that is accepted."""

from typing import Any

import pytest

from roundelay_worker.testing.fake_llm import CHECKS, Rules

HEADERS = {"authorization": "Bearer k"}
USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "add", "parameters": {"type": "object", "properties": {}}}


def ask(*messages: Any, **changes: Any) -> dict[str, Any]:
    body = {"model": "gpt-4o", "messages": list(messages) or [USER], **changes}
    return {name: value for name, value in body.items() if value is not None}


def tool(**changes: Any) -> dict[str, Any]:
    return {"type": "function", "function": {**FUNCTION, **changes}}


def tooled(*messages: Any, **changes: Any) -> dict[str, Any]:
    return ask(*messages, **{"tools": [tool()], **changes})


def call(identifier: Any = "c1", arguments: Any = "{}", name: str = "add", **changes: Any) -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}, **changes}


def model(*calls: Any, content: Any = None, **changes: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **changes}


def result(identifier: Any = "c1", content: Any = "2") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": content}


def one(*calls: Any) -> dict[str, Any]:
    return tooled(USER, model(*calls), *(result(each.get("id")) for each in calls))


ROUND = tooled(USER, model(call()), result())
TWO = [USER, model(call("c1"), call("c2"))]
STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False, "required": ["a"]}

ROWS = [
    ("no_model", "you must provide a model", ask(), ask(model=None)),
    ("unknown_field", "Unrecognized request argument supplied: foo", ask(seed=1), ask(foo=1)),
    ("tools_unsupported", "does not support tools", ask(model="x-no-tools"), tooled(model="x-no-tools")),
    ("stream_unsupported", "stream", ask(model="x-no-stream"), ask(model="x-no-stream", stream=True)),
    ("stream_options", "only allowed when 'stream'", ask(stream=True, stream_options={}), ask(stream_options={})),
    (
        "stream_options",
        "stream_options",
        ask(stream=True, model="x-no-usage"),
        ask(stream=True, stream_options={}, model="x-no-usage"),
    ),
    (
        "max_tokens",
        "Use 'max_completion_tokens' instead.",
        ask(max_completion_tokens=9, model="gpt-5-mini"),
        ask(max_tokens=9, model="gpt-5-mini"),
    ),
    (
        "max_tokens",
        "Use 'max_tokens' instead.",
        ask(max_tokens=9, model="x-no-max-completion-tokens"),
        ask(max_completion_tokens=9, model="x-no-max-completion-tokens"),
    ),
    ("temperature", "Unsupported parameter: 'temperature'", ask(temperature=0), ask(temperature=0, model="o3")),
    (
        "temperature",
        "Unsupported parameter: 'temperature'",
        ask(temperature=0, model="gpt-5.4"),
        ask(temperature=0, model="gpt-5.4", reasoning_effort="low"),
    ),
    (
        "temperature_range",
        "decimal below minimum value. Expected a value >= 0, but got -1",
        ask(temperature=0),
        ask(temperature=-1),
    ),
    ("temperature_range", "decimal above maximum", ask(temperature=2), ask(temperature=3)),
    ("stop", "Unsupported parameter: 'stop'", ask(stop=["x"]), ask(stop=["x"], model="gpt-5")),
    (
        "parallel_tool_calls",
        "parallel_tool_calls",
        tooled(parallel_tool_calls=False),
        tooled(parallel_tool_calls=False, model="x-no-parallel"),
    ),
    (
        "reasoning_effort",
        "reasoning_effort",
        ask(reasoning_effort="low"),
        ask(reasoning_effort="low", model="x-no-effort"),
    ),
    ("no_messages", "Invalid 'messages': empty array", ask(), ask(messages=[])),
    ("role", "Invalid value: 'bot'", ask(), ask({"role": "bot", "content": "x"})),
    (
        "role",
        "'messages[0].role' does not support 'system' with this model",
        ask({"role": "system", "content": "x"}, USER),
        ask({"role": "system", "content": "x"}, USER, model="o1-mini"),
    ),
    (
        "role",
        "'developer'",
        ask({"role": "developer", "content": "x"}, USER),
        ask({"role": "developer", "content": "x"}, USER, model="x-no-developer"),
    ),
    ("unknown_field", "Unknown parameter: 'messages[0].foo'", ask({**USER, "name": "x"}), ask({**USER, "foo": 1})),
    ("content", "expected a string, got null", ask(), ask({"role": "user", "content": None})),
    ("empty_content", "empty array", ask(), ask({"role": "user", "content": []})),
    (
        "part_type",
        "either text or image_url type",
        ask({"role": "user", "content": [{"type": "text", "text": "x"}]}),
        ask({"role": "user", "content": [{"type": "input_text", "text": "x"}]}),
    ),
    (
        "part_type",
        "either text or image_url type",
        ROUND,
        tooled(USER, model(call()), result(content=[{"type": "image_url", "image_url": {}}])),
    ),
    ("content", "content[0].text", ask(), ask({"role": "user", "content": [{"type": "text"}]})),
    (
        "empty_calls",
        "tool_calls': empty array",
        ask(USER, model(content="x"), USER),
        ask(USER, model(content="x", tool_calls=[]), USER),
    ),
    (
        "empty_assistant",
        "neither content nor tool calls",
        ask(USER, model(content="x"), USER),
        ask(USER, model(content=""), USER),
    ),
    ("null_content", "<nil>", {**ROUND, "model": "x"}, {**ROUND, "model": "x-no-null-content"}),
    (
        "empty_content",
        "must not be empty",
        {**ROUND, "model": "x-no-empty-content"},
        tooled(USER, model(call(), content=""), result(), model="x-no-empty-content"),
    ),
    ("content", "expected a string", ask(USER, model(content="x"), USER), ask(USER, model(content={"a": 1}), USER)),
    (
        "reasoning_content",
        "must be passed back to the API",
        tooled(USER, model(call(), reasoning_content=""), result(), model="deepseek-reasoner"),
        {**ROUND, "model": "deepseek-reasoner"},
    ),
    ("call", "function.name", ROUND, one({"id": "c1", "type": "function"})),
    ("call_name", "tool_calls[0].function.name", ROUND, one(call(name="a b"))),
    ("call_name", "does not match pattern", one(call(name="a" * 64)), one(call(name="a" * 65))),
    ("call_type", "tool_calls[0].type", ROUND, one({"id": "c1", "function": {"name": "add", "arguments": "{}"}})),
    ("arguments", "invalid tool call arguments", ROUND, one(call(arguments={"a": 1}))),
    ("arguments", "invalid tool call arguments", ROUND, one(call(arguments='{"a":'))),
    ("arguments", "invalid tool call arguments", ROUND, one(call(arguments="[]"))),
    ("arguments", "invalid tool call arguments", ROUND, one(call(arguments=""))),
    ("call_id", "tool_calls[0].id", ROUND, one(call(""))),
    ("call_id", "maximum length 40", one(call("c" * 40)), one(call("c" * 41))),
    (
        "call_id",
        "must be a-z, A-Z, 0-9, with a length of 9",
        {**one(call("a1B2c3D4e")), "model": "mistral-small"},
        {**ROUND, "model": "mistral-small"},
    ),
    (
        "unanswered_call",
        "did not have response messages: c2",
        tooled(*TWO, result("c1"), result("c2")),
        tooled(*TWO, result("c1")),
    ),
    ("unanswered_call", "did not have response messages: c1", ROUND, tooled(USER, model(call()), USER)),
    (
        "unanswered_call",
        "c2",
        tooled(*TWO, result("c2"), result("c1"), USER),
        tooled(*TWO, result("c1"), USER, result("c2")),
    ),
    ("result_without_call", "must be a response to a preceeding message with 'tool_calls'", ROUND, ask(USER, result())),
    ("result_without_call", "preceeding message", ROUND, tooled(USER, model(call()), result(), result())),
    ("result_id", "tool_call_id", ROUND, tooled(USER, model(call()), {"role": "tool", "content": "x"})),
    (
        "duplicate_id",
        "Duplicate value",
        tooled(*TWO, result("c1"), result("c2")),
        tooled(USER, model(call(), call()), result()),
    ),
    (
        "duplicate_id",
        "Duplicate value",
        tooled(USER, model(call()), result(), model(call("c2")), result("c2")),
        tooled(USER, model(call()), result(), model(call()), result()),
    ),
    (
        "user_after_tool",
        "Unexpected role 'user' after role 'tool'",
        {**ROUND, "messages": [*ROUND["messages"], USER]},
        {**ROUND, "messages": [*ROUND["messages"], USER], "model": "x-no-user-after-tool"},
    ),
    ("prefill", "Expected last role User or Tool", ask(USER, model(content="x"), USER), ask(USER, model(content="x"))),
    ("empty_tools", "[] is too short - 'tools'", ask(), ask(tools=[])),
    ("tools", "Invalid type for 'tools'", tooled(), ask(tools=["add"])),
    ("tools", "function", tooled(), ask(tools=[{"type": "function", "name": "add"}])),
    (
        "too_many_tools",
        "too long",
        ask(tools=[tool(name=f"f{n}") for n in range(128)]),
        ask(tools=[tool(name=f"f{n}") for n in range(129)]),
    ),
    ("tool_name", "does not match pattern", ask(tools=[tool(name="f" * 64)]), ask(tools=[tool(name="f" * 65)])),
    ("tool_name", "does not match pattern", tooled(), ask(tools=[tool(name="a.b")])),
    ("tool_names", "Duplicate function name", ask(tools=[tool(), tool(name="b")]), ask(tools=[tool(), tool()])),
    ("schema_type", "Invalid schema for function 'add'", tooled(), ask(tools=[tool(parameters={"properties": {}})])),
    ("schema_union", "at the top level", tooled(), ask(tools=[tool(parameters={"type": "object", "oneOf": []})])),
    (
        "schema_strict",
        "Missing 'a'",
        ask(tools=[tool(parameters=STRICT, strict=True)]),
        ask(tools=[tool(parameters={**STRICT, "required": []}, strict=True)]),
    ),
    (
        "choice_without_tools",
        "'tool_choice' is only allowed when 'tools' are specified.",
        tooled(tool_choice="none"),
        ask(tool_choice="none"),
    ),
    (
        "choice_without_tools",
        "'parallel_tool_calls' is only allowed",
        tooled(parallel_tool_calls=True),
        ask(parallel_tool_calls=True),
    ),
    ("tool_choice", "Supported values are", tooled(tool_choice="required"), tooled(tool_choice={"type": "any"})),
    (
        "tool_choice",
        "'b' not found",
        tooled(tool_choice={"type": "function", "function": {"name": "add"}}),
        tooled(tool_choice={"type": "function", "function": {"name": "b"}}),
    ),
    (
        "reasoning_details",
        "reasoning_details",
        tooled(USER, model(call(), reasoning_details=[{"text": "x"}]), result()),
        tooled(USER, model(call(), reasoning_details=["x"]), result()),
    ),
    (
        "signature",
        "Invalid signature",
        ROUND,
        tooled(USER, model(call(), reasoning_details=[{"text": "x", "signature": "forged"}]), result()),
    ),
]


@pytest.mark.parametrize(("rule", "words", "good", "bad"), ROWS, ids=[f"{n}-{row[0]}" for n, row in enumerate(ROWS)])
def test_a_request_that_breaks_one_rule_is_refused_and_its_neighbour_is_not(rule, words, good, bad):
    assert CHECKS["chat"](good, HEADERS, Rules()) is None
    refusal = CHECKS["chat"](bad, HEADERS, Rules())
    assert refusal is not None
    assert (refusal.rule, refusal.status) == (rule, 400)
    assert words in refusal.message
    assert refusal.body["error"]["message"] == refusal.message


@pytest.mark.parametrize(
    ("rule", "status", "headers"),
    [
        ("no_key", 401, {}),
        ("no_key", 401, {"authorization": "Basic k"}),
        ("bad_key", 401, {"authorization": "Bearer invalid-1"}),
        ("too_large", 413, {**HEADERS, "content-length": str(65 * 1024 * 1024)}),
    ],
)
def test_a_request_with_the_wrong_headers_is_refused(rule, status, headers):
    refusal = CHECKS["chat"](ask(), headers, Rules())
    assert refusal is not None
    assert (refusal.rule, refusal.status) == (rule, status)


def test_a_server_without_keys_asks_for_none():
    assert CHECKS["chat"](ask(), {}, Rules(key="")) is None


def test_a_server_with_one_key_takes_no_other():
    assert CHECKS["chat"](ask(), HEADERS, Rules(key="k")) is None
    assert CHECKS["chat"](ask(), HEADERS, Rules(key="other")).rule == "bad_key"


def test_an_unknown_model_is_a_404_here():
    assert CHECKS["chat"](ask(model="x-missing"), HEADERS, Rules()).status == 404


def test_a_prompt_beyond_the_context_of_the_model_is_refused():
    refusal = CHECKS["chat"](ask(model="x-context-100"), {**HEADERS, "content-length": "500"}, Rules())
    assert refusal.body["error"]["code"] == "context_length_exceeded"
