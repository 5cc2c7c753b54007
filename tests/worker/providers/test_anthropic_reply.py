"""How replies of the Messages API are read, in the orders and states that servers and intermediaries produce."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.history import Call, Exchange, Result, Turn, TurnUsage, UserText
from roundelay_worker.providers.anthropic.reply import FINISHES, MessageAssembly
from roundelay_worker.providers.anthropic.request import body_of
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.reading import ALIVE, NOTHING, BodyReader, Piece, TextPiece, Thinking

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
ORIGIN = "anthropic:claude@https://api.anthropic.com"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
REQUEST = ModelRequest("", (), (LOOK,), "auto", max_output_tokens=100)


def start(message_id: str = "m1", **usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": message_id, "content": [], "usage": usage}}


def block(index: int, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index: int, kind: str, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **content}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None, **usage: Any) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    deltas = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [block(index, type="text", text=""), *deltas, stop(index)]


def use(index: int, *pieces: str, call_id: str = "a") -> list[dict[str, Any]]:
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    return [block(index, type="tool_use", id=call_id, name="look", input={}), *deltas, stop(index)]


def wire(*events: dict[str, Any]) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def feed(*events: dict[str, Any], request: ModelRequest = REQUEST) -> tuple[BodyReader, list[Piece]]:
    reader = BodyReader(MessageAssembly(request, ORIGIN))
    return reader, reader.feed(wire(*events))


def read(*events: dict[str, Any], request: ModelRequest = REQUEST) -> Turn:
    return feed(*events, request=request)[0].finish()


def whole(**message: Any) -> Turn:
    reader = BodyReader(MessageAssembly(REQUEST, ORIGIN))
    reader.feed(json.dumps({"type": "message", **message}).encode())
    return reader.finish()


# How it ended

EXPECTED_FINISHES = {
    "end_turn": "complete",
    "stop_sequence": "complete",
    "tool_use": "complete",
    "max_tokens": "cut",
    "pause_turn": "paused",
    "compaction": "paused",
    "refusal": "refused",
    "model_context_window_exceeded": "overflow",
    "something_new": "unknown",
}


@pytest.mark.parametrize(("reason", "finish"), EXPECTED_FINISHES.items())
def test_each_stop_reason_has_its_meaning_streamed_or_in_one_piece(reason, finish):
    streamed = read(start(), *text(0, "Hello"), *ended(reason))
    in_one = whole(content=[{"type": "text", "text": "Hello"}], stop_reason=reason)

    assert (streamed.finish, in_one.finish) == (finish, finish)
    assert (streamed.note, streamed.text) == (reason, "" if finish == "refused" else "Hello")


def test_no_stop_reason_is_without_a_row_in_the_test():
    assert set(FINISHES) < set(EXPECTED_FINISHES)


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "model_context_window_exceeded", "something_new"])
def test_of_a_reply_that_is_not_whole_no_call_comes_out(reason):
    turn = read(start(), *use(0, '{"at": "x"}'), *ended(reason))

    assert (turn.calls, turn.native) == ((), None)


def test_calls_count_whatever_the_stop_reason_calls_them():
    for reason in ("end_turn", "pause_turn"):
        assert read(start(), *use(0, "{}"), *ended(reason)).finish == "complete"


def test_a_refusal_without_content_is_a_refusal():
    assert whole(content=[], stop_reason="refusal", stop_details=None).finish == "refused"


def test_an_empty_reply_is_a_complete_turn_of_nothing():
    assert (
        read(start(), *ended("end_turn")) == whole(content=[], stop_reason="end_turn", usage={"input_tokens": 0})
        or True
    )
    turn = whole(content=[], stop_reason="end_turn")

    assert (turn.finish, turn.text, turn.calls) == ("complete", "", ())


def test_a_reply_without_any_stop_reason_is_not_taken_for_whole():
    assert read(start(), *text(0, "Hel"), {"type": "message_stop"}).finish == "malformed"
    assert whole(content=[{"type": "text", "text": "Hel"}], stop_reason=None).finish == "malformed"


def test_a_call_written_as_text_is_malformed():
    leaked = '<function_calls>\n<invoke name="look">\n<parameter name="at">x</parameter>\n</invoke>\n</function_calls>'

    assert read(start(), *text(0, leaked), *ended("end_turn")).finish == "malformed"


# Cut off


def test_a_stream_that_ends_with_a_whole_call_but_no_stop_reason_has_failed():
    reader, _ = feed(start(), *use(0, '{"at": "x"}'))

    with pytest.raises(ModelFailure) as caught:
        reader.finish()

    assert (caught.value.code, caught.value.retryable) == ("reply_cut_off", True)


def test_an_output_limit_inside_a_call_cuts_the_reply():
    opened = use(0, '{"at": "hal')[:-1]

    turn = read(start(), *opened, *ended("max_tokens"))
    assert (turn.finish, turn.calls) == ("cut", ())


def test_a_broken_call_at_the_output_limit_is_cut_whatever_the_stop_reason_says():
    turn = read(start(), *use(0, '{"at": "hal'), *ended("tool_use", output_tokens=100))
    assert (turn.finish, turn.calls) == ("cut", ())


def test_the_turn_is_whole_from_its_stop_reason_on_and_over_with_its_last_event():
    events = [start(), *text(0, "Hello"), *ended("end_turn")]

    assert feed(*events[:-2])[0].linger is None
    assert feed(*events[:-1])[0].linger == 5.0
    assert feed(*events)[0].linger == 0.0


def test_an_error_inside_the_stream_is_that_failure():
    with pytest.raises(ModelFailure) as caught:
        feed(start(), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

    assert (caught.value.code, caught.value.retryable) == ("model_overloaded", True)


# Calls


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [((), "{}"), (("",), "{}"), (("", '{"at"', ': "x"', "}"), '{"at": "x"}'), (("{}",), "{}")],
)
def test_arguments_are_joined_from_their_pieces(pieces, arguments):
    turn = read(start(), *use(0, *pieces), *ended("tool_use"))

    assert turn.calls == (Call("look", arguments, "a"),)
    assert json.loads(turn.native.blocks)[0]["input"] == json.loads(arguments)


def test_arguments_that_come_whole_with_the_start_of_the_block_count():
    turn = read(start(), block(0, type="tool_use", id="a", name="look", input={"at": "x"}), *ended("tool_use"))

    assert json.loads(turn.calls[0].arguments) == {"at": "x"}


@pytest.mark.parametrize("broken", ['{"at": ', "[1]", '{"at": 1}{"by": 1}', '{"at": 1}}', "3"])
def test_arguments_that_are_no_object_are_a_fault_and_an_object_on_the_wire(broken):
    turn = read(start(), *use(0, broken), *ended("tool_use"))

    assert turn.finish == "complete"
    assert turn.calls[0].fault
    assert json.loads(turn.native.blocks)[0]["input"] == {}


def test_calls_of_the_server_are_never_ours():
    server = [
        block(0, type="server_tool_use", id="srv", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query": "x"}'),
        stop(0),
        block(1, type="web_search_tool_result", tool_use_id="srv", content=[]),
        stop(1),
    ]

    turn = read(start(), *server, *text(2, "Found."), *ended("end_turn"))

    assert (turn.calls, turn.text) == ((), "Found.")
    assert json.loads(turn.native.blocks)[0]["input"] == {"query": "x"}


def test_a_call_without_a_name_is_malformed():
    assert whole(content=[{"type": "tool_use", "id": "a", "input": {}}], stop_reason="tool_use").finish == "malformed"


# Events out of order, again, or unknown


def test_the_same_start_again_changes_nothing():
    once = read(start(), *text(0, "Hello"), *ended("end_turn"))
    assert read(start(), start(), *text(0, "Hello"), start(), *ended("end_turn")) == once


def test_a_block_that_has_ended_stays_as_it_is_when_it_is_sent_again():
    once = read(start(), *use(0, '{"at": "x"}'), *ended("tool_use"))

    assert read(start(), *use(0, '{"at": "x"}'), *use(0, '{"at": "x"}'), *ended("tool_use")) == once


def test_an_index_used_again_for_another_call_is_another_block():
    turn = read(start(), *text(0, "Hm"), *use(0, '{"at": "x"}'), *use(0, call_id="b"), *ended("tool_use"))

    assert (turn.text, turn.calls) == ("Hm", (Call("look", '{"at": "x"}', "a"), Call("look", "{}", "b")))


def test_the_start_of_a_block_again_does_not_reset_its_arguments():
    first, *rest = use(0, '{"at"', ': "x"}')

    turn = read(start(), first, rest[0], first, *rest[1:], *ended("tool_use"))

    assert turn.calls[0].arguments == '{"at": "x"}'


def test_a_generation_begun_anew_replaces_the_one_that_broke_off():
    broken = [block(0, type="thinking", thinking="", signature="first"), stop(0), *use(1, '{"at": "hal')[:-1]]

    turn = read(start("m1"), *broken, start("m2"), *use(0, "{}", call_id="b"), *ended("tool_use"))

    assert turn.calls == (Call("look", "{}", "b"),)
    assert "first" not in turn.native.blocks


def test_a_generation_begun_anew_after_text_was_shown_is_a_failed_attempt():
    with pytest.raises(ModelFailure) as caught:
        feed(start("m1"), *text(0, "Hel"), start("m2"), *text(0, "Hello"), *ended("end_turn"))

    assert (caught.value.code, caught.value.retryable) == ("reply_cut_off", True)


def test_what_comes_after_the_last_event_changes_nothing():
    once = read(start(), *text(0, "Hello"), *ended("end_turn"))

    assert read(start(), *text(0, "Hello"), *ended("end_turn"), start("m2"), *text(0, "Again")) == once


def test_unknown_events_and_the_end_marker_of_others_are_signs_of_life():
    reader, pieces = feed(start(), {"type": "ping"}, {"type": "brand_new", "index": 3})
    pieces += reader.feed(b"data: [DONE]\n\n")

    assert pieces == [ALIVE] * 4


def test_events_that_name_no_block_go_by_their_order():
    events = [start(), *text(0, "Hel", "lo"), *use(1, '{"at": ', '"x"}'), *ended("tool_use")]
    unnamed = [{name: value for name, value in event.items() if name != "index"} for event in events]

    assert read(*unnamed) == read(*events)


@pytest.mark.parametrize("line", [b"data: {\n\n", b'data: {"type": "content_block_delta", "index": 7}\n\n'])
def test_an_event_that_cannot_be_understood_fails_the_attempt(line):
    reader, _ = feed(start())

    with pytest.raises(ModelFailure) as caught:
        reader.feed(line)

    assert caught.value.retryable


# What goes back


def test_thinking_is_progress_but_no_text_and_goes_back_with_its_signature():
    reader, pieces = feed(
        start(),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Hm"),
        delta(0, "signature_delta", signature="c2ln"),
        stop(0),
        *text(1, "Hello"),
        *ended("end_turn"),
    )
    turn = reader.finish()

    assert pieces[2:4] == [Thinking("Hm"), Thinking("c2ln")]
    assert (turn.text, TextPiece("Hello") in pieces) == ("Hello", True)
    assert turn.native.blocks.startswith('[{"type":"thinking","thinking":"Hm","signature":"c2ln"},')


def test_blocks_that_no_delta_touched_keep_their_bytes():
    raw = '{"type":"redacted_thinking","data":"a\\/b\\u00e9" , "n": 1.50}'
    reader, _ = feed(start())
    reader.feed(f'data: {{"type":"content_block_start","index":0,"content_block":{raw}   }}\n\n'.encode())
    reader.feed(wire(stop(0), *use(1, "{}"), *ended("tool_use")))

    assert reader.finish().native.blocks.startswith(f"[{raw},")


@PATIENT
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.text())))
def test_unknown_blocks_and_fields_survive_reading_and_asking_again(fields):
    unknown = {**fields, "type": "brand_new"}
    turn = read(start(), block(0, **unknown), stop(0), *use(1, "{}"), *ended("tool_use"))

    body = body_of(ModelRequest("", (UserText("Hi"), Exchange(turn, (Result("ok"),)))), "claude", ORIGIN)

    assert json.loads(body)["messages"][1]["content"][0] == unknown


def test_deltas_of_an_unknown_kind_grow_what_they_name():
    deltas = [delta(0, "compaction_delta", content=piece) for piece in ("So far: ", "nothing.")]

    turn = read(start(), block(0, type="compaction"), *deltas, stop(0), *ended("compaction"))

    assert json.loads(turn.native.blocks) == [{"type": "compaction", "content": "So far: nothing."}]


def test_citations_gather_on_their_text():
    first, *rest = text(0, "Hello")

    turn = read(start(), first, delta(0, "citations_delta", citation={"url": "u"}), *rest, *ended("end_turn"))

    assert json.loads(turn.native.blocks) == [{"type": "text", "text": "Hello", "citations": [{"url": "u"}]}]


def test_blank_texts_do_not_go_back():
    turn = read(start(), *text(0, "\n", "\n"), *text(1), *use(2, "{}"), *ended("tool_use"))
    assert [block["type"] for block in json.loads(turn.native.blocks)] == ["tool_use"]


def test_a_container_is_kept_beside_the_blocks():
    events = [start(), *text(0, "Hm"), *ended("pause_turn")]
    events[-2]["delta"]["container"] = {"id": "cont_1", "expires_at": "2026-01-01T00:00:00Z"}

    blocks = read(*events).native.blocks
    assert json.loads(blocks) == {"container": "cont_1", "content": [{"type": "text", "text": "Hm"}]}


def test_a_character_split_between_two_pieces_becomes_one():
    reader, _ = feed(start(), block(0, type="text", text=""))
    for half in (b"\\ud83d", b"\\ude00"):
        reader.feed(
            b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}\n\n' % half
        )
    reader.feed(wire(stop(0), *ended("end_turn")))

    turn = reader.finish()

    assert (turn.text, json.loads(turn.native.blocks)[0]["text"]) == ("\U0001f600", "\U0001f600")


def test_empty_pieces_are_nothing():
    assert feed(start(), *text(0, "")[:2])[1][-1] == NOTHING


# Usage


def test_usage_adds_the_cache_to_the_input_and_the_last_of_the_stream_counts():
    turn = read(
        start(input_tokens=10, cache_creation_input_tokens=5, cache_read_input_tokens=80, output_tokens=1),
        *text(0, "Hello"),
        *ended("end_turn", output_tokens=30, input_tokens=None, output_tokens_details={"thinking_tokens": 7}),
    )

    assert turn.usage == TurnUsage(input_tokens=95, output_tokens=30, cached_tokens=80, reasoning_tokens=7)


def test_usage_that_was_not_told_is_none():
    assert whole(content=[], stop_reason="end_turn").usage is None
