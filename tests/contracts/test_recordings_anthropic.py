"""Recorded exchanges of the Messages API: what we read of the replies, and what we would have asked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import NEEDED, body_of, files, load, named, numbered, read, summary

from roundelay_worker.loop.history import AssistantText, Call, Entry, Exchange, Result, Turn, UserText
from roundelay_worker.providers.anthropic.reply import MessageAssembly
from roundelay_worker.providers.anthropic.request import THINKING, to_request
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.failures import classify
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.schema import portable_schema
from roundelay_worker.providers.slices import elements

FILES = files("anthropic")
ORIGIN = "anthropic:recorded@https://example.org"
REQUEST = ModelRequest("", ())

pytestmark = NEEDED

# What each recorded reply is: how it ended, the tools it calls, how long its text is, and its tokens
# (input with what the cache did, output, of it reasoning).
TURNS: dict[str, list[tuple[str, str, int, tuple[int, int, int]]]] = {
    "pause_turn-stream": [("paused", "", 166, (404500, 943, 261)), ("complete", "", 3064, (482529, 1310, 0))],
    "pause_turn": [("paused", "", 425, (401468, 792, 0)), ("complete", "", 2903, (494549, 1245, 0))],
    "ro-refusal-stream": [("refused", "", 0, (18, 5, 0))],
    "server-tool-stream": [("complete", "", 650, (10423, 341, 0))],
    "thinking-adaptive-opus5": [("complete", "", 9, (13, 44, 33))],
    "thinking-default-on-with-tools": [
        ("complete", "current_date", 0, (512, 26, 0)),
        ("complete", "", 17, (549, 12, 0)),
        ("complete", "current_month", 0, (574, 37, 9)),
        ("complete", "", 15, (606, 6, 0)),
    ],
    "thinking-redacted-stream": [("complete", "", 359, (92, 189, 0))],
    "thinking-redacted": [("complete", "", 341, (92, 196, 0)), ("complete", "", 500, (168, 232, 0))],
    "tool-error-is_error": [
        ("complete", "passphrase_test_tool", 56, (421, 74, 0)),
        ("complete", "passphrase_test_tool", 142, (525, 96, 0)),
        ("complete", "", 98, (638, 28, 0)),
    ],
    "tool_choice-any": [("complete", "weather", 0, (713, 55, 0)), ("complete", "", 1306, (729, 292, 0))],
    "tool_choice-none": [("complete", "", 34, (567, 16, 0))],
    "tools-mcp-3-turns": [
        ("complete", "greet answer_ultimate_question", 127, (1070, 107, 0)),
        ("complete", "process_answer", 90, (1346, 138, 0)),
        ("complete", "", 1709, (1543, 455, 0)),
    ],
    "tools-multiturn-stream": [
        ("complete", "weather", 0, (633, 75, 0)),
        ("complete", "", 158, (748, 49, 0)),
        ("complete", "weather", 0, (819, 75, 0)),
        ("complete", "", 172, (934, 53, 0)),
    ],
    "tools-multiturn": [
        ("complete", "weather", 0, (633, 75, 0)),
        ("complete", "", 116, (748, 42, 0)),
        ("complete", "weather", 0, (812, 75, 0)),
        ("complete", "", 165, (927, 48, 0)),
    ],
    "tools-parallel-4-calls": [
        (
            "complete",
            "retrieve_entity_info retrieve_entity_info retrieve_entity_info retrieve_entity_info",
            156,
            (423, 202, 0),
        ),
        ("complete", "", 340, (771, 77, 0)),
    ],
    "tools-parallel": [
        ("complete", "weather best_language_to_learn", 0, (701, 98, 0)),
        ("complete", "", 325, (893, 90, 0)),
    ],
    "tools-variations-8-turns-stream": [
        ("complete", "get_date", 0, (585, 37, 0)),
        ("complete", "", 17, (640, 13, 0)),
        ("complete", "", 59, (667, 22, 0)),
        ("complete", "get_date", 0, (577, 37, 0)),
        ("complete", "", 10, (632, 9, 0)),
        ("complete", "weather_forecast", 0, (682, 55, 0)),
        ("complete", "equipment", 63, (751, 65, 0)),
        ("complete", "", 54, (830, 15, 0)),
    ],
    "unpaired-server-tool-history": [("complete", "", 130, (699, 29, 0))],
}

# Fields of recorded requests that ours may lack or have otherwise, and why.
REQUEST_MAY_DIFFER = {
    "metadata": "names the recorded client's user",
    "thinking": "the recorded client forced a mode that we never send",
    "output_config": "sent together with the mode of thinking",
    "stream": "we ask for a stream where some recorded clients did not",
}
BLOCKS_MAY_DIFFER = {
    "cache_control": "where the cache is marked is each client's own choice",
    "is_error": "false is what its absence means",
    "citations": "null is what its absence means, and some clients write it",
    "caller": "some clients drop it; it came with the call, so ours sends it back",
}

# Runs whose recorded client sent other reasoning than we do, and why.
OTHER_REASONING = {
    "thinking-redacted": "sent again with an earlier answer; ours is deleted when its message ends",
    "thinking-default-on-with-tools": "a block with a signature and no text was left out; ours goes back",
}

# The recorder of some requests wrote these characters plainly.
PLAIN = str.maketrans({"\u2013": "-", "\u2019": "'"})


def turn_of(exchange: dict[str, Any]) -> Turn:
    return read(MessageAssembly(REQUEST, ORIGIN), body_of(exchange))[0]


SMALL = [reply for reply in numbered("anthropic") if reply.values[0].stat().st_size < 40_000]


def runs() -> Iterator[Any]:
    for path in FILES:
        recording = load(path)
        for run in recording["runs"]:
            if recording["exchanges"][run[0]]["request"].get("body"):
                yield pytest.param(path, run, id=f"{path.stem}-{run[0]}")


def content_of(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of a recorded reply, put together as simply as can be."""
    if "body" in exchange["response"]:
        return exchange["response"]["body"]["content"]
    events = [json.loads(line[6:]) for line in exchange["response"]["sse"].splitlines() if line.startswith("data: ")]
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    for number, block in enumerate(blocks):
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta" and e["index"] == number]
        for name in ("text", "thinking", "signature"):
            if name in block:
                block[name] += "".join(delta.get(name, "") for delta in deltas)
        if "input" in block:
            block["input"] = json.loads("".join(delta["partial_json"] for delta in deltas) or "{}")
        if citations := [delta["citation"] for delta in deltas if "citation" in delta]:
            block["citations"] = citations
    return blocks


