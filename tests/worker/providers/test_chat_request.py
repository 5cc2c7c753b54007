"""Neutral requests as Chat Completions requests, server by server."""

import json
from typing import Any

import pytest

from roundelay_worker.loop.history import AssistantText, Call, Exchange, Native, Result, Turn, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.chat.provider import ChatProvider
from roundelay_worker.providers.chat.request import NO_OUTPUT, ChatTarget, body_of, to_request
from roundelay_worker.providers.chat.servers import server_of
from roundelay_worker.providers.transport import HttpTransport

OPENAI = "https://api.openai.com/v1"
LOCAL = "http://localhost:8000/v1"
MISTRAL = "https://api.mistral.ai/v1"
TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = Call("add", '{"a": 1}', "call_1")


def target(base_url: str = LOCAL, model: str = "m") -> ChatTarget:
    return ChatTarget(model, f"chat:{model}@{base_url}", server_of(base_url))


def written(*history: Any, base_url: str = LOCAL, model: str = "m", **fields: Any) -> dict[str, Any]:
    request = ModelRequest(system=fields.pop("system", ""), history=history, **fields)
    return to_request(request, target(base_url, model))


def messages(*history: Any, **fields: Any) -> list[dict[str, Any]]:
    return written(*history, **fields)["messages"]


def exchange(
    *results: Result, native: dict[str, Any] | None = None, origin: str = f"chat:m@{LOCAL}", **turn: Any
) -> Exchange:
    blocks = Native(origin, json.dumps(native)) if native is not None else None
    calls = turn.pop("calls", (CALL,))
    return Exchange(Turn(calls=calls, native=blocks, **turn), results or tuple(Result("2") for _ in calls))


def test_a_request_without_tools_names_neither_tools_nor_a_choice() -> None:
    body = written(UserText("Hi"), system="Be brief.")

    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 8192,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_tools_stay_declared_and_the_choice_is_said(choice: Any) -> None:
    body = written(UserText("Hi"), tools=(TOOL,), tool_choice=choice)

    function = {"name": "add", "description": "Adds.", "parameters": TOOL.schema}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["tool_choice"] == choice


def test_results_follow_their_turn_in_the_order_of_the_calls() -> None:
    calls = (CALL, Call("add", "{}", "call_2"))
    failed = Result('{"error": {"code": "timeout"}}', is_error=True)

    turn, first, second, user = messages(
        exchange(Result("2"), failed, calls=calls, text="Let me see."), UserText("And?")
    )

    assert [call["id"] for call in turn["tool_calls"]] == ["call_1", "call_2"]
    assert turn["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert turn["content"] == "Let me see."
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "2"}
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": failed.text}
    assert user == {"role": "user", "content": "And?"}


def test_an_empty_result_says_so() -> None:
    assert messages(exchange(Result("")))[1]["content"] == NO_OUTPUT


@pytest.mark.parametrize(
    ("base_url", "repairs", "content"),
    [(OPENAI, (), None), (LOCAL, (), None), (MISTRAL, (), ""), (LOCAL, ("content:empty",), "")],
)
def test_no_text_beside_calls_is_written_as_the_server_wants_it(base_url: str, repairs: Any, content: Any) -> None:
    turn = messages(exchange(), base_url=base_url, repairs=frozenset(repairs))[0]

    assert turn["content"] == content


def test_texts_of_one_speaker_in_a_row_are_one_message() -> None:
    history = (UserText("a"), UserText("b"), AssistantText("c"), AssistantText("d"), UserText("e"))

    assert messages(*history) == [
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": "c\n\nd"},
        {"role": "user", "content": "e"},
    ]


def test_blank_texts_are_no_messages() -> None:
    assert messages(UserText("a"), AssistantText(" "), UserText("b")) == [{"role": "user", "content": "a\n\nb"}]


def test_a_nudge_comes_behind_the_results() -> None:
    assert messages(exchange(), nudge="Go on.")[-1] == {"role": "user", "content": "Go on."}


