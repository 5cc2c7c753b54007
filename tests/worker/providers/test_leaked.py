"""Calls written as text are found where a call would stand, and not where one is explained."""

import pytest

from roundelay_worker.providers.leaked import has_leaked_calls

LEAKED = [
    '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>',
    'Let me see.\n<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n',
    '<tool_call>{"name": "add", "argu',
    "<tool_call>add\n<arg_key>a</arg_key><arg_value>1</arg_value>\n</tool_call>",
    "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    '[TOOL_CALLS][{"name": "add", "arguments": {}}]',
    '[TOOL_CALLS]add{"a": 1}',
    '<|python_tag|>{"name": "add", "parameters": {}}',
    '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="add">\n</\uff5cDSML\uff5cfunction_calls>',
    "<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>add<\uff5ctool▁calls▁end\uff5c>",
    '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a":1}<|call|>',
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_calls_section_end|>",
    '{"name": "add", "arguments": {"a": 1}}',
    '[{"name": "add", "parameters": {"a": 1}}]',
]
EXPLAINED = [
    'An unfinished example:\n```\n<tool_call>\n{"name": "add"}\n</tool_call>',
    "Hermes models write `<tool_call>{...}</tool_call>` around a call.",
    'Like this:\n```\n<tool_call>\n{"name": "add"}\n</tool_call>\n```',
    'A call is\n<tool_call>{"name": "add"}</tool_call>\nand the server parses it.',
    "The token [TOOL_CALLS] begins a call.",
    '{"name": "Ada", "arguments": "good ones"}',
    '{"name": "subtract", "arguments": {}}',
    '{"name": "add"}',
    "{not json",
    "",
]


@pytest.mark.parametrize("text", LEAKED)
def test_a_call_written_as_text_is_found(text: str) -> None:
    assert has_leaked_calls(text, {"add"})


@pytest.mark.parametrize("text", EXPLAINED)
def test_a_text_about_such_calls_is_left_alone(text: str) -> None:
    assert not has_leaked_calls(text, {"add"})


@pytest.mark.parametrize("text", LEAKED)
def test_nothing_is_leaked_where_no_tool_was_declared(text: str) -> None:
    assert not has_leaked_calls(text, ())
