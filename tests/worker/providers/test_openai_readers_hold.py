"""Whatever a server sends, a reader brings a turn or a ModelFailure; and where bytes are cut changes nothing."""

import itertools
import json
import os
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.history import Exchange, Result, Turn, UserText
from roundelay_worker.providers.base import FailureCode, ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.chat.reply import ChatAssembly
from roundelay_worker.providers.chat.request import ChatTarget
from roundelay_worker.providers.chat.request import to_request as to_chat
from roundelay_worker.providers.chat.servers import server_of
from roundelay_worker.providers.reading import BodyReader, Piece, TextPiece
from roundelay_worker.providers.responses.reply import ResponsesAssembly
from roundelay_worker.providers.responses.request import ResponsesTarget
from roundelay_worker.providers.responses.request import to_request as to_responses

TOOLS = (ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}),)
REQUEST = ModelRequest(system="s", history=(), tools=TOOLS, tool_choice="auto")
ORIGIN = "here"
CODES = get_args(FailureCode)


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def delta(finish: str | None = None, **parts: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": parts, "finish_reason": finish}]}


def piece(index: int, arguments: str, **parts: Any) -> dict[str, Any]:
    name = parts.pop("name", None)
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function, **parts}


CHAT = [
    delta(role="assistant", content="", reasoning_details=[{"type": "reasoning.text", "text": "hm", "index": 0}]),
    delta(content="<think>so</think> Né", reasoning_content="well"),
    delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "x"}]}]),
    delta(tool_calls=[piece(0, "", id="c1", name="add", type="function")]),
    delta(tool_calls=[piece(0, '{"a":'), piece(1, '{"a":2}', id="c2", name="add")]),
    delta(tool_calls=[piece(0, " 1}")]),
    delta(finish="tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
]
ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "message", "id": "m_1", "role": "assistant", "content": [{"type": "output_text", "text": "Olá"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
]
RESPONSES = [
    {"type": "response.created", "response": {"status": "in_progress"}},
    *({"type": "response.output_item.added", "output_index": i, "item": item} for i, item in enumerate(ITEMS)),
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Olá"},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a":1}'},
    *({"type": "response.output_item.done", "output_index": i, "item": item} for i, item in enumerate(ITEMS)),
    {"type": "response.completed", "response": {"status": "completed", "output": ITEMS, "usage": {"input_tokens": 4}}},
]
STREAMS = {"chat": (ChatAssembly, CHAT), "responses": (ResponsesAssembly, RESPONSES)}
FORMATS = pytest.mark.parametrize("name", STREAMS)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def read(name: str, payload: bytes, cuts: list[int]) -> tuple[Turn, list[Piece]]:
    reader = BodyReader(STREAMS[name][0](REQUEST, ORIGIN))
    edges = [0, *sorted(cut % (len(payload) + 1) for cut in cuts), len(payload)]
    pieces = [piece for at, to in itertools.pairwise(edges) for piece in reader.feed(payload[at:to])]
    return reader.finish(), pieces


def outcome(name: str, payload: bytes, cuts: list[int]) -> Any:
    try:
        return read(name, payload, cuts)[0]
    except ModelFailure as failure:
        return failure.code


def goes_back(name: str, turn: Turn) -> bool:
    """Say whether a turn, however odd, makes a request that holds a result for each of its calls."""
    results = tuple(Result("r") for _ in turn.calls)
    request = ModelRequest("s", (UserText("u"), Exchange(turn, results)), TOOLS, "auto")
    if name == "chat":
        sent = to_chat(request, ChatTarget("m", ORIGIN, server_of("https://somewhere")))["messages"]
        answered = [message for message in sent if message["role"] == "tool"]
    else:
        sent = to_responses(request, ResponsesTarget("m", ORIGIN))["input"]
        answered = [item for item in sent if item.get("type") == "function_call_output"]
    return len(answered) == len(turn.calls)


