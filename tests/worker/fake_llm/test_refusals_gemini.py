"""Each refusal of generateContent: a minimal offending request, and the nearest one that is accepted."""

from typing import Any

import pytest

from roundelay_worker.testing.fake_llm import CHECKS, Rules

HEADERS = {"x-goog-api-key": "k"}
SKIP = "skip_thought_signature_validator"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
DECLARED = {"name": "add", "parametersJsonSchema": SCHEMA}


def content(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


USER = content("user", {"text": "hi"})


def ask(*contents: Any, **changes: Any) -> dict[str, Any]:
    body = {"model": "gemini-2.5-flash", "contents": list(contents) or [USER], **changes}
    return {name: value for name, value in body.items() if value is not None}


def declaring(*declared: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": list(declared)}]}


def tooled(*contents: Any, **changes: Any) -> dict[str, Any]:
    return ask(*contents, **{**declaring(DECLARED), **changes})


def call(name: Any = "add", **changes: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **changes}}


def signed(**changes: Any) -> dict[str, Any]:
    return {**call(**changes), "thoughtSignature": SKIP}


def result(name: Any = "add", **changes: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "2"}, **changes}}


def pair(calls: list[Any], results: list[Any], **changes: Any) -> dict[str, Any]:
    return tooled(USER, content("model", *calls), content("user", *results), **changes)


def mode(word: str, **more: Any) -> dict[str, Any]:
    return {"toolConfig": {"functionCallingConfig": {"mode": word, **more}}}


def openapi(schema: dict[str, Any]) -> dict[str, Any]:
    return ask(**declaring({"name": "add", "parameters": schema}))


def thinking(**config: Any) -> dict[str, Any]:
    return {"generationConfig": {"thinkingConfig": config}}


ROUND = pair([call()], [result()])
NEW = {"model": "gemini-3-pro"}

