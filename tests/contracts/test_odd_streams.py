"""Streams that servers and intermediaries sent and that clients misread: what each says, once."""

import json
import time
from typing import Any

import pytest
from recorded import read

from inputs import shared_input
from roundelay_worker.providers.anthropic.reply import MessageAssembly
from roundelay_worker.providers.base import ModelRequest, ToolSpec
from roundelay_worker.providers.chat.reply import ChatAssembly
from roundelay_worker.providers.google.reply import GenerationAssembly
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.responses.reply import ResponsesAssembly

ASSEMBLIES: dict[str, Any] = {
    "anthropic": MessageAssembly,
    "chat": ChatAssembly,
    "google": GenerationAssembly,
    "responses": ResponsesAssembly,
}


def tool(name: str, **properties: str) -> ToolSpec:
    kinds = {key: {"type": kind} for key, kind in properties.items()}
    return ToolSpec(name, "Does it.", {"type": "object", "properties": kinds})


REQUEST = ModelRequest("", (), (tool("pay", amount="integer"), tool("plan"), tool("weather", city="string")), "auto")

PAID = ("pay", {"amount": 1})
ROME = ("weather", {"city": "Rome"})

SHARED = {
    "anthropic-block-stop-before-its-arguments-end": ("", [ROME]),
    "anthropic-block-stop-before-the-first-argument": (
        "",
        [("weather", {"latitude": "52.5200", "longitude": "13.4050"})],
    ),
    "chat-arguments-with-half-an-emoji": ("", [("weather", {"city": "R\ufffdme"})]),
    "chat-emoji-cut-into-two-chunks": ("Hi \U0001f600 there", []),
    "chat-empty-object-before-the-arguments": ("", [ROME]),
    "chat-harmony-suffix-in-tool-name": ("", [ROME]),
    "chat-lone-half-of-an-emoji": ("Hi \ufffd there", []),
    "chat-nested-array-as-string": ("", [("plan", {"steps": '[{"what": "x"}]'})]),
    "chat-tool-name-in-pieces": ("", [ROME]),
    "chat-two-argument-objects-under-one-call": ("", [ROME, ("weather", {"city": "Oslo"})]),
    "chat-whole-arguments-sent-again": ("", [ROME]),
    "responses-arguments-only-in-arguments-done": ("", [PAID]),
    "responses-done-item-without-the-text-of-its-deltas": ("The answer is four.", []),
    "responses-emoji-cut-into-two-deltas": ("Hi \U0001f600", []),
    "responses-output-index-counts-from-one": ("", [PAID]),
    "responses-reasoning-and-call-share-output-index": ("", [PAID]),
    "responses-two-calls-share-output-index": ("", [PAID, ("pay", {"amount": 2})]),
}
"""Inputs by their name: the text of the reply, and its calls."""


@pytest.mark.parametrize("name", SHARED)
def test_what_others_were_sent_is_read_as_it_was_meant(name: str):
    turn, shown = read(ASSEMBLIES[name.partition("-")[0]](REQUEST, "here"), shared_input(f"{name}.sse"))

    assert (turn.text, told(turn)) == SHARED[name]
    assert shown == turn.text
    assert [call.fault for call in turn.calls] == [""] * len(turn.calls)


def told(turn: Any) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in turn.calls]


def sse(*events: dict[str, Any]) -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


def chat(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return sse(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})


def responses(*events: dict[str, Any]) -> bytes:
    return sse(*events, {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}})


def anthropic(*events: dict[str, Any], reason: str = "end_turn") -> bytes:
    end = ({"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"})
    return sse({"type": "message_start", "message": {"id": "m", "content": []}}, *events, *end)


def google(*parts: dict[str, Any]) -> bytes:
    chunks = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    return sse(*chunks, {"candidates": [{"finishReason": "STOP"}]})


def grown(kind: str, texts: list[str]) -> bytes:
    """Return a reply of one format whose text comes in these pieces."""
    match kind:
        case "chat":
            return chat(*({"content": text} for text in texts))
        case "responses":
            return responses(*({"type": "response.output_text.delta", "output_index": 0, "delta": t} for t in texts))
        case "google":
            return google(*({"text": text} for text in texts))
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    return anthropic(block, *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas))