def canonical(value: Any) -> Any:
    """Return a value of a request without what may differ, texts as blocks, results as text."""
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if not isinstance(value, dict):
        return value.translate(PLAIN) if isinstance(value, str) else value
    value = {name: canonical(item) for name, item in value.items() if name not in BLOCKS_MAY_DIFFER}
    if value.get("role") and isinstance(value.get("content"), str):
        value["content"] = [{"type": "text", "text": value["content"]}]
    if value.get("type") == "tool_result" and isinstance(value["content"], list):
        value["content"] = "".join(block["text"] for block in value["content"])
    return value


def history_of(messages: list[dict[str, Any]], turns: list[Turn]) -> list[Entry]:
    """Return the recorded messages as our history, with the turns that we read where the model spoke."""
    history: list[Entry] = []
    spoken = iter(turns)
    for message in canonical(messages):
        blocks = message["content"]
        if message["role"] == "assistant":
            turn = next(spoken, None) or foreign(blocks)
            history.append(Exchange(turn) if turn.calls or turn.finish == "paused" else AssistantText(turn.text))
            continue
        results = tuple(Result(block["content"]) for block in blocks if block["type"] == "tool_result")
        if results:
            history[-1] = Exchange(history[-1].turn, results)
        history += [UserText(block["text"]) for block in blocks if block["type"] == "text"]
    return history


def foreign(blocks: list[dict[str, Any]]) -> Turn:
    calls = tuple(Call(b["name"], json.dumps(b["input"]), b["id"]) for b in blocks if b["type"] == "tool_use")
    return Turn("".join(block.get("text", "") for block in blocks), calls)


