"""Real exchanges of the Responses API: its replies are read right, and our next request is theirs."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from recorded import NEEDED, Recording, body_of, failures, files, named, read, replies, steps

from roundelay_worker.loop.history import AssistantText, Exchange, History, Result, Turn, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.responses.reply import ResponsesAssembly
from roundelay_worker.providers.responses.request import ResponsesTarget, to_request

FOLDER = "openai-responses"
FILES = files(FOLDER)
pytestmark = NEEDED

MAY_DIFFER_AT_TOP = {
    "stream": "we always stream at first",
    "store": "we never store; some recorded clients do",
    "include": "we always ask for encrypted reasoning",
    "max_output_tokens": "we always bound the reply",
    "tool_choice": "set by the recorded client's test",
    "temperature": "not set in these requests of ours",
    "parallel_tool_calls": "not set by us",
    "reasoning": "not set in these requests of ours",
    "service_tier": "not ours",
}

MAY_DIFFER_IN_ITEMS = {
    "id": "without stored items ids mean nothing; we never send them",
    "status": "said in replies only",
    "annotations": "some clients drop them",
    "logprobs": "some clients echo them",
    "content": "of reasoning: an empty list or null says nothing",
    "phase": "some clients drop it; a test of its own sees that we keep it",
    "caller": "said in replies only by some models",
    "call_id": "some clients use the item's id for it; here ids are numbered by their first use",
}

CURLY = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")

REWRITTEN_BY_THEIR_CLIENT = {
    "reasoning-400-missing-following-item": "it is the recording of a client that breaks the history",
}


def target_of(exchange: Recording) -> ResponsesTarget:
    model = (exchange["request"].get("body") or {}).get("model", "some-model")
    return ResponsesTarget(model=model, origin=f"openai:{model}@https://{exchange['request'].get('host')}")


def request_of(body: Recording, history: History = ()) -> ModelRequest:
    tools = tuple(ToolSpec(t["name"], t.get("description") or "", t["parameters"]) for t in body.get("tools") or [])
    system = body.get("instructions", "")
    return ModelRequest(system=system, history=history, tools=tools, tool_choice="auto" if tools else None)


def turn_of(exchange: Recording, chunk: int = 0) -> Turn:
    assembly = ResponsesAssembly(request_of({"tools": []}), target_of(exchange).origin)
    payload = body_of(exchange)
    return read(assembly, payload, range(chunk, len(payload), chunk) if chunk else ())[0]


@pytest.mark.parametrize("exchange", list(replies(FOLDER)))
def test_a_recorded_reply_is_read_the_same_however_it_is_cut(exchange: Recording) -> None:
    whole = turn_of(exchange)

    assert turn_of(exchange, chunk=1) == whole
    assert turn_of(exchange, chunk=7) == whole
    assert whole.finish in {"complete", "cut"}
    assert whole.text or whole.calls or whole.finish == "cut"
    assert whole.usage is None or whole.usage.input_tokens > 0
    assert all(not call.fault for call in whole.calls)


@pytest.mark.parametrize("run", list(steps(FOLDER, REWRITTEN_BY_THEIR_CLIENT)))
def test_each_recorded_request_follows_from_our_reading_of_the_reply_before(run: list[Recording]) -> None:
    target = target_of(run[0])
    history = past(items_of(run[0]["request"]["body"]))
    for exchange, following in itertools.pairwise(run):
        sent, recorded = items_of(exchange["request"]["body"]), items_of(following["request"]["body"])
        history = (*history, *grown(turn_of(exchange), recorded[len(sent) :]))
        ours = to_request(request_of(following["request"]["body"], history), target)
        assert differences(ours, following["request"]["body"]) == {}


def items_of(body: Recording) -> list[Recording]:
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def past(items: list[Recording]) -> History:
    """Read the recorded user texts before the first reply; recorded runs begin with nothing else."""
    speakers = {"user": UserText, "assistant": AssistantText}
    return tuple(speakers[i["role"]](flat(i["content"])) for i in items if i.get("role") in speakers)


def grown(turn: Turn, added: list[Recording]) -> Iterator[Any]:
    """Continue our turn with the recorded results and user texts."""
    calls = [i["call_id"] for i in added if i.get("type") == "function_call"]
    outputs = {i["call_id"]: i["output"] for i in added if i.get("type") == "function_call_output"}
    yield Exchange(turn, tuple(Result(outputs[call_id]) for call_id in calls))
    yield from (UserText(flat(i["content"])) for i in added if i.get("role") == "user")


def flat(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def differences(ours: Recording, recorded: Recording) -> dict[str, tuple[Any, Any]]:
    """Return where two requests are not the same: ours and what was recorded, by their keys."""
    compared = {
        key: (ours.get(key), recorded.get(key)) for key in (ours.keys() | recorded.keys()) - MAY_DIFFER_AT_TOP.keys()
    }
    compared["tools"] = tool_names(ours), tool_names(recorded)
    compared["input"] = ordered(ours["input"]), ordered(items_of(recorded))
    return {key: pair for key, pair in compared.items() if pair[0] != pair[1]}


def tool_names(body: Recording) -> list[str]:
    return [tool["name"] for tool in body.get("tools", [])]


def ordered(items: list[Recording]) -> list[Recording]:
    """Leave out what may differ; results may come after each call or after all calls: put them after all."""
    stripped = [strip(item) for item in items if item.get("role") not in {"system", "developer"}]
    numbers: dict[str, int] = {}
    for item in stripped:
        if "call_id" in item:
            item["call_id"] = numbers.setdefault(item["call_id"], len(numbers))
    kept: list[Recording] = []
    results: list[Recording] = []
    for item in stripped:
        if item.get("type") == "function_call_output":
            results.append(item)
            continue
        if item.get("type") != "function_call" and results:
            kept += results
            results = []
        kept.append(item)
    return kept + results


def strip(item: Any) -> Any:
    if isinstance(item, list):
        return [strip(part) for part in item]
    if not isinstance(item, dict):
        return item
    optional = MAY_DIFFER_IN_ITEMS.keys() - {"call_id"}
    if item.get("content"):
        optional -= {"content"}
    kept = {key: strip(value) for key, value in item.items() if key not in optional and value is not None}
    if isinstance(kept.get("content"), list):
        kept["content"] = flat(kept["content"])
    if isinstance(kept.get("content"), str):
        kept["content"] = kept["content"].translate(CURLY)  # one recorder straightened quotes
    if "role" in kept:
        kept.pop("type", None)
    if arguments := kept.get("arguments"):
        kept["arguments"] = json.loads(arguments)
    return kept


def test_errors_are_told_by_their_recorded_bodies() -> None:
    assert failures(FOLDER) == {
        "error-400-model": ("model_not_found", False, ""),
        "error-400-strict-schema": ("bad_request", False, ""),
        "error-400-temperature-stream": ("bad_request", False, "drop:temperature"),
        "reasoning-400-missing-following-item": ("bad_request", False, "drop_reasoning"),
        "ro-error-insufficient_quota": ("quota", False, ""),
        "xai-error-string": ("credentials", False, ""),
    }


def test_spent_credit_inside_a_stream_is_not_retried() -> None:
    exchange = named(FOLDER, "ro-stream-error-insufficient_quota")[0]

    with pytest.raises(ModelFailure) as caught:
        turn_of(exchange)

    assert (caught.value.code, caught.value.retryable) == ("quota", False)


def test_reasoning_goes_back_as_it_was_done_not_as_it_was_added_or_repeated() -> None:
    exchange = named(FOLDER, "ro-reasoning-encrypted-stream")[0]
    lines = exchange["response"]["sse"].split("response.completed", maxsplit=1)[0].splitlines()
    events = [json.loads(line[5:]) for line in lines if line.startswith("data:") and line.endswith("}")]
    done = [e["item"] for e in events if e["type"] == "response.output_item.done" and e["item"]["type"] == "reasoning"]

    turn = turn_of(exchange)

    assert turn.native is not None
    kept = [item for item in json.loads(turn.native.blocks) if item["type"] == "reasoning"]
    assert kept
    assert [item["encrypted_content"] for item in kept] == [item["encrypted_content"] for item in done]


def test_what_a_model_says_beside_its_calls_keeps_its_phase_and_is_not_mistaken_for_the_answer() -> None:
    exchanges = named(FOLDER, "phase-commentary-stream")

    first, last = (turn_of(exchange) for exchange in exchanges)

    assert first.calls
    assert first.native is not None
    assert '"phase":"commentary"' in first.native.blocks
    assert not last.calls
    assert last.native is not None
    assert '"phase":"final_answer"' in last.native.blocks
