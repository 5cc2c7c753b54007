"""Responses replies: items by their position, what is done wins, ends are told apart."""

import json
from typing import Any

import pytest

from roundelay_worker.loop.history import Turn, TurnUsage
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.events import ServerEvent
from roundelay_worker.providers.reading import ALIVE, NOTHING, Piece, TextPiece, Thinking
from roundelay_worker.providers.responses.reply import FINISHES, ResponsesAssembly

TOOLS = (ToolSpec("add", "", {}),)


def assembly(tools: tuple[ToolSpec, ...] = TOOLS) -> ResponsesAssembly:
    return ResponsesAssembly(ModelRequest("", (), tools), "here")


def fed(*events: dict[str, Any], into: ResponsesAssembly | None = None) -> tuple[ResponsesAssembly, list[Piece]]:
    reply = into or assembly()
    return reply, [piece for event in events for piece in reply.add(ServerEvent("message", json.dumps(event)))]


def item_event(kind: str, index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}


def completed(output: Any = (), **fields: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", "output": list(output), **fields}}


def message(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part], **fields}


def function_call(**fields: Any) -> dict[str, Any]:
    base = {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c1", "name": "add"}
    return {**base, "arguments": '{"a":1}', **fields}


def reasoning(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, **fields}


def whole(*output: dict[str, Any], status: Any = "completed", **fields: Any) -> Turn:
    body = {"object": "response", "status": status, "error": None, "output": list(output), **fields}
    return assembly().read_whole(json.dumps(body).encode())


def native(turn: Turn) -> list[dict[str, Any]]:
    assert turn.native is not None
    return json.loads(turn.native.blocks)


FINISH_ROWS = {
    ("completed", ""): "complete",
    ("incomplete", "max_output_tokens"): "cut",
    ("incomplete", "max_tokens"): "cut",
    ("incomplete", "content_filter"): "refused",
    ("incomplete", "model_context_window_exceeded"): "overflow",
    ("incomplete", "something new"): "unknown",
    ("something new", ""): "unknown",
}


@pytest.mark.parametrize(("end", "finish"), FINISH_ROWS.items())
def test_every_end_has_its_meaning_in_a_stream_and_in_one_body(end: tuple[str, str], finish: str) -> None:
    status, reason = end
    details = {"reason": reason} if reason else None
    response = {"status": status, "output": [message("Hi")], "incomplete_details": details}

    streamed = fed({"type": "response.incomplete", "response": response})[0].turn()

    assert streamed.finish == finish
    assert whole(message("Hi"), status=status, incomplete_details=details).finish == finish


def test_an_end_of_an_unknown_kind_is_an_end_and_one_under_way_is_none() -> None:
    begun = {"type": "response.queued", "response": {"status": "completed", "output": []}}
    beating = {"type": "response.heartbeat", "response": {"status": "in_progress", "output": []}}
    end = {"type": "response.expired", "response": {"status": "expired", "output": [message("Hi")]}}

    under_way, _ = fed(begun, beating)
    ended, _ = fed(begun, beating, end)

    assert under_way.linger is None
    assert ended.turn().finish == "unknown"


def test_the_table_of_ends_has_a_row_for_each() -> None:
    assert FINISHES.keys() <= FINISH_ROWS.keys()


@pytest.mark.parametrize("status", ["cancelled", "queued", "in_progress"])
def test_a_reply_that_was_left_is_no_turn(status: str) -> None:
    with pytest.raises(ModelFailure) as caught:
        whole(message("Hi"), status=status)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"code": "server_error", "message": "x"}, "provider_error", True),
        ({"code": "rate_limit_exceeded", "message": "x"}, "rate_limited", True),
        ({"code": "insufficient_quota", "message": "x"}, "quota", False),
        (None, "provider_error", True),
    ],
)
def test_a_failed_response_is_judged_by_its_error(error: Any, code: str, retryable: bool) -> None:
    with pytest.raises(ModelFailure) as caught:
        fed({"type": "response.failed", "response": {"status": "failed", "error": error}})
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "x", "param": None},
        {"type": "error", "error": {"type": "server_error", "code": None, "message": "x"}},
        {"error": {"code": "server_error", "message": "x"}},
    ],
)
def test_an_error_event_is_read_in_both_of_its_shapes(event: dict[str, Any]) -> None:
    with pytest.raises(ModelFailure) as caught:
        fed(event)
    assert (caught.value.code, caught.value.retryable) == ("provider_error", True)


def test_what_is_done_wins_over_what_was_added_and_what_the_end_repeats() -> None:
    turn = fed(
        item_event("added", 0, reasoning(encrypted_content="early")),
        item_event("done", 0, reasoning(encrypted_content="final")),
        item_event("done", 1, function_call()),
        completed([reasoning(), function_call(arguments="{}")]),
    )[0].turn()

    assert native(turn)[0]["encrypted_content"] == "final"
    assert turn.calls[0].arguments == '{"a":1}'