def test_a_turn_goes_back_in_the_servers_own_words_to_the_same_model_only() -> None:
    own = {"role": "assistant", "content": None, "tool_calls": [tool_call("call_1")], "reasoning_content": "hm"}
    told = exchange(native=own, text="neutral")

    assert messages(told)[0] == own
    assert "reasoning_content" not in messages(told, model="other")[0]
    assert messages(told, model="other")[0]["content"] == "neutral"


def tool_call(wire_id: str, name: str = "add") -> dict[str, Any]:
    return {"id": wire_id, "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}


def test_reasoning_is_dropped_where_it_was_refused() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hi"}]
    signed = {**tool_call("call_1"), "extra_content": {"google": {"thought_signature": "s"}}}
    own = {"role": "assistant", "content": parts, "tool_calls": [signed], "reasoning_details": [{}], "reasoning": "x"}

    turn = messages(exchange(native=own), repairs=frozenset({"drop_reasoning"}))[0]

    assert turn == {"role": "assistant", "content": [parts[1]], "tool_calls": [tool_call("call_1")]}


def test_an_id_used_twice_is_replaced_in_the_call_and_in_its_result() -> None:
    own = {"role": "assistant", "content": None, "tool_calls": [tool_call("call_1")], "reasoning_content": "hm"}

    first, first_result, second, second_result = messages(exchange(native=own), exchange(native=own))

    assert first["tool_calls"][0]["id"] == first_result["tool_call_id"] == "call_1"
    assert second["tool_calls"][0]["id"] == second_result["tool_call_id"] != "call_1"
    assert second["reasoning_content"] == "hm"


def test_mistral_gets_ids_of_nine_letters_and_digits_and_no_option_it_does_not_know() -> None:
    body = written(exchange(), UserText("And?"), base_url=MISTRAL)

    call_id = body["messages"][0]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert body["messages"][1]["tool_call_id"] == call_id
    assert "stream_options" not in body


def test_a_made_up_name_goes_back_as_one_that_is_accepted() -> None:
    calls = (Call("multi_tool_use.parallel", "{}", "call_1"),)
    own = {"role": "assistant", "content": None, "tool_calls": [tool_call("call_1", "multi_tool_use.parallel")]}

    for told in (exchange(calls=calls), exchange(calls=calls, native=own)):
        assert messages(told)[0]["tool_calls"][0]["function"]["name"] == "multi_tool_use_parallel"


def test_a_paused_turn_goes_back_as_it_came_and_the_user_has_the_last_word() -> None:
    own = {"role": "assistant", "content": "Searching", "reasoning_content": "hm"}

    turn, user = messages(exchange(calls=(), native=own, text="Searching"))

    assert turn == own
    assert user["role"] == "user"
    assert messages(UserText("a"), exchange(calls=(), text="")) == [{"role": "user", "content": "a"}]
    assert messages(exchange(calls=(), text="Searching"))[0] == {"role": "assistant", "content": "Searching"}


@pytest.mark.parametrize(
    ("repair", "gone", "there"),
    [
        ("drop:temperature", "temperature", {}),
        ("drop:reasoning_effort", "reasoning_effort", {}),
        ("drop:stream_options", "stream_options", {"stream": True}),
        ("drop:tool_choice", "tool_choice", {}),
        ("drop:max_output_tokens", "max_tokens", {}),
        ("rename:max_tokens", "max_tokens", {"max_completion_tokens": 50}),
        ("no_stream", "stream_options", {"stream": False}),
        ("drop:messages", "no such thing", {"model": "m"}),
    ],
)
def test_each_repair_makes_its_one_change(repair: str, gone: str, there: dict[str, Any]) -> None:
    options: Any = {"tools": (TOOL,), "tool_choice": "auto", "temperature": 0.5, "reasoning_effort": "low"}
    options["max_output_tokens"] = 50
    plain = written(UserText("Hi"), **options)

    mended = written(UserText("Hi"), repairs=frozenset({repair}), **options)

    assert gone not in mended
    assert there.items() <= mended.items()
    assert len(mended.keys() ^ plain.keys()) <= 2
    assert mended["messages"] == plain["messages"]


def test_the_system_prompt_changes_its_role_where_it_was_refused() -> None:
    def first(*repairs: str) -> dict[str, Any]:
        return messages(UserText("Hi"), system="S", repairs=frozenset(repairs))[0]

    assert first() == {"role": "system", "content": "S"}
    assert first("role:system") == {"role": "developer", "content": "S"}
    assert first("role:system", "role:user") == {"role": "user", "content": "S\n\nHi"}


def test_a_bridge_stands_between_a_result_and_a_user_where_it_must() -> None:
    roles = [m["role"] for m in messages(exchange(), UserText("And?"), repairs=frozenset({"role:bridge"}))]

    assert roles == ["assistant", "tool", "assistant", "user"]


def test_ids_are_nine_letters_and_digits_where_a_server_takes_no_others() -> None:
    call, result = messages(exchange(), repairs=frozenset({"ids:nine"}))

    (written,) = call["tool_calls"]
    assert len(written["id"]) == 9
    assert written["id"].isalnum()
    assert result["tool_call_id"] == written["id"]


def test_reasoning_content_is_added_where_a_server_misses_it() -> None:
    turn = messages(exchange(), repairs=frozenset({"add:reasoning_content"}))[0]

    assert turn["reasoning_content"] == ""


def test_openai_is_asked_in_its_own_words() -> None:
    body = written(UserText("Hi"), base_url=OPENAI, cache_key="k", max_output_tokens=50)

    assert body["max_completion_tokens"] == 50
    assert body["prompt_cache_key"] == "k"
    assert "max_tokens" not in body
    assert "prompt_cache_key" not in written(UserText("Hi"), cache_key="k")


def test_openrouter_marks_the_cache_for_anthropics_models_only() -> None:
    base_url = "https://openrouter.ai/api/v1"

    marked = messages(UserText("Hi"), system="S", base_url=base_url, model="anthropic/claude")[0]

    assert marked["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert messages(UserText("Hi"), system="S", base_url=base_url, model="openai/x")[0]["content"] == "S"


def test_a_longer_history_begins_with_the_bytes_of_the_shorter_one() -> None:
    own = {"role": "assistant", "content": None, "tool_calls": [tool_call("call_1")]}
    history = (UserText("Hi"), exchange(native=own))
    longer = (*history, exchange(native=own))

    short, long = (body_of(ModelRequest("S", h, (TOOL,), "auto"), target()) for h in (history, longer))

    end = short.index(b'],"tools"')
    assert long.startswith(short[:end])


def test_text_that_no_encoding_holds_does_not_stop_a_request() -> None:
    assert messages(UserText("a\ud800b"))[0]["content"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        ("https://api.groq.com/openai/v1", "https://api.groq.com/openai/v1/chat/completions"),
        ("http://localhost:11434/v1/chat/completions", "http://localhost:11434/v1/chat/completions"),
        (
            "https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_the_address_keeps_the_path_of_the_base_url(base_url: str, url: str) -> None:
    provider = ChatProvider("m", base_url, "k", HttpTransport())

    assert provider._url == url
    assert provider.origin == f"chat:m@{url.split('?', maxsplit=1)[0].removesuffix('/chat/completions')}"


def test_the_key_goes_where_the_server_looks_for_it() -> None:
    def headers(base_url: str, key: str = "k") -> dict[str, str]:
        return ChatProvider("m", base_url, key, HttpTransport())._headers

    assert headers(LOCAL)["authorization"] == "Bearer k"
    assert headers("https://x.openai.azure.com/openai/v1")["api-key"] == "k"
    assert not {"authorization", "api-key"} & headers(LOCAL, "").keys()


def test_a_base_url_that_is_none_is_told_at_start() -> None:
    with pytest.raises(ModelFailure):
        ChatProvider("m", "localhost:8000", "k", HttpTransport())
