"""Chat Completions replies, with the habits of the servers that write them."""

import json
from typing import Any

import pytest

from roundelay_worker.loop.history import Turn, TurnUsage
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.chat.reply import FAILED_FINISHES, FINISHES, ChatAssembly
from roundelay_worker.providers.events import ServerEvent
from roundelay_worker.providers.reading import ALIVE, NOTHING, BodyReader, Piece, TextPiece, Thinking

TOOLS = (ToolSpec("add", "", {}),)


def assembly(limit: int = 100, tools: tuple[ToolSpec, ...] = TOOLS) -> ChatAssembly:
    return ChatAssembly(ModelRequest("", (), tools, max_output_tokens=limit), "here")


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def fed(*chunks: Any, into: ChatAssembly | None = None) -> tuple[ChatAssembly, list[Piece]]:
    reply = into or assembly()
    texts = [part if isinstance(part, str) else json.dumps(part) for part in chunks]
    return reply, [piece for text in texts for piece in reply.add(ServerEvent("message", text))]


def turn_of(*chunks: Any) -> Turn:
    return fed(*chunks, "[DONE]")[0].turn()


def whole(message: dict[str, Any], finish: Any = "stop", **fields: Any) -> Turn:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **fields}
    return assembly().read_whole(json.dumps(body).encode())


def native(turn: Turn) -> dict[str, Any]:
    assert turn.native is not None
    return json.loads(turn.native.blocks)


def call(arguments: Any, wire_id: Any = "c1", name: Any = "add", **more: Any) -> dict[str, Any]:
    return {"id": wire_id, "function": {"name": name, "arguments": arguments}, **more}


def arguments(turn: Turn) -> list[tuple[str, str, str]]:
    return [(c.name, c.arguments, c.wire_id) for c in turn.calls]


FINISH_ROWS = {
    "": "complete",
    "stop": "complete",
    "tool_calls": "complete",
    "tool_call": "complete",
    "function_call": "complete",
    "eos": "complete",
    "end": "complete",
    "end_turn": "complete",
    "tool_use": "complete",
    "stop_sequence": "complete",
    "length": "cut",
    "max_tokens": "cut",
    "max_output_tokens": "cut",
    "incomplete": "cut",
    "model_length": "overflow",
    "model_context_window_exceeded": "overflow",
    "content_filter": "refused",
    "refusal": "refused",
    "safety": "refused",
    "recitation": "refused",
    "prohibited_content": "refused",
    "malformed_function_call": "malformed",
    "function_call_filter: malformed_function_call": "malformed",
    "tool_use_failed": "malformed",
    "STOP": "complete",
    "something new": "unknown",
}


@pytest.mark.parametrize(("word", "finish"), FINISH_ROWS.items())
def test_every_finish_reason_has_its_meaning_in_a_stream_and_in_one_body(word: str, finish: str) -> None:
    assert turn_of(chunk(content="Hi"), chunk(word)).finish == finish
    assert whole({"content": "Hi"}, word).finish == finish


def test_the_table_of_finishes_has_a_row_for_each_word() -> None:
    assert FINISHES.keys() <= FINISH_ROWS.keys()


@pytest.mark.parametrize(("word", "code"), FAILED_FINISHES.items())
def test_a_finish_that_is_a_failure_of_the_server_may_work_later(word: str, code: str) -> None:
    with pytest.raises(ModelFailure) as caught:
        turn_of(chunk(content="Hi"), chunk(word))
    assert (caught.value.code, caught.value.retryable) == (code, True)


def test_calls_are_there_whatever_the_finish_reason_says() -> None:
    for word in ("stop", "", None):
        turn = whole({"content": None, "tool_calls": [call("{}")]}, word)
        assert (len(turn.calls), turn.finish) == (1, "complete")


def test_a_finish_reason_is_not_taken_back_by_an_empty_one() -> None:
    assert turn_of(chunk(content="Hi"), chunk("length"), chunk("")).finish == "cut"