def test_items_stand_in_their_order_whatever_order_they_were_done_in() -> None:
    turn = fed(
        item_event("done", 2, function_call(call_id="c2")),
        item_event("done", 1, function_call(call_id="c1")),
        item_event("done", 0, message("Look:")),
        completed(),
    )[0].turn()

    assert [call.wire_id for call in turn.calls] == ["c1", "c2"]
    assert [item["type"] for item in native(turn)] == ["message", "function_call", "function_call"]


def test_an_item_that_was_never_done_is_taken_from_the_end_or_from_its_pieces() -> None:
    added = item_event("added", 0, {"type": "message", "content": [], "role": "assistant"})
    piece = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"}
    begun = item_event("added", 1, function_call(arguments=""))
    argument = {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a":2}'}

    from_pieces = fed(added, piece, begun, argument, completed())[0].turn()
    from_the_end = fed(added, piece, completed([message("Hi there")]))[0].turn()

    assert (from_pieces.text, from_pieces.calls[0].arguments) == ("Hi", '{"a":2}')
    assert from_the_end.text == "Hi there"


def test_events_without_a_position_belong_to_the_item_that_came_last() -> None:
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "item": reasoning()},
        {"type": "response.output_item.added", "item": {"type": "message", "role": "assistant"}},
        {"type": "response.output_text.delta", "delta": "Hi"},
    ]

    assert fed(*events, completed())[0].turn().text == "Hi"


def test_only_visible_text_is_shown() -> None:
    _, pieces = fed(
        {"type": "response.created", "response": {}},
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "<think>so</think>Hi"},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": ""},
        {"type": "keepalive"},
        {"type": "something.new"},
    )

    assert pieces == [ALIVE, Thinking("hm"), TextPiece("Hi"), Thinking("{"), NOTHING, ALIVE, ALIVE]


def test_the_answer_is_the_final_text_and_commentary_only_where_there_is_no_other() -> None:
    commentary = message("Let me see.", phase="commentary")

    assert whole(commentary, message("Done.", phase="final_answer")).text == "Done."
    assert whole(commentary, function_call()).text == "Let me see."
    assert whole(message("One."), message("Two.")).text == "One.\n\nTwo."


def test_items_go_back_without_ids_and_without_what_only_replies_say() -> None:
    turn = whole(
        reasoning(encrypted_content="e", status=None),
        message("Hi", phase="commentary"),
        function_call(arguments=""),
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    )

    assert native(turn) == [
        {"type": "reasoning", "summary": [], "encrypted_content": "e"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
            "phase": "commentary",
        },
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]


def test_reasoning_that_cannot_be_given_back_is_left_out_and_open_reasoning_is_not() -> None:
    told = [{"type": "reasoning_text", "text": "hm"}]

    assert native(whole(reasoning(), function_call()))[0]["type"] == "function_call"
    assert native(whole(reasoning(content=told), function_call()))[0]["content"] == told


def test_a_refusal_is_refused_and_its_words_are_the_text() -> None:
    turn = whole(message("", content=[{"type": "refusal", "refusal": "I cannot."}]))

    assert (turn.finish, turn.text) == ("refused", "I cannot.")


def test_a_call_without_a_name_or_written_as_text_is_malformed() -> None:
    assert whole(function_call(name="")).finish == "malformed"
    assert whole(message('<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>')).finish == "malformed"


def test_usage_includes_what_was_cached_and_what_was_thought() -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 3},
    }

    assert whole(message("Hi"), usage=usage).usage == TurnUsage(10, 5, 4, 3)
    assert whole(message("Hi"), usage=None).usage is None


def test_spliced_replies_are_one_reply_the_first_that_ends() -> None:
    created = {"type": "response.created", "response": {}}
    turn = fed(
        created,
        item_event("done", 0, message("Lost")),
        item_event("done", 1, function_call()),
        created,
        item_event("done", 0, message("Kept")),
        completed(),
        created,
        item_event("done", 0, message("Late")),
        completed(),
    )[0].turn()

    assert (turn.text, turn.calls) == ("Kept", ())


def test_the_end_event_makes_the_reply_whole() -> None:
    reply, _ = fed(item_event("done", 0, message("Hi")))
    assert reply.linger is None

    fed(completed(), into=reply)

    assert reply.linger is not None


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"null", b'{"output":null}', b"<html>"])
def test_a_body_without_a_reply_may_work_later(body: bytes) -> None:
    with pytest.raises(ModelFailure) as caught:
        assembly().read_whole(body)
    assert caught.value.retryable


def test_an_error_under_status_200_is_an_error() -> None:
    with pytest.raises(ModelFailure) as caught:
        assembly().read_whole(b'{"error":{"code":"invalid_api_key","message":"x"}}')
    assert caught.value.code == "credentials"
