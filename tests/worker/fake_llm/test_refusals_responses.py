"""Each refusal of the Responses API: a minimal offending request, and the nearest one that is accepted."""

from typing import Any

import pytest

from roundelay_worker.testing.fake_llm import CHECKS, Rules

HEADERS = {"authorization": "Bearer k"}
USER = {"role": "user", "content": "hi"}
OBJECT = {"type": "object", "properties": {}}
TOOL = {"type": "function", "name": "add", "parameters": OBJECT}
STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False, "required": ["a"]}


def ask(*items: Any, **changes: Any) -> dict[str, Any]:
    body = {"model": "gpt-4o", "store": False, "input": list(items) or [USER], **changes}
    return {name: value for name, value in body.items() if value is not None}


def tooled(*items: Any, **changes: Any) -> dict[str, Any]:
    return ask(*items, **{"tools": [TOOL], **changes})


def call(identifier: Any = "c1", **changes: Any) -> dict[str, Any]:
    item = {"type": "function_call", "call_id": identifier, "name": "add", "arguments": "{}", **changes}
    return {name: value for name, value in item.items() if value is not None}


def output(identifier: Any = "c1", **changes: Any) -> dict[str, Any]:
    item = {"type": "function_call_output", "call_id": identifier, "output": "2", **changes}
    return {name: value for name, value in item.items() if value is not None}


