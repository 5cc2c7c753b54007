"""How replies of generateContent are read, in the forms and states that servers and intermediaries produce."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.history import Call, Exchange, Result, Turn, TurnUsage, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.google.reply import FINISHES, GenerationAssembly
from roundelay_worker.providers.google.request import body_of
from roundelay_worker.providers.reading import ALIVE, NOTHING, BodyReader, Piece, TextPiece, Thinking

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
MODEL = "gemini-3-pro-preview"
ORIGIN = f"google:{MODEL}@https://generativelanguage.googleapis.com"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
REQUEST = ModelRequest("", (), (LOOK,), "auto")
CALLED = {"functionCall": {"name": "look", "args": {"at": "x"}}, "thoughtSignature": "c2ln"}


def chunk(*parts: dict[str, Any], reason: str | None = None, usage: dict[str, Any] | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], **({"usageMetadata": usage} if usage else {})}


def feed(*chunks: dict[str, Any]) -> tuple[BodyReader, list[Piece]]:
    reader = BodyReader(GenerationAssembly(REQUEST, ORIGIN))
    return reader, reader.feed("".join(f"data: {json.dumps(each)}\r\n\r\n" for each in chunks).encode())


def read(*chunks: dict[str, Any]) -> Turn:
    return feed(*chunks)[0].finish()


def whole(body: Any) -> Turn:
    reader = BodyReader(GenerationAssembly(REQUEST, ORIGIN))
    reader.feed(body if isinstance(body, bytes) else json.dumps(body).encode())
    return reader.finish()


# How it ended

EXPECTED_FINISHES = {
    "STOP": "complete",
    "MAX_TOKENS": "cut",
    "MALFORMED_FUNCTION_CALL": "malformed",
    "MALFORMED_RESPONSE": "malformed",
    "UNEXPECTED_TOOL_CALL": "malformed",
    "TOO_MANY_TOOL_CALLS": "malformed",
    "RECITATION": "malformed",
    "OTHER": "malformed",
    "FINISH_REASON_UNSPECIFIED": "malformed",
    "SAFETY": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "LANGUAGE": "refused",
    "MODEL_ARMOR": "refused",
    "ESCALATION": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "IMAGE_RECITATION": "refused",
    "IMAGE_OTHER": "refused",
    "NO_IMAGE": "refused",
    "SOMETHING_NEW": "unknown",
}


@pytest.mark.parametrize(("reason", "finish"), EXPECTED_FINISHES.items())
def test_each_finish_reason_has_its_meaning_streamed_or_in_one_piece(reason, finish):
    streamed = read(chunk({"text": "Hel"}), chunk({"text": "lo"}, reason=reason))
    in_one = whole(chunk({"text": "Hello"}, reason=reason))
    without_content = whole({"candidates": [{"finishReason": reason, "finishMessage": "text of the model"}]})

    assert (streamed.finish, in_one.finish, without_content.finish) == (finish, finish, finish)
    assert (streamed.note, streamed.text) == (reason, "" if finish == "refused" else "Hello")
    assert without_content.note == reason


def test_no_finish_reason_is_without_a_row_in_the_test():
    assert set(FINISHES) < set(EXPECTED_FINISHES)


def test_a_missing_signature_is_mended_by_dropping_reasoning():
    with pytest.raises(ModelFailure) as caught:
        read(chunk(reason="MISSING_THOUGHT_SIGNATURE"))

    assert (caught.value.code, caught.value.repair, caught.value.retryable) == ("bad_request", "drop_reasoning", False)


@pytest.mark.parametrize("reason", ["STOP", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_can_be_read_counts(reason):
    turn = read(chunk(CALLED, reason=reason))

    assert (turn.finish, turn.calls) == ("complete", (Call("look", '{"at": "x"}'),))


def test_an_unexpected_call_that_cannot_be_read_is_malformed():
    assert (
        read(chunk({"functionCall": {"name": "look", "args": [1]}}, reason="UNEXPECTED_TOOL_CALL")).finish
        == "malformed"
    )


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "SAFETY", "SOMETHING_NEW"])
def test_of_a_reply_that_is_not_whole_no_call_comes_out(reason):
    turn = read(chunk(CALLED, reason=reason))

    assert (turn.calls, turn.native) == ((), None)


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "JAILBREAK", "SOMETHING_NEW"])
def test_a_blocked_prompt_is_a_refusal(reason):
    blocked = {"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 4}}

    for turn in (read(blocked), whole(blocked)):
        assert (turn.finish, turn.note, turn.usage) == ("refused", reason, TurnUsage(input_tokens=4))


@pytest.mark.parametrize("body", [{}, {"candidates": []}, {"usageMetadata": {"promptTokenCount": 4}}])
def test_no_candidates_and_no_feedback_are_an_empty_reply(body):
    for turn in (read(body), whole(body)):
        assert (turn.finish, turn.text, turn.calls) == ("complete", "", ())


def test_a_limit_spent_on_thoughts_is_cut_without_parts():
    turn = whole({"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]})

    assert (turn.finish, turn.text) == ("cut", "")


def test_a_call_written_as_text_is_malformed():
    assert read(
        chunk({"text": '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'}, reason="STOP")
    ).finish == ("malformed")


# Cut off, errors, other forms


@pytest.mark.parametrize("chunks", [[], [chunk({"text": "Hel"})], [chunk(CALLED)]])
def test_a_stream_that_ends_without_a_finish_reason_has_failed(chunks):
    reader, _ = feed(*chunks)

    with pytest.raises(ModelFailure) as caught:
        reader.finish()

    assert (caught.value.code, caught.value.retryable) == ("reply_cut_off", True)


def test_the_turn_is_whole_from_its_finish_reason_on():
    assert feed(chunk({"text": "Hel"}))[0].linger is None
    assert feed(chunk({"text": "Hello"}, reason="STOP"))[0].linger == 10.0


ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize("body", [ERROR, [ERROR], [chunk({"text": "Hel"}), ERROR]])
def test_an_error_under_a_success_is_that_failure(body):
    with pytest.raises(ModelFailure) as caught:
        whole(body)

    assert (caught.value.code, caught.value.retryable) == ("model_overloaded", True)


def test_an_error_inside_the_stream_is_that_failure():
    with pytest.raises(ModelFailure) as caught:
        feed(chunk({"text": "Hel"}), ERROR)

    assert caught.value.code == "model_overloaded"


def test_an_array_of_chunks_is_the_same_turn_as_the_stream():
    chunks = [chunk({"text": "Hel"}), chunk({"text": "lo"}, CALLED, reason="STOP", usage={"promptTokenCount": 3})]

    assert whole(chunks) == read(*chunks)


def test_an_array_that_breaks_off_has_failed():
    body = json.dumps([chunk({"text": "Hello"}, reason="STOP")]).encode()

    with pytest.raises(ModelFailure) as caught:
        whole(body[:-1])

    assert (caught.value.code, caught.value.retryable) == ("reply_cut_off", True)


@pytest.mark.parametrize("body", [b"<html>", b"{", b'{"candidates": [3'])
def test_a_body_that_cannot_be_read_can_be_asked_for_again(body):
    with pytest.raises(ModelFailure) as caught:
        whole(body)

    assert (caught.value.code, caught.value.retryable) == ("provider_error", True)


# Calls


def test_parallel_calls_come_in_order_from_chunks_of_their_own():
    second = {"functionCall": {"name": "ping", "id": "i2"}}

    turn = read(chunk(CALLED), chunk(second), chunk({"text": ""}, reason="STOP"))

    assert turn.calls == (Call("look", '{"at": "x"}'), Call("ping", "{}", "i2"))
    assert json.loads(turn.native.blocks) == [CALLED, second]


@pytest.mark.parametrize("args", [{}, {"args": None}, {"args": {}}])
def test_arguments_may_be_missing(args):
    turn = read(chunk({"functionCall": {"name": "look", **args}}, reason="STOP"))

    assert turn.calls == (Call("look", "{}"),)


def test_arguments_that_are_no_object_are_a_fault():
    turn = read(chunk({"functionCall": {"name": "look", "args": "at x"}}, reason="STOP"))

    assert (turn.finish, turn.calls[0].arguments, bool(turn.calls[0].fault)) == ("complete", "{}", True)


def test_numbers_of_any_size_stay_as_the_model_wrote_them():
    args = '{"n": 123456789012345678901234567890, "x": 1.10}'
    reader, _ = feed()
    reader.feed(
        f'data: {{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"look","args":{args}}}}}]}},'
        '"finishReason":"STOP"}]}\n\n'.encode()
    )

    assert reader.finish().calls[0].arguments == args


def test_a_call_without_a_name_is_malformed():
    assert read(chunk({"functionCall": {"args": {}}}, reason="STOP")).finish == "malformed"


def test_calls_of_the_server_are_never_ours():
    server = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {}}, "thoughtSignature": "c2ln"}

    turn = read(chunk(server, {"text": "Found."}, reason="STOP"))

    assert (turn.calls, turn.text) == ((), "Found.")
    assert json.loads(turn.native.blocks)[0] == server


# Text and what goes back


def test_thoughts_are_progress_and_never_text():
    thought = {"text": "Hm", "thought": True}

    reader, pieces = feed(chunk(thought), chunk({"text": "Hello"}, reason="STOP"))
    turn = reader.finish()

    assert pieces == [Thinking(json.dumps(thought)), TextPiece("Hello")]
    assert (turn.text, json.loads(turn.native.blocks)) == ("Hello", [thought, {"text": "Hello"}])


def test_a_signature_on_an_empty_text_at_the_end_is_kept_and_an_empty_text_without_one_is_not():
    signed = {"text": "", "thoughtSignature": "c2ln"}

    turn = read(chunk({"text": "Hello"}), chunk({"text": ""}, {}), chunk(signed, reason="STOP"))

    assert json.loads(turn.native.blocks) == [{"text": "Hello"}, signed]


@PATIENT
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.text())))
def test_unknown_parts_and_fields_survive_reading_and_asking_again(fields):
    unknown = {**fields, "brandNew": {"a": 1.5}, "functionCall": CALLED["functionCall"]}
    turn = read(chunk(unknown), chunk({"text": "Hello"}, reason="STOP"))

    body = body_of(ModelRequest("", (UserText("Hi"), Exchange(turn, (Result("ok"),)))), MODEL, ORIGIN)

    assert json.loads(body)["contents"][1]["parts"][0] == unknown


def test_a_character_split_between_two_chunks_becomes_one():
    reader, _ = feed()
    for half in ("\\ud83d", "\\ude00"):
        reader.feed(f'data: {{"candidates":[{{"content":{{"parts":[{{"text":"{half}"}}]}}}}]}}\n\n'.encode())
    reader.feed(b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n')

    assert reader.finish().text == "\U0001f600"


def test_chunks_that_bring_nothing_are_nothing_and_the_end_marker_of_others_is_life():
    reader, pieces = feed({"usageMetadata": {}}, chunk({"text": ""}), {"candidates": [{}]})
    pieces += reader.feed(b"data: [DONE]\n\n")

    assert pieces == [NOTHING, NOTHING, NOTHING, ALIVE]


# Usage


def test_usage_counts_thoughts_as_output_and_the_last_of_the_stream():
    first = {"promptTokenCount": 10, "cachedContentTokenCount": 8, "candidatesTokenCount": 1}
    last = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "toolUsePromptTokenCount": 2}

    turn = read(chunk({"text": "Hel"}, usage=first), chunk({"text": "lo"}, reason="STOP", usage=last))

    assert turn.usage == TurnUsage(input_tokens=12, output_tokens=12, cached_tokens=8, reasoning_tokens=7)


def test_usage_that_was_not_told_is_none():
    assert read(chunk({"text": "Hello"}, reason="STOP")).usage is None