def ours(recorded_body: dict[str, Any], turns: list[Turn]) -> dict[str, Any]:
    """Return what we would have sent for the recorded request."""
    system = canonical(recorded_body.get("system", ""))
    tools = [tool for tool in recorded_body.get("tools", []) if "input_schema" in tool]
    request = ModelRequest(
        system=system if isinstance(system, str) else "".join(block["text"] for block in system),
        history=tuple(history_of(recorded_body["messages"], turns)),
        tools=tuple(ToolSpec(tool["name"], tool["description"], tool["input_schema"]) for tool in tools),
        tool_choice=recorded_body.get("tool_choice", {}).get("type"),
        max_output_tokens=recorded_body["max_tokens"],
        temperature=recorded_body.get("temperature"),
    )
    return to_request(request, recorded_body["model"], ORIGIN)


@pytest.mark.parametrize(("path", "number"), list(numbered("anthropic")))
def test_a_recorded_reply_is_read_as_the_turn_that_it_was(path, number):
    turn = turn_of(load(path)["exchanges"][number])

    assert summary(turn) == TURNS[path.stem][number]
    content = content_of(load(path)["exchanges"][number])
    assert turn.text == "".join(block["text"] for block in content if block["type"] == "text")
    calls = [(block["id"], block["input"]) for block in content if block["type"] == "tool_use"]
    assert [(call.wire_id, json.loads(call.arguments)) for call in turn.calls] == calls
    kept = [block for block in content if block["type"] != "text" or block["text"].strip()]  # blank ones are refused
    assert turn.native is None or json.loads(turn.native.blocks) == kept


@pytest.mark.parametrize(("path", "number"), list(numbered("anthropic")))
def test_untouched_blocks_of_a_recorded_reply_are_kept_byte_for_byte(path, number):
    exchange = load(path)["exchanges"][number]
    body = body_of(exchange).decode()
    turn = turn_of(exchange)

    blocks = elements(turn.native.blocks) if turn.native else []

    whole = "sse" not in exchange["response"]
    opaque = [b for b in blocks if whole or json.loads(b)["type"] in ("redacted_thinking", "web_search_tool_result")]
    assert all(block in body for block in opaque)


@pytest.mark.parametrize(("path", "run"), list(runs()))
def test_our_requests_of_a_run_are_the_recorded_ones(path, run):
    exchanges = load(path)["exchanges"]
    turns: list[Turn] = []
    for number in run:
        body = exchanges[number]["request"]["body"]

        sent = ours(body, turns)

        assert comparable(sent, path) == comparable(body, path)
        if exchanges[number]["response"]["status"] == 200:
            turns.append(turn_of(exchanges[number]))


def comparable(body: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a request without what may differ."""
    body = canonical({name: value for name, value in body.items() if name not in REQUEST_MAY_DIFFER})
    if path.stem in OTHER_REASONING:
        for message in body["messages"]:
            message["content"] = [block for block in message["content"] if block["type"] not in THINKING]
    if isinstance(body.get("system"), str):
        body["system"] = [{"type": "text", "text": body["system"]}]
    body["tools"] = [tool for tool in body.get("tools", []) if "input_schema" in tool]
    for tool in body["tools"]:
        tool["input_schema"] = portable_schema(ToolSpec(tool["name"], tool["description"], tool["input_schema"]))
    if not body["tools"] or body.get("tool_choice", {}).get("type") == "any":
        body.pop("tool_choice", None)  # a call is never forced
    return body


def test_an_effort_that_the_model_does_not_know_is_dropped():
    response = named("anthropic", "error-400-effort")[0]["response"]

    failure = classify(response["status"], response["headers"], json.dumps(response["body"]).encode())

    assert (failure.code, failure.retryable, failure.repair) == ("bad_request", False, "drop:reasoning_effort")


@pytest.mark.parametrize(("path", "number"), [reply for reply in SMALL if "stream" in reply.id])
def test_a_stream_that_ends_before_its_stop_reason_is_cut_off(path, number):
    body = body_of(load(path)["exchanges"][number])
    events = body.split(b"\n\n")
    last = next(place for place, event in enumerate(events) if b"event: message_delta" in event)

    for kept in range(1, last + 1):
        reader = BodyReader(MessageAssembly(REQUEST, ORIGIN))
        reader.feed(b"\n\n".join(events[:kept]) + b"\n\n")
        with pytest.raises(ModelFailure) as caught:
            reader.finish()
        assert (caught.value.code, caught.value.retryable) == ("reply_cut_off", True)
