"""Replies of the fake, read back by an independent client, and what happens when they come back changed."""

import json

import pytest

from roundelay_worker.testing.fake_llm import script

TWO_CALLS = {
    "thinking": "let me think about this at some length",
    "text": "I shall look that up for you now.",
    "calls": [{"name": "add", "arguments": {"a": 1, "é": "two words"}}, {"name": "sub", "arguments": {}}],
}


def as_object(arguments):
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def test_a_loop_of_rounds_is_understood_and_accepted_when_it_comes_back_unchanged(fake, talk, wire, stream):
    given = talk(
        wire,
        "hi " + script(TWO_CALLS, TWO_CALLS, {"thinking": "hm", "text": "The answer is 2."}, name="loop"),
        stream=stream,
    )
    for _ in range(2):
        turn = given.ask()
        assert turn.text == TWO_CALLS["text"]
        assert [(name, as_object(arguments)) for _, name, arguments in turn.calls] == [
            ("add", {"a": 1, "é": "two words"}),
            ("sub", {}),
        ]
        given.answer(turn)
    last = given.ask()
    assert (last.text, last.calls) == ("The answer is 2.", [])
    assert [fake.count("loop", step) for step in range(4)] == [1, 1, 1, 0]
    assert not fake.refusals


def test_signed_reasoning_details_go_round_as_openrouter_sends_them(fake, talk, stream):
    given = talk("chat", script(TWO_CALLS, {"text": "done"}), stream=stream, model="vendor/model")
    turn = given.ask()
    assert turn.items[0]["reasoning_details"][0]["signature"]
    given.answer(turn)
    assert given.ask().text == "done"
    given.body["messages"][1]["reasoning_details"][0]["text"] += "!"
    assert given.send().status_code == 400
    del given.body["messages"][1]["reasoning_details"]
    given.send()
    assert [each.refusal.rule for each in fake.refusals] == ["changed_turn"]


def reasoning_of(wire, body):
    """Return the item of the first turn that carries its signature."""
    if wire == "anthropic":
        return body["messages"][1]["content"][0]
    if wire == "responses":
        return body["input"][1]
    return next(part for part in body["contents"][1]["parts"] if "thoughtSignature" in part)


def test_reasoning_details_left_out_are_refused(fake, talk):
    given = talk("chat", script(TWO_CALLS, {"text": "done"}), model="vendor/model")
    given.answer(given.ask())
    del given.body["messages"][1]["reasoning_details"]
    assert given.send().status_code == 400
    assert fake.refusals[0].refusal.rule == "reasoning_left_out"


SIGNATURE = {"anthropic": "signature", "responses": "encrypted_content", "gemini": "thoughtSignature"}


@pytest.fixture(params=list(SIGNATURE))
def signing(request):
    return request.param


@pytest.fixture
def second(talk, signing, stream):
    """Return a conversation about to send its second request."""
    given = talk(signing, script(TWO_CALLS, {"text": "done"}, name="s"), stream=stream)
    given.answer(given.ask())
    return given


def test_a_changed_signature_is_refused(fake, second, signing):
    item = reasoning_of(signing, second.body)
    item[SIGNATURE[signing]] = item[SIGNATURE[signing]][:-6] + "AAAAAA"
    assert second.send().status_code == 400
    assert fake.refusals[0].refusal.rule in {"signature", "encrypted"}


def test_a_changed_call_beside_the_signature_is_refused(fake, second, signing):
    if signing == "anthropic":
        second.body["messages"][1]["content"][-2]["input"] = {"a": 2}
    elif signing == "responses":
        second.body["input"][3]["arguments"] = '{"a": 2}'
    else:
        reasoning_of(signing, second.body)["functionCall"]["args"] = {"a": 2}
    assert second.send().status_code == 400
    assert fake.refusals[0].refusal.rule == "changed_turn"


def test_a_signature_moved_to_another_item_is_refused(fake, second, signing):
    if signing == "anthropic":
        content = second.body["messages"][1]["content"]
        content.insert(1, content.pop(0))
    elif signing == "responses":
        second.body["input"].insert(2, second.body["input"].pop(1))
    else:
        first, other = [part for part in second.body["contents"][1]["parts"] if "functionCall" in part]
        other["thoughtSignature"] = first.pop("thoughtSignature")
    assert second.send().status_code == 400