def test_an_id_that_says_null_is_none() -> None:
    assert whole({"content": None, "tool_calls": [call("{}", "null")]}).calls[0].wire_id == ""


def test_a_call_cut_by_the_limit_under_a_good_finish_reason_is_a_cut_reply() -> None:
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 100}}
    broken = chunk(tool_calls=[call('{"a": 1')])

    assert turn_of(broken, chunk("tool_calls"), {"choices": [], **usage}).finish == "cut"
    assert turn_of(broken, chunk("tool_calls")).finish == "complete"
    assert turn_of(broken, chunk("tool_calls")).calls[0].fault


def test_a_refusal_is_refused_and_its_words_are_the_text() -> None:
    turn = turn_of(chunk(refusal="I can"), chunk(refusal="not."), chunk("stop"))

    assert (turn.finish, turn.text) == ("refused", "I cannot.")


def test_text_is_shown_as_it_comes_and_thinking_is_not() -> None:
    _, pieces = fed(
        chunk(role="assistant", content=""),
        chunk(reasoning_content="hm", reasoning="hm"),
        chunk(content="<think>so"),
        chunk(content="</think>Yes"),
        chunk(content="."),
    )

    assert pieces == [NOTHING, Thinking("hm"), Thinking("so"), TextPiece("Yes"), TextPiece(".")]


def test_usage_and_the_end_mark_are_signs_of_life_and_empty_pieces_are_not() -> None:
    _, pieces = fed(chunk(), {"choices": []}, {"choices": [], "usage": {"prompt_tokens": 1}}, "[DONE]")

    assert pieces == [NOTHING, NOTHING, ALIVE, ALIVE]


def test_reasoning_goes_back_but_is_no_part_of_the_text() -> None:
    turn = turn_of(chunk(reasoning_content="so "), chunk(reasoning_content="so"), chunk(content="Yes"), chunk("stop"))

    assert turn.text == "Yes"
    assert native(turn) == {"role": "assistant", "content": "Yes", "reasoning_content": "so so"}


def test_an_empty_reasoning_content_is_kept_since_it_must_go_back() -> None:
    assert (
        native(whole({"content": "", "reasoning_content": "", "tool_calls": [call("{}")]}))["reasoning_content"] == ""
    )


def test_reasoning_details_are_joined_and_replace_their_plain_copy() -> None:
    details = [
        [{"type": "reasoning.text", "text": "a", "index": 0, "format": "f"}],
        [{"type": "reasoning.text", "text": "b", "index": 0}],
        [{"type": "reasoning.text", "signature": "sig", "index": 0}],
        [{"type": "reasoning.text", "text": "c", "index": 0}],
        [{"type": "reasoning.encrypted", "data": "d1", "index": 1}],
    ]

    turn = turn_of(*(chunk(reasoning="x", reasoning_details=part) for part in details), chunk("stop"))

    assert native(turn)["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "index": 0, "format": "f", "signature": "sig"},
        {"type": "reasoning.text", "text": "c", "index": 0},
        {"type": "reasoning.encrypted", "data": "d1", "index": 1},
    ]
    assert "reasoning" not in native(turn)


def test_content_in_parts_goes_back_in_parts_with_the_thinking_joined() -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": t}]} for t in ("so ", "so")]

    turn = turn_of(
        chunk(content=[thinking[0]]),
        chunk(content=[thinking[1]]),
        chunk(content="Ye"),
        chunk(content="s"),
        chunk("stop"),
    )

    assert turn.text == "Yes"
    assert native(turn)["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "so so"}]},
        {"type": "text", "text": "Yes"},
    ]


def test_content_that_is_an_object_is_its_json() -> None:
    assert whole({"content": {"a": 1}}).text == '{"a":1}'


