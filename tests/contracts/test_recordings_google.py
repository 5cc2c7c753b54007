"""Recorded exchanges of Gemini's generateContent: what we read of the replies, and what we would have asked."""

import json
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from recorded import NEEDED, body_of, files, load, named, numbered, read, summary

from roundelay_worker.loop.history import AssistantText, Call, Entry, Exchange, Result, Turn, UserText
from roundelay_worker.providers.base import ModelRequest, ToolSpec
from roundelay_worker.providers.failures import classify
from roundelay_worker.providers.google.reply import GenerationAssembly
from roundelay_worker.providers.google.request import UNSIGNED, to_request
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.slices import elements

FILES = files("gemini")
ORIGIN = "google:recorded@https://example.org"
REQUEST = ModelRequest("", ())

pytestmark = NEEDED

# What each recorded reply is: how it ended, the tools it calls, how long its text is, and its tokens
# (input, output with thoughts, of it thoughts).
TURNS: dict[str, list[tuple[str, str, int, tuple[int, int, int]]]] = {
    "empty-assistant-reply": [("complete", "", 572, (10, 818, 699))],
    "finish-MAX_TOKENS-empty-thinking": [("cut", "", 0, (15, 2, 2))],
    "finish-MAX_TOKENS-stream": [("cut", "", 20, (9, 48, 38))],
    "finish-SAFETY": [("refused", "", 0, (14, 0, 0))],
    "tool_choice-any": [("complete", "weather", 0, (84, 100, 70)), ("complete", "", 84, (171, 16, 0))],
    "tool_choice-none": [("complete", "", 392, (49, 1124, 996))],
    "tool_choice-validated": [
        ("complete", "get_weather", 0, (79, 84, 69)),
        ("complete", "get_time", 0, (122, 48, 33)),
        ("complete", "", 64, (162, 49, 28)),
    ],
    "tools-builtin-and-function": [("complete", "calculator", 0, (47, 86, 55)), ("complete", "", 216, (132, 183, 121))],
    "tools-multiturn-stream": [
        ("complete", "weather", 0, (103, 73, 43)),
        ("complete", "", 53, (233, 21, 0)),
        ("complete", "weather", 0, (238, 29, 0)),
        ("complete", "", 52, (323, 95, 74)),
    ],
    "tools-multiturn": [
        ("complete", "weather", 0, (103, 146, 116)),
        ("complete", "", 52, (190, 21, 0)),
        ("complete", "weather", 0, (238, 29, 0)),
        ("complete", "", 51, (323, 70, 49)),
    ],
    "tools-noargs-stream": [
        ("complete", "best_language_to_learn", 0, (48, 75, 61)),
        ("complete", "", 35, (158, 8, 0)),
        ("complete", "best_language_to_learn", 0, (120, 56, 42)),
        ("complete", "", 35, (211, 8, 0)),
    ],
    "tools-parallel": [
        ("complete", "weather best_language_to_learn", 0, (143, 153, 109)),
        ("complete", "", 108, (277, 47, 0)),
    ],
    "tools-skip-signature-validator": [("complete", "final_result", 0, (107, 146, 123))],
    "tools-stream-3": [
        ("complete", "get_capital", 0, (52, 5, 0)),
        ("complete", "get_temperature", 0, (64, 5, 0)),
        ("complete", "", 34, (79, 12, 0)),
    ],
}

# Fields of recorded requests that ours may lack or have otherwise, and why.
REQUEST_MAY_DIFFER = {
    "generationConfig": "we always limit the output, and the recorded client names the kind of output",
    "safetySettings": "ours are the service's",
    "toolConfig": "calls are never forced; compared where the mode is NONE",
    "tools": "the recorded clients write the older kind of schema; compared by names and descriptions",
}
PARTS_MAY_DIFFER = {
    "id": "one recorded client makes ids where the service gave none; ours go back only where there are any",
    "response": "the shape of a result is the client's choice; compared by its text",
}