def test_reasoning_for_another_model_is_refused_where_the_service_refuses_it(fake, second, signing):
    second.model = "other"
    if signing != "gemini":
        second.body["model"] = "other"
    assert second.send().status_code == (200 if signing == "anthropic" else 400)


def test_an_item_may_be_spelt_with_its_keys_in_another_order(fake, second, signing):
    second.body = json.loads(json.dumps(second.body, sort_keys=True))
    assert second.ask().text == "done"
    assert not fake.refusals


def strip(wire, body):
    """Leave all reasoning out, as after a refusal of it."""
    if wire == "anthropic":
        del body["messages"][1]["content"][0]
    elif wire == "responses":
        del body["input"][1]
    else:
        reasoning_of(wire, body)["thoughtSignature"] = "skip_thought_signature_validator"


def test_reasoning_left_out_is_refused_at_first_and_accepted_as_a_repair(fake, talk, signing):
    begun = {**TWO_CALLS, "calls": TWO_CALLS["calls"][:1]}
    given = talk(signing, script(begun, {"error": "reasoning", "times": 1, "then": {"text": "done"}}, name="s"))
    given.answer(given.ask())
    whole = json.loads(json.dumps(given.body))
    strip(signing, given.body)
    if signing != "gemini":
        assert given.send().status_code == 400
        assert fake.refusals[0].refusal.rule in {"thinking_left_out", "reasoning_left_out"}
    given.body = whole
    assert given.send().status_code == 400
    strip(signing, given.body)
    assert given.ask().text == "done"


def test_what_a_stream_shows_before_an_item_is_done_must_not_come_back(fake, talk):
    given = talk("responses", script(TWO_CALLS, {"text": "done"}), stream=True)
    text = given.send().text
    added = next(json.loads(line[6:]) for line in text.splitlines() if "output_item.added" in line and line[0] == "d")
    given.answer(given.client.streamed(text))
    given.body["input"][1]["encrypted_content"] = added["item"]["encrypted_content"]
    assert given.send().json()["error"]["code"] == "invalid_encrypted_content"


def test_reasoning_is_not_encrypted_unless_that_is_asked_for(talk, stream):
    given = talk("responses", script(TWO_CALLS), stream=stream)
    del given.body["include"]
    assert "encrypted_content" not in json.dumps(given.ask().items)


def test_hidden_reasoning_comes_whole_and_goes_back(fake, talk, stream):
    given = talk("anthropic", script({**TWO_CALLS, "redacted": True}, {"text": "done"}), stream=stream)
    turn = given.ask()
    assert turn.items[0]["type"] == "redacted_thinking"
    given.answer(turn)
    assert given.ask().text == "done"


def test_reasoning_whose_text_is_left_out_goes_round_as_well(fake, talk, signing, stream):
    given = talk(signing, script(TWO_CALLS, TWO_CALLS, {"text": "done"}), stream=stream)
    del given.body[{"anthropic": "thinking", "responses": "reasoning", "gemini": "generationConfig"}[signing]]
    for _ in range(2):
        turn = given.ask()
        assert TWO_CALLS["thinking"] not in json.dumps(turn.items)
        given.answer(turn)
    assert given.ask().text == "done"
    assert not fake.refusals


def test_thinking_that_is_switched_off_does_not_come(talk, stream):
    given = talk("anthropic", script(TWO_CALLS), stream=stream)
    given.body["thinking"] = {"type": "disabled"}
    assert [item["type"] for item in given.ask().items] == ["text", "tool_use", "tool_use"]


def say(wire, body, text):
    """Append words of the user, as steering or as the next message."""
    if wire == "anthropic":
        body["messages"][-1]["content"].append({"type": "text", "text": text})
    elif wire == "gemini":
        body["contents"].append({"role": "user", "parts": [{"text": text}]})
    else:
        body["messages" if wire == "chat" else "input"].append({"role": "user", "content": text})


def test_words_after_the_results_steer_and_do_not_begin_anew(fake, talk, wire, stream):
    given = talk(wire, script(TWO_CALLS, {"text": "done"}, name="n"), stream=stream)
    given.answer(given.ask())
    say(wire, given.body, "Please answer now.")
    assert given.ask().text == "done"
    assert (fake.count("n", 0), fake.count("n", 1)) == (1, 1)