def test_calls_in_pieces_are_joined_by_index_wherever_it_begins() -> None:
    turn = turn_of(
        chunk(content="Look:"),
        chunk(tool_calls=[call("", "c1", index=1), call("", "c2", index=2)]),
        chunk(tool_calls=[{"index": 2, "function": {"arguments": '{"a":'}}]),
        chunk(tool_calls=[{"index": 1, "function": {"arguments": '{"b":1}', "name": ""}}]),
        chunk(tool_calls=[{"index": 2, "id": "c2", "function": {"arguments": "2}", "name": None}}]),
        chunk("tool_calls"),
    )

    assert arguments(turn) == [("add", '{"b":1}', "c1"), ("add", '{"a":2}', "c2")]
    assert turn.text == "Look:"


def test_calls_without_an_index_begin_with_an_id_or_a_name() -> None:
    turn = turn_of(
        chunk(tool_calls=[call('{"a":', "c1")]),
        chunk(tool_calls=[{"function": {"arguments": "1}"}}]),
        chunk(tool_calls=[call('{"a":2}', "c2"), call('{"a":3}', "")]),
        chunk("stop"),
    )

    assert arguments(turn) == [("add", '{"a":1}', "c1"), ("add", '{"a":2}', "c2"), ("add", '{"a":3}', "")]


def test_whole_calls_that_share_an_index_are_still_several() -> None:
    with_ids = turn_of(chunk(tool_calls=[call("{}", "c1", index=0)]), chunk(tool_calls=[call("{}", "c2", index=0)]))
    without = turn_of(chunk(tool_calls=[call("{}", "", index=0)]), chunk(tool_calls=[call('{"a":1}', "", index=0)]))

    assert [c.wire_id for c in with_ids.calls] == ["c1", "c2"]
    assert [c.arguments for c in without.calls] == ["{}", '{"a":1}']


def test_an_id_or_name_repeated_on_every_piece_is_one_call() -> None:
    turn = turn_of(
        chunk(tool_calls=[call('{"a"', "c1", index=0)]),
        chunk(tool_calls=[call(": 1}", "c1", index=0)]),
        chunk("tool_calls"),
    )

    assert arguments(turn) == [("add", '{"a": 1}', "c1")]


@pytest.mark.parametrize(
    ("given", "text"), [(None, "{}"), ("", "{}"), ({"a": 1}, '{"a":1}'), ('"{\\"a\\":1}"', '{"a":1}')]
)
def test_arguments_come_in_many_forms_and_go_back_as_the_text_of_an_object(given: Any, text: str) -> None:
    turn = whole({"content": None, "tool_calls": [call(given)]})

    assert turn.calls[0].arguments == text
    assert native(turn)["tool_calls"][0]["function"]["arguments"] == text


def test_broken_arguments_are_a_fault_and_do_not_go_back_broken() -> None:
    turn = whole({"content": None, "tool_calls": [call('{"a": ')]})

    assert turn.calls[0].fault
    assert native(turn)["tool_calls"][0]["function"]["arguments"] == "{}"


def test_what_else_a_server_puts_on_a_call_goes_back() -> None:
    extra = {"google": {"thought_signature": "s"}}

    turn = whole({"content": None, "tool_calls": [call("{}", extra_content=extra, index=0, type="function")]})

    assert native(turn)["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}, "extra_content": extra}
    ]


def test_the_old_form_of_a_call_is_read_and_its_empty_form_is_none() -> None:
    assert arguments(whole({"content": None, "function_call": {"name": "add", "arguments": "{}"}})) == [
        ("add", "{}", "")
    ]
    assert whole({"content": "Hi", "function_call": {"name": "", "arguments": ""}}).calls == ()


