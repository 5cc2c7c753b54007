"""Neutral requests as Responses requests that leave nothing behind."""

import json
from typing import Any

import pytest

from roundelay_worker.loop.history import AssistantText, Call, Exchange, Native, Result, Turn, UserText
from roundelay_worker.providers.base import ModelRequest, ToolSpec
from roundelay_worker.providers.responses.provider import OpenAIProvider
from roundelay_worker.providers.responses.request import NO_OUTPUT, ResponsesTarget, body_of, to_request
from roundelay_worker.providers.transport import HttpTransport

ORIGIN = "openai:m@https://api.openai.com"
TARGET = ResponsesTarget("m", ORIGIN)
TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = Call("add", '{"a": 1}', "call_1")
REASONING = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
OWN_CALL = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a": 1}'}


def written(*history: Any, target: ResponsesTarget = TARGET, **fields: Any) -> dict[str, Any]:
    return to_request(ModelRequest(system=fields.pop("system", ""), history=history, **fields), target)


def exchange(*results: Result, native: list[dict[str, Any]] | None = None, **turn: Any) -> Exchange:
    blocks = Native(ORIGIN, json.dumps(native)) if native is not None else None
    calls = turn.pop("calls", (CALL,))
    return Exchange(Turn(calls=calls, native=blocks, **turn), results or tuple(Result("2") for _ in calls))


def output(call_id: str, text: str = "2") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def test_nothing_is_stored_and_encrypted_reasoning_is_asked_for() -> None:
    body = written(UserText("Hi"), system="Be brief.", cache_key="k", max_output_tokens=5)

    assert body == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "Hi"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 16,
        "stream": True,
        "prompt_cache_key": "k",
    }


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_tools_are_declared_flat_and_not_strict(choice: Any) -> None:
    body = written(UserText("Hi"), tools=(TOOL,), tool_choice=choice)

    assert body["tools"] == [
        {"type": "function", "name": "add", "description": "Adds.", "parameters": TOOL.schema, "strict": False}
    ]
    assert body["tool_choice"] == choice


def test_a_turn_goes_back_item_by_item_with_its_results_behind_it() -> None:
    body = written(UserText("Hi"), exchange(native=[REASONING, OWN_CALL]), UserText("And?"))

    assert body["input"] == [
        {"role": "user", "content": "Hi"},
        REASONING,
        OWN_CALL,
        output("call_1"),
        {"role": "user", "content": "And?"},
    ]


def test_another_models_turn_is_written_from_the_neutral_view() -> None:
    told = exchange(native=[REASONING, OWN_CALL], text="Look:")

    body = written(told, target=ResponsesTarget("other", "openai:other@x"))

    assert body["input"] == [{"role": "assistant", "content": "Look:"}, OWN_CALL, output("call_1")]


def test_reasoning_is_dropped_where_it_was_refused() -> None:
    body = written(exchange(native=[REASONING, OWN_CALL]), repairs=frozenset({"drop_reasoning"}))

    assert body["input"] == [OWN_CALL, output("call_1")]


def test_results_stand_behind_all_calls_in_their_order() -> None:
    calls = (CALL, Call("add", "{}", "call_2"))
    failed = Result('{"error": {"code": "timeout"}}', is_error=True)

    body = written(exchange(Result(""), failed, calls=calls))

    assert [item["type"] for item in body["input"]] == ["function_call"] * 2 + ["function_call_output"] * 2
    assert body["input"][2:] == [output("call_1", NO_OUTPUT), output("call_2", failed.text)]


def test_an_id_used_in_every_round_is_made_unique_on_both_sides() -> None:
    told = exchange(native=[REASONING, OWN_CALL])

    items = written(told, told)["input"]

    first, second = (item["call_id"] for item in items if item["type"] == "function_call")
    assert [item["call_id"] for item in items if item["type"] == "function_call_output"] == [first, second]
    assert first == "call_1"
    assert second != first
    assert items.count(REASONING) == 2


def test_a_paused_turn_goes_back_as_it_came_and_the_user_has_the_last_word() -> None:
    items = written(exchange(calls=(), native=[{"type": "web_search_call", "id": "ws_1"}]))["input"]

    assert items[0] == {"type": "web_search_call", "id": "ws_1"}
    assert items[1]["role"] == "user"
    assert written(UserText("a"), exchange(calls=(), native=[]), UserText("b"))["input"] == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]


def test_blank_texts_are_left_out_and_a_nudge_comes_last() -> None:
    items = written(UserText("a"), AssistantText(" "), exchange(), nudge="Go on.")["input"]

    assert [item.get("role") for item in items] == ["user", None, None, "user"]
    assert items[-1] == {"role": "user", "content": "Go on."}


@pytest.mark.parametrize(
    ("repair", "gone"),
    [
        ("drop:temperature", "temperature"),
        ("drop:reasoning_effort", "reasoning"),
        ("drop:include", "include"),
        ("drop:store", "store"),
        ("drop:prompt_cache_key", "prompt_cache_key"),
        ("drop:max_output_tokens", "max_output_tokens"),
        ("drop:tool_choice", "tool_choice"),
    ],
)
def test_each_repair_leaves_out_its_one_parameter(repair: str, gone: str) -> None:
    options: Any = {"tools": (TOOL,), "tool_choice": "auto", "temperature": 0.5, "reasoning_effort": "low"}
    plain = written(UserText("Hi"), cache_key="k", **options)

    mended = written(UserText("Hi"), cache_key="k", repairs=frozenset({repair}), **options)

    assert mended == {key: value for key, value in plain.items() if key != gone}
    assert gone in plain


def test_strict_is_left_out_where_it_is_not_known_and_streaming_where_it_is_refused() -> None:
    body = written(UserText("Hi"), tools=(TOOL,), repairs=frozenset({"drop:strict", "no_stream", "drop:input"}))

    assert "strict" not in body["tools"][0]
    assert body["stream"] is False
    assert body["input"]


def test_a_made_up_name_goes_back_as_one_that_is_accepted() -> None:
    calls = (Call("a.b", "{}", "call_1"),)

    for told in (exchange(calls=calls), exchange(calls=calls, native=[{**OWN_CALL, "name": "a.b"}])):
        assert written(told)["input"][0]["name"] == "a_b"


def test_a_longer_history_begins_with_the_bytes_of_the_shorter_one() -> None:
    told = exchange(native=[REASONING, OWN_CALL])
    histories = ((UserText("Hi"), told), (UserText("Hi"), told, told))

    short, long = (body_of(ModelRequest("S", history, (TOOL,), "auto"), TARGET) for history in histories)

    assert long.startswith(short[: short.index(b'],"tool_choice"')])


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/responses"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/responses"),
        ("http://localhost:1234/v1/responses", "http://localhost:1234/v1/responses"),
        (
            "https://x.openai.azure.com/openai/v1?api-version=p",
            "https://x.openai.azure.com/openai/v1/responses?api-version=p",
        ),
    ],
)
def test_the_address_is_made_of_any_spelling_of_the_base_url(base_url: str, url: str) -> None:
    provider = OpenAIProvider("m", base_url, "k", HttpTransport())

    assert provider._url == url
    assert provider.origin == f"openai:m@{url.split('/v1', maxsplit=1)[0]}"