ROWS = [
    ("unknown_field", 'Unknown name "stream": Cannot find field.', ask(), ask(stream=True)),
    (
        "unknown_field",
        "'generation_config'",
        ask(generationConfig={"topK": 1}),
        ask(generationConfig={"max_tokens": 1}),
    ),
    ("unknown_field", "'contents[0].parts[0]'", ask(), ask(content("user", {"text": "x", "type": "text"}))),
    ("tools_unsupported", "Function calling is not enabled", ask(model="x-no-tools"), tooled(model="x-no-tools")),
    (
        "temperature",
        "temperature",
        ask(generationConfig={"temperature": 0}),
        ask(generationConfig={"temperature": 0}, model="x-no-temperature"),
    ),
    (
        "thinking",
        "only one of",
        ask(**thinking(thinkingLevel="low")),
        ask(**thinking(thinkingLevel="low", thinkingBudget=9)),
    ),
    (
        "budget",
        "Budget 0",
        ask(**thinking(thinkingBudget=0)),
        ask(**thinking(thinkingBudget=0), model="gemini-2.5-pro"),
    ),
    ("effort", "Thinking", ask(**thinking(thinkingBudget=9)), ask(**thinking(thinkingBudget=9), model="x-no-effort")),
    ("no_contents", "contents is not specified", ask(), ask(contents=[])),
    ("role", "Please use a valid role: user, model.", ask(), ask(content("assistant", {"text": "x"}))),
    (
        "role",
        "Please use a valid role: user, model.",
        ROUND,
        tooled(USER, content("model", call()), content("function", result())),
    ),
    ("empty_parts", "contents[0].parts", ask(content("user", {"text": ""})), ask(content("user"))),
    (
        "empty_parts",
        "system_instruction",
        ask(systemInstruction={"parts": [{"text": "x"}]}),
        ask(systemInstruction={"parts": []}),
    ),
    (
        "empty_part",
        "required oneof field",
        ask(content("user", {"text": ""})),
        ask(content("user", {"thoughtSignature": SKIP})),
    ),
    ("part_role", "model role", ROUND, ask(content("user", call()))),
    ("part_role", "user role", ROUND, ask(USER, content("model", result()))),
    ("call_name", "Name cannot be empty", ROUND, pair([call("")], [result()])),
    ("call_name", "Invalid function name", pair([call("_1")], [result("_1")]), pair([call("1")], [result("1")])),
    ("call_args", "args", pair([call(args={})], [result()]), pair([call(args="{}")], [result()])),
    ("response_name", "Name cannot be empty", ROUND, pair([call()], [result("")])),
    ("response_object", "function_response.response", ROUND, pair([call()], [result(response="2")])),
    ("response_object", "function_response.response", ROUND, pair([call()], [result(response=[1])])),
    (
        "response_count",
        "number of function response parts is equal to the number of function call parts",
        pair([call(), call("b")], [result(), result("b")]),
        pair([call(), call("b")], [result()]),
    ),
    (
        "response_count",
        "number of function response parts",
        pair([call(), call("b")], [result(), result("b")]),
        tooled(USER, content("model", call(), call("b")), content("user", result()), content("user", result("b"))),
    ),
    ("response_count", "number of function response parts", ROUND, pair([call()], [result(), result()])),
    ("response_count", "number of function response parts", ROUND, pair([call()], [{"text": "x"}])),
    ("unanswered_call", "number of function response parts", ROUND, tooled(USER, content("model", call()))),
    (
        "unanswered_call",
        "function call turn comes immediately after a user turn",
        ROUND,
        tooled(USER, content("model", call()), content("model", {"text": "x"}), content("user", result())),
    ),
    (
        "call_turn",
        "function call turn comes immediately after a user turn",
        ROUND,
        tooled(content("model", call()), content("user", result())),
    ),
    (
        "result_without_call",
        "function response turn comes immediately after a function call turn",
        ROUND,
        ask(USER, content("user", result())),
    ),
    (
        "response_order",
        "does not match",
        pair([call(), call("b")], [result(), result("b")]),
        pair([call(), call("b")], [result("b"), result()]),
    ),
    ("response_id", "id", pair([call(id="x")], [result(id="x")]), pair([call(id="x")], [result()])),
    (
        "duplicate_id",
        "Duplicate",
        pair([call(id="x"), call(id="y")], [result(id="x"), result(id="y")]),
        pair([call(id="x"), call(id="x")], [result(id="x"), result(id="x")]),
    ),
    (
        "mixed_parts",
        "not mixed",
        tooled(*ROUND["contents"], content("user", {"text": "go"})),
        pair([call()], [result(), {"text": "go"}]),
    ),
    (
        "first_role",
        "first content",
        ask(USER, content("model", {"text": "x"}), USER),
        ask(content("model", {"text": "x"}), USER),
    ),
    (
        "prefill",
        "end with a user role",
        ask(USER, content("model", {"text": "x"}), USER),
        ask(USER, content("model", {"text": "x"})),
    ),
    ("tools", "tools", tooled(), ask(tools="add")),
    ("tool_name", "function name", ask(**declaring({"name": "_a.b:c-1"})), ask(**declaring({"name": "1a"}))),
    ("tool_names", "Duplicate", ask(**declaring(DECLARED, {"name": "b"})), ask(**declaring(DECLARED, DECLARED))),
    ("schema_twice", "only one of", tooled(), ask(**declaring({**DECLARED, "parameters": {"type": "OBJECT"}}))),
    (
        "schema_openapi",
        "Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters': Cannot find field.",
        openapi(SCHEMA),
        openapi({**SCHEMA, "additionalProperties": False}),
    ),
    ("schema_openapi", "$ref", openapi(SCHEMA), openapi({"type": "object", "properties": {"a": {"$ref": "#/x"}}})),
    (
        "schema_openapi",
        "oneOf",
        openapi({"type": "object", "properties": {"a": {"anyOf": [SCHEMA]}}}),
        openapi({"type": "object", "properties": {"a": {"oneOf": [SCHEMA]}}}),
    ),
    (
        "schema_openapi",
        "non-empty for OBJECT",
        openapi({"type": "OBJECT", "properties": {}}),
        openapi({"type": "object", "properties": {"a": {"type": "OBJECT"}}}),
    ),
    ("schema_type", "type object", tooled(), ask(**declaring({"name": "add", "parametersJsonSchema": {}}))),
    (
        "choice_without_tools",
        "Function calling config is set without function_declarations",
        tooled(**mode("NONE")),
        ask(**mode("NONE")),
    ),
    ("mode", "mode", tooled(**mode("VALIDATED")), tooled(**mode("REQUIRED"))),
    (
        "allowed_names",
        "ANY",
        tooled(**mode("ANY", allowedFunctionNames=["add"])),
        tooled(**mode("AUTO", allowedFunctionNames=["add"])),
    ),
    ("cached", "cached content", tooled(**mode("AUTO")), tooled(**mode("AUTO"), cachedContent="c")),
    (
        "unsigned_call",
        "Function call is missing a thought_signature in functionCall parts.",
        pair([signed(), call("b")], [result(), result("b")], **NEW),
        pair([call(), signed(name="b")], [result(), result("b")], **NEW),
    ),
    ("unsigned_call", "function call `default_api:add` , position 2.", ROUND, {**ROUND, **NEW}),
    (
        "unsigned_call",
        "missing a thought_signature",
        tooled(*ROUND["contents"], content("model", {"text": "x"}), USER, **NEW),
        tooled(USER, content("model", {"text": "x"}), *ROUND["contents"], **NEW),
    ),
    (
        "signature",
        "Invalid thought signature.",
        pair([signed()], [result()]),
        pair([{**call(), "thoughtSignature": "forged"}], [result()]),
    ),
]