def test_a_call_without_a_name_or_written_as_text_is_malformed() -> None:
    leaked = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'

    assert whole({"content": None, "tool_calls": [call("{}", name="")]}).finish == "malformed"
    assert whole({"content": leaked}).finish == "malformed"
    assert fed(chunk(content=leaked), chunk("stop"), into=assembly(tools=()))[0].turn().finish == "complete"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}},
            TurnUsage(10, 5, 4, 0),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 3}, TurnUsage(10, 5, 3, 0)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            TurnUsage(10, 5, 0, 4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 19,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            TurnUsage(10, 9, 0, 4),
        ),
        ({"prompt_tokens": None, "completion_tokens": "x", "prompt_tokens_details": None}, None),
        (None, None),
    ],
)
def test_usage_is_the_same_whoever_counts(usage: Any, tokens: TurnUsage | None) -> None:
    assert whole({"content": "Hi"}, usage=usage).usage == tokens


def test_usage_is_found_in_the_choice_and_with_groq_too_and_the_last_one_counts() -> None:
    counted = {"prompt_tokens": 7, "completion_tokens": 1}
    in_choice = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": counted}]}

    assert turn_of(in_choice).usage == TurnUsage(7, 1)
    assert turn_of(chunk("stop"), {"choices": [], "x_groq": {"usage": counted}}).usage == TurnUsage(7, 1)
    early = chunk(content="Hi") | {"usage": {"prompt_tokens": 7, "completion_tokens": 0}}
    assert turn_of(early, chunk("stop") | {"usage": counted}).usage == TurnUsage(7, 1)


def test_other_choices_than_the_first_are_not_read() -> None:
    second = {"choices": [{"index": 1, "delta": {"content": "No"}, "finish_reason": "length"}]}

    assert turn_of(chunk(content="Yes"), second, chunk("stop")).text == "Yes"


def test_the_reply_is_whole_with_its_finish_reason_and_then_waits_a_little_for_the_rest() -> None:
    reply, _ = fed(chunk(content="Hi"))
    assert reply.linger is None

    fed(chunk("stop"), into=reply)
    after_finish = reply.linger
    fed("[DONE]", into=reply)

    assert after_finish is not None
    assert reply.linger is not None
    assert reply.linger < after_finish


def test_an_end_mark_without_a_finish_reason_ends_a_reply_too() -> None:
    assert turn_of(chunk(content="Hi")).finish == "complete"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"code": 429, "message": "x"}}, "rate_limited"),
        ({"object": "error", "message": "This model's maximum context length is 5", "code": 400}, "context_overflow"),
        ({"detail": "x"}, "provider_error"),
        ([{"error": {"code": 503, "message": "x"}}], "model_overloaded"),
        ({"choices": [], "error": {"message": "x", "code": 502}}, "model_overloaded"),
    ],
)
def test_an_error_in_place_of_a_reply_is_told_in_a_stream_and_in_one_body(body: Any, code: str) -> None:
    with pytest.raises(ModelFailure) as in_stream:
        fed(body)
    with pytest.raises(ModelFailure) as in_body:
        assembly().read_whole(json.dumps(body).encode())
    assert in_stream.value.code == in_body.value.code == code


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"choices":[]}', b'{"choices":null}', b"<html>", b"{"])
def test_a_body_without_a_reply_may_work_later(body: bytes) -> None:
    with pytest.raises(ModelFailure) as caught:
        assembly().read_whole(body)
    assert caught.value.retryable


def test_a_reader_takes_a_json_body_behind_blank_lines_for_a_stream() -> None:
    reader = BodyReader(assembly())

    assert reader.feed(b"\n") == [ALIVE]
    reader.feed(b'\n{"choices":[{"message":{"cont')
    reader.feed(b'ent":"Hi"}}]}')

    assert reader.finish().text == "Hi"


def test_an_end_mark_with_nothing_before_it_is_a_reply_that_broke_off() -> None:
    reply = assembly()
    reply.add(ServerEvent("message", "[DONE]"))

    with pytest.raises(ModelFailure) as caught:
        reply.turn()

    assert (caught.value.code, caught.value.retryable) == ("reply_cut_off", True)