def called(kind: str, pieces: list[str]) -> bytes:
    """Return a reply of one format with one call whose arguments come in these pieces."""
    match kind:
        case "chat":
            call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "plan", "arguments": ""}}
            more = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
            return chat({"tool_calls": [call]}, *more, finish="tool_calls")
        case "responses":
            item = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "plan", "arguments": ""}
            begun = {"type": "response.output_item.added", "output_index": 0, "item": item}
            delta = {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc"}
            done = {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {**item, "arguments": "".join(pieces)},
            }
            return responses(begun, *({**delta, "delta": piece} for piece in pieces), done)
    use = {"type": "tool_use", "id": "c1", "name": "plan", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    begun = {"type": "content_block_start", "index": 0, "content_block": use}
    grows = [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    return anthropic(begun, *grows, {"type": "content_block_stop", "index": 0}, reason="tool_use")


@pytest.mark.parametrize("kind", ASSEMBLIES)
@pytest.mark.parametrize(
    ("pieces", "text"), [(["Hi \ud83d", "\ude00!"], "Hi \U0001f600!"), (["a\ud83d", "b"], "a\ufffdb")]
)
def test_an_emoji_cut_in_two_becomes_one_in_every_format(kind: str, pieces: list[str], text: str):
    turn, shown = read(ASSEMBLIES[kind](REQUEST, "here"), grown(kind, pieces))

    assert turn.text == text
    assert shown == text


@pytest.mark.parametrize("kind", ["anthropic", "chat", "responses"])
@pytest.mark.parametrize("depth", [254, 3_000])
def test_arguments_nested_too_deeply_are_told_as_such_in_every_format(kind: str, depth: int):
    nested = '{"steps": ' + "[" * depth + "]" * depth + "}"

    turn, _ = read(ASSEMBLIES[kind](REQUEST, "here"), called(kind, [nested[:200], nested[200:]]))

    assert [(call.name, call.arguments, bool(call.fault)) for call in turn.calls] == [("plan", "{}", True)]


@pytest.mark.parametrize("kind", ASSEMBLIES)
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_byte_order_mark_is_read_over_wherever_it_is_cut(kind: str, cut: int):
    body = b"\xef\xbb\xbf" + grown(kind, ["Yes."])

    assert read(ASSEMBLIES[kind](REQUEST, "here"), body, [cut] if cut else [])[0].text == "Yes."


@pytest.mark.parametrize("kind", ASSEMBLIES)
@pytest.mark.parametrize("late", [{"error": {"message": "Token limit reached", "code": 400}}, {"type": "error"}, 7])
def test_what_follows_the_end_of_a_turn_changes_nothing(kind: str, late: Any):
    turn, _ = read(ASSEMBLIES[kind](REQUEST, "here"), grown(kind, ["Yes."]) + sse(late))

    assert (turn.text, turn.finish) == ("Yes.", "complete")


def test_a_cut_is_not_undone_by_an_error_behind_it():
    body = chat({"content": "It is"}, finish="length") + sse({"error": {"message": "Token limit reached", "code": 400}})

    turn, _ = read(ChatAssembly(REQUEST, "here"), body)

    assert (turn.text, turn.finish) == ("It is", "cut")


def call_part(call_id: str, city: str) -> dict[str, Any]:
    return {"functionCall": {"id": call_id, "name": "weather", "args": {"city": city}}}


def test_geminis_same_call_under_the_same_id_is_one_call():
    turn, _ = read(GenerationAssembly(REQUEST, "here"), google(call_part("a", "Rome"), call_part("a", "Rome")))

    assert told(turn) == [ROME]


def test_geminis_same_call_without_an_id_is_two_calls():
    part = {"functionCall": {"name": "weather", "args": {"city": "Rome"}}}

    assert told(read(GenerationAssembly(REQUEST, "here"), google(part, part))[0]) == [ROME, ROME]


def use(index: int, call_id: str, city: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call_id, "name": "weather", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps({"city": city})}
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def test_anthropics_same_call_under_another_index_is_one_call():
    body = anthropic(*use(0, "a", "Rome"), *use(1, "a", "Rome"), reason="tool_use")

    assert told(read(MessageAssembly(REQUEST, "here"), body)[0]) == [ROME]


def test_anthropics_two_calls_under_one_id_are_two_calls_with_an_id_each():
    body = anthropic(*use(0, "a", "Rome"), *use(1, "a", "Oslo"), reason="tool_use")

    turn, _ = read(MessageAssembly(REQUEST, "here"), body)

    assert told(turn) == [ROME, ("weather", {"city": "Oslo"})]
    assert len({call.wire_id for call in turn.calls}) == 2
    assert turn.native is not None
    assert [block["id"] for block in json.loads(turn.native.blocks)] == [call.wire_id for call in turn.calls]


LINEAR = 24
DEADLY = {
    "marks": ["<tool_call>{"] * 300,
    "marks on lines of their own": ["\n<tool_call>{"] * 300,
    "blanks": [" "] * 2_000,
    "lines": ["\n"] * 2_000,
    "thoughts": ["<think>"] * 500,
    "ends of thoughts": ["</think>"] * 500,
    "fences": ["```\n"] * 600,
    "half tags": ["<"] * 2_000,
    "braces": ["{"] * 2_000,
    "halves of emojis": ["\ud83d"] * 1_200,
}


@pytest.mark.parametrize("kind", ASSEMBLIES)
@pytest.mark.parametrize("name", DEADLY)
def test_eight_times_the_text_takes_about_eight_times_as_long(kind: str, name: str):
    pieces = DEADLY[name]

    assert growth(kind, grown, pieces) < LINEAR


@pytest.mark.parametrize("kind", ["anthropic", "chat", "responses"])
@pytest.mark.parametrize("piece", ['{"a":', "[", "{}", "x", '"', "\\"])
def test_eight_times_the_arguments_take_about_eight_times_as_long(kind: str, piece: str):
    assert growth(kind, called, [piece] * 700) < LINEAR


def growth(kind: str, body: Any, pieces: list[str]) -> float:
    """Return how much longer eight times the pieces take: eight where reading is linear, 64 where it is quadratic."""
    few, many = body(kind, pieces), body(kind, pieces * 8)
    return _spent(kind, many) / min(_spent(kind, few) for _ in range(5))


def _spent(kind: str, body: bytes) -> float:
    reader = BodyReader(ASSEMBLIES[kind](REQUEST, "here"))
    began = time.process_time()
    for at in range(0, len(body), 4096):
        reader.feed(body[at : at + 4096])
    reader.finish()
    return time.process_time() - began