@FORMATS
@settings(max_examples=50)
@given(cuts=st.lists(st.integers(0, 10**6), max_size=12))
def test_where_the_bytes_are_cut_changes_neither_the_turn_nor_the_text_shown(name: str, cuts: list[int]) -> None:
    payload = sse(*STREAMS[name][1])

    turn, pieces = read(name, payload, cuts)

    whole, whole_pieces = read(name, payload, [])
    assert turn == whole
    assert shown(pieces) == shown(whole_pieces)
    assert turn.calls
    assert goes_back(name, turn)


def shown(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


@FORMATS
@settings(max_examples=50)
@given(length=st.integers(0, 10**6))
def test_a_stream_that_ends_before_its_terminal_value_is_never_a_turn(name: str, length: int) -> None:
    events = STREAMS[name][1]
    terminal = next(at for at, event in enumerate(events) if is_terminal(event))
    payload = sse(*events[:terminal])

    assert outcome(name, payload[: length % (len(payload) + 1)], []) == "reply_cut_off"


def is_terminal(event: dict[str, Any]) -> bool:
    return event.get("type") == "response.completed" or bool(event.get("choices", [{}])[:1] and finish(event))


def finish(event: dict[str, Any]) -> Any:
    return event.get("choices", [{}])[0].get("finish_reason")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, part in inner for place in places(part, (*path, key))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@FORMATS
@given(draw=st.data())
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_stream_is_a_turn_or_a_failure_and_nothing_else(name: str, draw: st.DataObject) -> None:
    events = list(STREAMS[name][1])
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(events) - 1))
        path = draw.draw(st.sampled_from(places(events[at])))
        events[at] = replaced(events[at], path, draw.draw(JSON_VALUES))
    events = draw.draw(st.permutations(events)) if draw.draw(st.booleans()) else events

    result = outcome(name, sse(*events), [])

    assert goes_back(name, result) if isinstance(result, Turn) else result in CODES


@FORMATS
@given(draw=st.data())
@settings(max_examples=80)
def test_a_mutated_whole_body_is_a_turn_or_a_failure_and_nothing_else(name: str, draw: st.DataObject) -> None:
    message = {"content": "Hi", "tool_calls": [piece(0, "{}", id="c", name="add")], "reasoning_content": "hm"}
    body = {
        "chat": {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}},
        "responses": {"status": "completed", "output": ITEMS, "usage": {"input_tokens": 1}, "incomplete_details": {}},
    }[name]
    body = replaced(body, draw.draw(st.sampled_from(places(body))), draw.draw(JSON_VALUES))

    result = outcome(name, json.dumps(body).encode(), [])

    assert goes_back(name, result) if isinstance(result, Turn) else result in CODES


@FORMATS
@settings(max_examples=50)
@given(payload=st.binary(max_size=200))
def test_noise_is_a_failure(name: str, payload: bytes) -> None:
    assert not isinstance(outcome(name, payload, []), Turn)


def recorded(folder: str) -> list[bytes]:
    root = os.environ.get("ROUNDELAY_RECORDINGS", "")
    files = sorted(Path(root, folder).glob("*stream*.json")) if root else []
    exchanges = [exchange for file in files for exchange in json.loads(file.read_text())["exchanges"]]
    return [exchange["response"]["sse"].encode() for exchange in exchanges if "sse" in exchange["response"]]


RECORDED = {"chat": recorded("openai-chat"), "responses": recorded("openai-responses")}


@pytest.mark.skipif(not RECORDED["chat"], reason="ROUNDELAY_RECORDINGS is not set")
@FORMATS
@given(draw=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_a_recording_with_bytes_changed_or_doubled_never_breaks_a_reader(name: str, draw: st.DataObject) -> None:
    payload = bytearray(draw.draw(st.sampled_from(RECORDED[name])))
    for _ in range(draw.draw(st.integers(1, 4))):
        at, size = draw.draw(st.integers(0, len(payload) - 1)), draw.draw(st.integers(0, 40))
        payload[at : at + size] = draw.draw(st.binary(max_size=3) | st.just(bytes(payload[at : at + 2 * size])))

    result = outcome(name, bytes(payload), [])

    assert goes_back(name, result) if isinstance(result, Turn) else result in CODES