# Runs whose recorded client sent other signatures than we do, and why.
OTHER_SIGNATURES = {
    "tool_choice-validated": "the recorder wrote signatures in the other alphabet of base64",
    "tools-builtin-and-function": "the recorder wrote signatures in the other alphabet of base64",
    "tools-parallel": "the recorded client wrote the first call's signature on the second too",
    "tools-skip-signature-validator": "another documented word for the same",
}


def turn_of(exchange: dict[str, Any]) -> Turn:
    return read(GenerationAssembly(REQUEST, ORIGIN), body_of(exchange))[0]


SMALL = [reply for reply in numbered("gemini") if reply.values[0].stat().st_size < 40_000]


def runs() -> Iterator[Any]:
    for path in FILES:
        for run in load(path)["runs"]:
            yield pytest.param(path, run, id=f"{path.stem}-{run[0]}")


def chunks_of(exchange: dict[str, Any]) -> list[str]:
    return [line.removeprefix("data: ") for line in exchange["response"]["sse"].splitlines() if line]


def parts_of(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a recorded reply, put together as simply as can be."""
    response = exchange["response"]
    chunks = [response["body"]] if "body" in response else [json.loads(raw) for raw in chunks_of(exchange)]
    return [part for chunk in chunks for part in chunk["candidates"][0].get("content", {}).get("parts", [])]


def history_of(contents: list[dict[str, Any]], turns: list[Turn]) -> list[Entry]:
    """Return the recorded contents as our history, with the turns that we read where the model spoke."""
    history: list[Entry] = []
    spoken = iter(turns)
    for content in contents:
        parts = content["parts"]
        if content["role"] == "model":
            turn = next(spoken, None) or foreign(parts)
            history.append(Exchange(turn) if turn.calls else AssistantText(turn.text))
            continue
        results = tuple(Result(outcome(part["functionResponse"])) for part in parts if "functionResponse" in part)
        if results:
            history[-1] = Exchange(history[-1].turn, results)
        history += [UserText(part["text"]) for part in parts if "text" in part]
    return history


def foreign(parts: list[dict[str, Any]]) -> Turn:
    called = [part["functionCall"] for part in parts if "functionCall" in part]
    calls = tuple(Call(call["name"], json.dumps(call["args"]), call.get("id", "")) for call in called)
    return Turn("".join(part.get("text", "") for part in parts), calls)


def outcome(response: dict[str, Any]) -> str:
    """Return the text in a result of any of the recorded shapes, or ours."""
    given = response["response"]
    if isinstance(given.get("content"), list):
        return "".join(part["text"] for part in given["content"])
    return str(given.get("return_value", given.get("output")))


def canonical(part: dict[str, Any], path: Path) -> dict[str, Any]:
    part = {
        name: value for name, value in part.items() if name != "thoughtSignature" or path.stem not in OTHER_SIGNATURES
    }
    for name in ("toolCall", "toolResponse"):
        if name in part:  # the recorded client writes one key in the other case
            part[name] = {"toolType" if key == "tool_type" else key: value for key, value in part[name].items()}
    for name in ("functionCall", "functionResponse"):
        if name in part:
            kept = {key: value for key, value in part[name].items() if key not in PARTS_MAY_DIFFER}
            text = outcome(part[name]) if "response" in part[name] else ""
            part[name] = {**kept, "args": part[name].get("args", {}), "text": text}
    return part


def comparable(body: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a request without what may differ."""
    kept = {name: value for name, value in body.items() if name not in REQUEST_MAY_DIFFER}
    kept["contents"] = [
        (content["role"], [canonical(part, path) for part in content["parts"]])
        for content in body["contents"]
        if content["parts"] != [{"text": ""}]  # an empty reply is no part of our history
    ]
    kept["contents"] = [
        (role, [part for _, parts in group for part in parts])
        for role, group in groupby(kept["contents"], itemgetter(0))
    ]
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    kept["mode"] = "NONE" if mode == "NONE" else "calls allowed"
    kept.get("systemInstruction", {}).pop("role", None)
    kept["tools"] = [
        (declaration["name"], declaration["description"])
        for tool in body.get("tools", [])
        for declaration in tool.get("functionDeclarations", [])
    ]
    return kept


def ours(body: dict[str, Any], turns: list[Turn], model: str) -> dict[str, Any]:
    """Return what we would have sent for the recorded request."""
    tools = [d for tool in body.get("tools", []) for d in tool.get("functionDeclarations", [])]
    request = ModelRequest(
        system="".join(part["text"] for part in body.get("systemInstruction", {"parts": []})["parts"]),
        history=tuple(history_of(body["contents"], turns)),
        tools=tuple(ToolSpec(tool["name"], tool["description"], {"type": "object"}) for tool in tools),
        tool_choice="none" if "NONE" in json.dumps(body.get("toolConfig")) else "auto",
    )
    return to_request(request, model, ORIGIN)


def model_of(exchange: dict[str, Any]) -> str:
    return exchange["request"]["path"].rpartition("/")[2].partition(":")[0]


@pytest.mark.parametrize(("path", "number"), list(numbered("gemini")))
def test_a_recorded_reply_is_read_as_the_turn_that_it_was(path, number):
    turn = turn_of(load(path)["exchanges"][number])

    assert summary(turn) == TURNS[path.stem][number]
    parts = parts_of(load(path)["exchanges"][number])
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    assert turn.text == "".join(part.get("text", "") for part in parts)
    assert [(call.wire_id, json.loads(call.arguments)) for call in turn.calls] == [
        (call.get("id", ""), call.get("args", {})) for call in calls
    ]
    assert turn.native is None or json.loads(turn.native.blocks) == [part for part in parts if part != {"text": ""}]


@pytest.mark.parametrize(("path", "number"), list(numbered("gemini")))
def test_the_parts_of_a_recorded_reply_are_kept_byte_for_byte(path, number):
    exchange = load(path)["exchanges"][number]
    body = body_of(exchange).decode()
    turn = turn_of(exchange)

    parts = elements(turn.native.blocks) if turn.native else []

    assert all(part in body for part in parts)


@pytest.mark.parametrize(("path", "run"), list(runs()))
def test_our_requests_of_a_run_are_the_recorded_ones(path, run):
    exchanges = load(path)["exchanges"]
    turns: list[Turn] = []
    for number in run:
        body = exchanges[number]["request"]["body"]

        sent = ours(body, turns, model_of(exchanges[number]))

        assert comparable(sent, path) == comparable(body, path)
        if exchanges[number]["response"]["status"] == 200:
            turns.append(turn_of(exchanges[number]))


@pytest.mark.parametrize(("path", "number"), [reply for reply in SMALL if "stream" in reply.id])
def test_the_same_reply_as_one_json_array_is_the_same_turn(path, number):
    exchange = load(path)["exchanges"][number]
    reader = BodyReader(GenerationAssembly(REQUEST, ORIGIN))

    reader.feed(("[" + "\n,\r\n".join(chunks_of(exchange)) + "\n]\n").encode())

    assert reader.finish() == turn_of(exchange)


@pytest.mark.parametrize(
    ("name", "code", "retryable", "delay"),
    [
        ("error-400-stream-json", "credentials", False, None),
        ("error-400-context-vertex", "context_overflow", False, None),
        ("error-429-retryinfo", "rate_limited", True, 48.939935699),
    ],
)
def test_a_recorded_error_is_classified(name, code, retryable, delay):
    response = named("gemini", f"{name}")[0]["response"]

    failure = classify(response["status"], response["headers"], json.dumps(response["body"]).encode())

    assert (failure.code, failure.retryable, failure.delay) == (code, retryable, delay)


def test_a_history_that_another_model_made_is_signed_with_the_word_that_skips_the_check():
    exchange = named("gemini", "tools-skip-signature-validator")[0]

    sent = ours(exchange["request"]["body"], [], model_of(exchange))

    assert sent["contents"][1]["parts"][0]["thoughtSignature"] == UNSIGNED