@pytest.mark.parametrize(("rule", "words", "good", "bad"), ROWS, ids=[f"{n}-{row[0]}" for n, row in enumerate(ROWS)])
def test_a_request_that_breaks_one_rule_is_refused_and_its_neighbour_is_not(rule, words, good, bad):
    assert CHECKS["gemini"](good, HEADERS, Rules()) is None
    refusal = CHECKS["gemini"](bad, HEADERS, Rules())
    assert refusal is not None
    assert (refusal.rule, refusal.status) == (rule, 400)
    assert words in refusal.message
    assert refusal.body["error"]["message"] == refusal.message


def test_both_spellings_of_keys_are_read():
    snake = ask(
        USER,
        content("model", {"function_call": {"name": "add"}, "thought_signature": SKIP}),
        content("user", {"function_response": {"name": "add", "response": {}}}),
        tools=[{"function_declarations": [{"name": "add", "parameters_json_schema": SCHEMA}]}],
        generation_config={"max_output_tokens": 5},
        model="gemini-3-pro",
    )
    assert CHECKS["gemini"](snake, HEADERS, Rules()) is None


@pytest.mark.parametrize(
    ("rule", "status", "headers", "model"),
    [
        ("no_key", 403, {}, "x"),
        ("bad_key", 400, {"x-goog-api-key": "invalid-1"}, "x"),
        ("too_large", 413, {**HEADERS, "content-length": str(21 * 1024 * 1024)}, "x"),
        ("too_large", 413, {**HEADERS, "content-length": "101"}, "x-body-100"),
        ("overflow", 400, {**HEADERS, "content-length": "500"}, "x-context-100"),
        ("model_not_found", 404, HEADERS, "x-missing"),
    ],
)
def test_the_wrong_key_size_or_model_is_refused(rule, status, headers, model):
    refusal = CHECKS["gemini"](ask(model=model), headers, Rules())
    assert refusal is not None
    assert (refusal.rule, refusal.status) == (rule, status)