def said(role: str, kind: str, **changes: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": "x"}], **changes}


def thought(**changes: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA", **changes}


def pair(**changes: Any) -> dict[str, Any]:
    return tooled(USER, call(**changes), output())


def typed(**changes: Any) -> dict[str, Any]:
    return ask(tools=[{**TOOL, **changes}])


FOREIGN = thought(id="rs_1")
INTERLEAVED = [USER, call("c1"), output("c1"), call("c2"), output("c2")]

ROWS = [
    ("no_model", "you must provide a model", ask(), ask(model=None)),
    ("unknown_field", "Unknown parameter: 'stop'.", ask(), ask(stop=["x"])),
    ("previous_response", "resp_1' not found", ask(previous_response_id=None), ask(previous_response_id="resp_1")),
    ("room", "Expected a value >= 16, but got 15", ask(max_output_tokens=16), ask(max_output_tokens=15)),
    (
        "include",
        "not supported",
        ask(include=["reasoning.encrypted_content"]),
        ask(include=["reasoning.encrypted_content"], model="x-no-include"),
    ),
    ("effort", "reasoning.effort", ask(reasoning={"effort": "high"}), ask(reasoning={"effort": "extreme"})),
    ("effort", "reasoning.effort", ask(model="x-no-effort"), ask(reasoning={"effort": "low"}, model="x-no-effort")),
    (
        "temperature",
        "Unsupported parameter: 'temperature' is not supported with this model.",
        ask(temperature=0, model="gpt-5.4"),
        ask(temperature=0, model="gpt-5-mini"),
    ),
    ("temperature", "'top_p'", ask(top_p=1), ask(top_p=1, model="x-no-temperature")),
    ("temperature_range", "Expected a value >= 0, but got -1", ask(temperature=0), ask(temperature=-1)),
    (
        "parallel_tool_calls",
        "parallel_tool_calls",
        tooled(parallel_tool_calls=False),
        tooled(parallel_tool_calls=False, model="x-no-parallel"),
    ),
    ("tools_unsupported", "does not support tools", ask(model="x-no-tools"), tooled(model="x-no-tools")),
    ("stream_unsupported", "stream", ask(model="x-no-stream"), ask(model="x-no-stream", stream=True)),
    ("no_input", "Missing required parameter: 'input'.", ask(input="hi"), ask(input="")),
    ("no_input", "Missing required parameter: 'input'.", ask(), ask(input=[])),
    ("item_type", "'input[0].type'", ask(), ask({"content": "x"})),
    ("unknown_field", "'input[0].name'", ask(), ask({**USER, "name": "x"})),
    (
        "unknown_field",
        "'input[1].status'",
        pair(status="completed"),
        tooled(USER, {**call(), "status": None}, output()),
    ),
    ("item_id", "Expected an ID that begins with 'fc'", pair(id="fc_1"), pair(id="call_1")),
    (
        "item_id",
        "Expected an ID that begins with 'msg'",
        ask(USER, said("assistant", "output_text", id="msg_1"), USER),
        ask(USER, said("assistant", "output_text", id="x_1"), USER),
    ),
    ("item_id", "Expected an ID that begins with 'rs'", pair(), ask(thought(id="x_1"), USER)),
    ("long_id", "'input[1].id': string too long", pair(id="fc_1"), pair(id="fc_" + "1" * 64)),
    (
        "long_id",
        "'input[1].call_id': string too long",
        tooled(USER, call("c" * 64), output("c" * 64)),
        tooled(USER, call("c" * 65), output("c" * 65)),
    ),
    ("role", "Invalid value: 'tool'", ask(), ask({"role": "tool", "content": "x"})),
    ("empty_content", "'input[0].content'", ask(), ask({"role": "user", "content": []})),
    (
        "part_type",
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        ask(USER, said("assistant", "output_text"), USER),
        ask(USER, said("assistant", "input_text"), USER),
    ),
    ("part_type", "Invalid value: 'output_text'", ask(said("user", "input_text")), ask(said("user", "output_text"))),
    ("part_type", "Invalid value: 'text'", ask(said("user", "input_text")), ask(said("user", "text"))),
    ("content", "text'", ask(), ask({"role": "user", "content": [{"type": "input_text"}]})),
    ("call_id", "call_id", pair(), tooled(USER, call(None), output())),
    ("call", "'input[1].name'", pair(), pair(name=None)),
    ("call_name", "'input[1].name'", pair(name="a-b"), pair(name="a.b")),
    ("call", "'input[1].arguments'", pair(arguments="{broken"), pair(arguments={"a": 1})),
    ("output", "'input[2].output'", pair(), tooled(USER, call(), output(output={"a": 1}))),
    ("output", "'input[2].output'", pair(), tooled(USER, call(), output(output=None))),
    (
        "output",
        "string too long",
        pair(),
        tooled(USER, call(), output(output="x" * (10 * 1024 * 1024 + 1))),
    ),
    (
        "part_type",
        "'output_text'",
        tooled(USER, call(), output(output=[{"type": "input_text", "text": "x"}])),
        tooled(USER, call(), output(output=[{"type": "output_text", "text": "x"}])),
    ),
    ("unanswered_call", "No tool output found for function call c1.", pair(), tooled(USER, call())),
    ("unanswered_call", "call c1.", pair(), tooled(USER, call(), USER, output())),
    (
        "unanswered_call",
        "call c2.",
        tooled(USER, call("c1"), call("c2"), output("c2"), output("c1")),
        tooled(USER, call("c1"), call("c2"), output("c1")),
    ),
    (
        "result_without_call",
        "No tool call found for function call output with call_id c1.",
        pair(),
        ask(USER, output()),
    ),
    ("result_without_call", "call_id c1.", pair(), tooled(USER, output(), call())),
    ("duplicate_result", "Duplicate item", pair(), tooled(USER, call(), output(), output())),
    (
        "duplicate_id",
        "Duplicate item found with call_id c1",
        tooled(USER, call(), output(), call("c2"), output("c2")),
        tooled(USER, call(), output(), call(), output()),
    ),
    (
        "duplicate_id",
        "Duplicate item found with id fc_1",
        tooled(USER, call(id="fc_1"), output(), call("c2", id="fc_2"), output("c2")),
        tooled(USER, call(id="fc_1"), output(), call("c2", id="fc_1"), output("c2")),
    ),
    (
        "prefill",
        "assistant",
        ask(USER, said("assistant", "output_text"), USER),
        ask(USER, said("assistant", "output_text")),
    ),
    (
        "interleaved",
        "insufficient tool messages",
        tooled(USER, call("c1"), call("c2"), output("c1"), output("c2"), model="deepseek-v4"),
        tooled(
            USER,
            call("c1"),
            call("c2"),
            output("c1"),
            said("assistant", "output_text"),
            output("c2"),
            model="deepseek-v4",
        ),
    ),
    (
        "interleaved",
        "insufficient tool messages",
        tooled(*INTERLEAVED, model="deepseek-v4"),
        tooled(USER, call("c1"), call("c3"), output("c1"), call("c2"), output("c2"), output("c3"), model="deepseek-v4"),
    ),
    ("tools", "Invalid type for 'tools'", tooled(), ask(tools=["add"])),
    ("tools", "'tools[0].name'", tooled(), ask(tools=[{"type": "function", "function": {"name": "add"}}])),
    ("tool_name", "does not match", typed(name="f" * 128), typed(name="f" * 129)),
    ("tool_names", "Duplicate function name", tooled(), ask(tools=[TOOL, TOOL])),
    ("schema_type", "Invalid schema for function 'add'", typed(parameters=OBJECT), typed(parameters={})),
    ("schema_union", "top level", typed(), typed(parameters={**OBJECT, "anyOf": []})),
    (
        "schema_strict",
        (
            "In context=(), 'required' is required to be supplied and to be an array including every key in properties."
            " Missing 'a'."
        ),
        typed(parameters={**STRICT, "required": []}, strict=False),
        typed(parameters={**STRICT, "required": []}, strict=True),
    ),
    (
        "schema_strict",
        "In context=('properties', 'b'), 'additionalProperties'",
        typed(parameters=STRICT, strict=True),
        typed(parameters={**STRICT, "properties": {"b": OBJECT}, "required": ["b"]}, strict=True),
    ),
    ("choice_without_tools", "'tool_choice' is only allowed", tooled(tool_choice="none"), ask(tool_choice="none")),
    (
        "choice_without_tools",
        "'parallel_tool_calls' is only allowed when 'tools' are specified",
        tooled(parallel_tool_calls=False),
        ask(parallel_tool_calls=False, tools=[]),
    ),
    ("tool_choice", "Invalid value", tooled(tool_choice="required"), tooled(tool_choice={"type": "any"})),
    (
        "tool_choice",
        "'b' not found",
        tooled(tool_choice={"type": "function", "name": "add"}),
        tooled(tool_choice={"type": "function", "name": "b"}),
    ),
    (
        "reasoning_without_item",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ask(USER, FOREIGN, said("assistant", "output_text", id="msg_1"), USER),
        ask(USER, FOREIGN, {"role": "assistant", "content": "x"}, USER),
    ),
    ("reasoning_without_item", "rs_1", tooled(USER, FOREIGN, call(), output()), ask(USER, FOREIGN, USER)),
    ("encrypted", "could not be verified", pair(), tooled(USER, thought(), call(), output())),
]


@pytest.mark.parametrize(("rule", "words", "good", "bad"), ROWS, ids=[f"{n}-{row[0]}" for n, row in enumerate(ROWS)])
def test_a_request_that_breaks_one_rule_is_refused_and_its_neighbour_is_not(rule, words, good, bad):
    lenient = Rules(foreign=rule != "encrypted")
    assert CHECKS["responses"](good, HEADERS, lenient) is None
    refusal = CHECKS["responses"](bad, HEADERS, lenient)
    assert refusal is not None
    assert (refusal.rule, refusal.status) == (rule, 400)
    assert words in refusal.message
    assert refusal.body["error"]["message"] == refusal.message


def test_reasoning_without_encrypted_content_is_not_found():
    bare = {"type": "reasoning", "summary": [], "id": "rs_1"}
    refusal = CHECKS["responses"](tooled(USER, bare, call(), output()), HEADERS, Rules())
    assert refusal is not None
    assert refusal.status == 404
    assert refusal.message.startswith(
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."
    )


def test_outputs_between_calls_are_refused_by_some_and_accepted_by_openai():
    mixed = tooled(USER, call("c1"), call("c3"), output("c1"), call("c2"), output("c2"), output("c3"))
    assert CHECKS["responses"](mixed, HEADERS, Rules()) is None


def test_reasoning_that_cannot_be_verified_has_a_code_of_its_own():
    refusal = CHECKS["responses"](tooled(USER, thought(), call(), output()), HEADERS, Rules())
    assert refusal.body["error"]["code"] == "invalid_encrypted_content"


def test_a_request_without_a_key_is_refused():
    assert CHECKS["responses"](ask(), {}, Rules()).status == 401