def test_reasoning_of_an_earlier_message_need_not_come_back(fake, talk, wire):
    given = talk(wire, script(TWO_CALLS), model="vendor/model" if wire == "chat" else "fake")
    given.answer(given.ask())
    if wire == "chat":
        del given.body["messages"][1]["reasoning_details"]
    else:
        strip(wire, given.body)
    say(wire, given.body, script({"text": "new"}, name="next"))
    assert given.ask().text == "new"
    assert fake.count("next", 0) == 1
    assert not fake.refusals


def test_a_malformed_call_comes_as_each_service_lets_it_through(talk, wire, stream):
    step = {"calls": [{"name": "add", "arguments": {"a": 12345}}], "finish": "malformed"}
    answer = talk(wire, script(step), stream=stream).send()
    expected = {
        "anthropic": (200, '"tool_use"'),
        "chat": (200 if stream else 400, "tool_use_failed"),
        "responses": (200, "function_call"),
        "gemini": (200, "MALFORMED_FUNCTION_CALL"),
    }
    assert answer.status_code == expected[wire][0]
    assert expected[wire][1] in answer.text
    assert "12345" not in answer.text


def test_an_overflow_comes_as_each_service_words_it(talk, wire, stream):
    answer = talk(wire, script({"text": "x", "finish": "overflow"}), stream=stream).send()
    expected = {
        "anthropic": (200, "model_context_window_exceeded"),
        "chat": (400, "context_length_exceeded"),
        "responses": (200 if stream else 400, "context_length_exceeded"),
        "gemini": (400, "exceeds the maximum number of tokens"),
    }
    assert answer.status_code == expected[wire][0]
    assert expected[wire][1] in answer.text


STOPS = {
    "complete": ("end_turn", "stop", "completed", "STOP"),
    "cut": ("max_tokens", "length", "max_output_tokens", "MAX_TOKENS"),
    "filtered": ("refusal", "content_filter", "content_filter", "PROHIBITED_CONTENT"),
    "refused": ("refusal", "stop", "completed", "SAFETY"),
    "empty": ("end_turn", "stop", "completed", "STOP"),
    "unknown": ("flux_exhausted", "flux_exhausted", "flux", "FLUX_EXHAUSTED"),
}


@pytest.mark.parametrize("finish", STOPS)
def test_an_ending_is_worded_as_the_service_words_it(talk, wire, stream, finish):
    turn = talk(wire, script({"text": "half a", "finish": finish}), stream=stream).ask()
    assert turn.stop == STOPS[finish][("anthropic", "chat", "responses", "gemini").index(wire)]
    if finish in {"filtered", "empty"}:
        assert turn.text == ""


def test_a_paused_turn_goes_back_as_the_last_message_and_counts_as_a_turn(fake, talk, stream):
    given = talk(
        "anthropic", script({"text": "searching", "finish": "paused"}, {"text": "found"}, name="p"), stream=stream
    )
    turn = given.ask()
    assert turn.stop == "pause_turn"
    given.body["messages"].append({"role": "assistant", "content": turn.items})
    assert given.ask().text == "found"


def test_a_paused_turn_that_was_merged_with_its_continuation_counts_twice(fake, talk):
    given = talk("anthropic", script({"text": "a", "finish": "paused"}, {"calls": [{"name": "add"}]}, {"text": "c"}))
    paused = given.ask()
    given.body["messages"].append({"role": "assistant", "content": paused.items})
    called = given.ask()
    given.body["messages"].pop()
    called.items = [*paused.items, *called.items]
    given.answer(called)
    assert given.ask().text == "c"


def test_a_cut_call_has_broken_arguments(talk):
    turn = talk(
        "chat", script({"calls": [{"name": "add", "arguments": {"a": 12345}}], "finish": "cut"}), stream=True
    ).ask()
    assert turn.stop == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(turn.calls[0][2])


def test_a_cut_block_is_never_closed(talk):
    given = talk(
        "anthropic", script({"calls": [{"name": "add", "arguments": {"a": 12345}}], "finish": "cut"}), stream=True
    )
    assert "content_block_stop" not in given.send().text


def test_a_reply_is_cut_unless_it_has_the_room_it_needs(talk, wire):
    given = talk(wire, script({"text": "long", "needs": 6000}))
    name = {"anthropic": "max_tokens", "chat": "max_tokens", "responses": "max_output_tokens"}.get(wire)
    for room, finish in ((5000, "cut"), (6000, "complete")):
        given.body |= {name: room} if name else {"generationConfig": {"maxOutputTokens": room}}
        assert given.ask().stop == STOPS[finish][("anthropic", "chat", "responses", "gemini").index(wire)]


def test_a_request_that_forbids_tools_gets_the_closing_step(fake, talk, wire, stream):
    given = talk(wire, script(TWO_CALLS, name="c", closing={"text": "That is all."}), stream=stream)
    given.answer(given.ask())
    given.forbid_tools()
    assert given.ask().text == "That is all."
    assert fake.count("c", "closing") == 1


def test_without_a_closing_step_the_next_one_is_given_without_its_calls(talk, wire):
    given = talk(wire, script(TWO_CALLS))
    given.answer(given.ask())
    given.forbid_tools()
    closing = given.ask()
    assert (closing.text, closing.calls) == ("Closing after 1 turns.", [])


def test_a_closing_step_may_call_all_the_same(talk, wire):
    given = talk(wire, script({"text": "x"}, closing=TWO_CALLS))
    given.forbid_tools()
    assert len(given.ask().calls) == 2


def test_ids_and_arguments_can_be_as_bad_as_they_come(talk, stream):
    calls = [
        {"name": "add", "id": "call_0", "bad_arguments": "{'a': 1}"},
        {"name": "add", "id": "call_0", "bad_arguments": None},
    ]
    turn = talk("chat", script({"calls": calls}), stream=stream).ask()
    assert [call[0] for call in turn.calls] == ["call_0", "call_0"]
    assert turn.calls[0][2] == "{'a': 1}"
    assert not turn.calls[1][2]


@pytest.mark.parametrize("style", [True, "qwen", "mistral", "llama", "dsml", "harmony"])
def test_calls_can_leak_as_text(talk, style):
    turn = talk("chat", script({"calls": [{"name": "add", "arguments": {"a": 1}}], "leak": style})).ask()
    assert (turn.calls, turn.stop) == ([], "stop")
    assert "add" in turn.text
    assert len(turn.text) > 20


USAGE = {"input": 100, "output": 50, "cached": 40, "reasoning": 10}
COUNTS = {
    "anthropic": {"input_tokens": 60, "cache_read_input_tokens": 40, "output_tokens": 50},
    "chat": {"prompt_tokens": 100, "completion_tokens": 50},
    "responses": {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150},
    "gemini": {"promptTokenCount": 100, "candidatesTokenCount": 40, "thoughtsTokenCount": 10, "totalTokenCount": 150},
}


def test_tokens_are_counted_as_the_service_counts_them(talk, wire, stream):
    usage = talk(wire, script({"text": "x", "usage": USAGE}), stream=stream).ask().usage
    assert {name: usage[name] for name in COUNTS[wire]} == COUNTS[wire]


def test_tokens_can_be_left_uncounted(talk, wire, stream):
    assert talk(wire, script({"text": "x", "usage": None}), stream=stream).ask().usage is None


def test_input_grows_and_is_cached_from_turn_to_turn(talk):
    given = talk("responses", "x" * 4000 + script(TWO_CALLS))
    first = given.ask()
    given.answer(first)
    second = given.ask()
    assert second.usage["input_tokens"] > first.usage["input_tokens"]
    assert (
        second.usage["input_tokens_details"]["cached_tokens"] % 128
        == 0
        < second.usage["input_tokens_details"]["cached_tokens"]
    )


def test_a_text_without_a_script_gets_the_default(fake, talk, wire):
    assert talk(wire, "hello").ask().text == "ok"
    assert fake.count("default", 0) == 1


def test_a_stream_of_gemini_without_sse_is_one_json_array(talk):
    given = talk("gemini", script({"text": "one two three four five six seven"}))
    path = "/v1beta/models/fake:streamGenerateContent"
    body = given.http.post(path, json=given.body, headers=given.client.headers).json()
    assert len(body) > 1
    assert given.client._turn(body).text == "one two three four five six seven"
