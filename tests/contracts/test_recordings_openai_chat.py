"""Real exchanges of Chat Completions servers: their replies are read right, and our next request is theirs."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from recorded import NEEDED, Recording, body_of, failures, files, load, read, replies, steps

from roundelay_worker.loop.history import AssistantText, Exchange, History, Result, Turn, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.chat.reply import ChatAssembly
from roundelay_worker.providers.chat.request import ChatTarget, to_request
from roundelay_worker.providers.chat.servers import server_of

FOLDER = "openai-chat"
FILES = files(FOLDER)
pytestmark = NEEDED

MAY_DIFFER_AT_TOP = {
    "stream": "we always stream at first",
    "stream_options": "we ask for usage wherever that is known",
    "max_tokens": "we always bound the reply",
    "max_completion_tokens": "we always bound the reply",
    "tool_choice": "set by the recorded client's test",
    "n": "always 1",
    "seed": "not ours",
    "reasoning": "OpenRouter's own form of reasoning_effort",
    "reasoning_effort": "not set in these requests of ours",
    "enable_thinking": "not ours",
}

MAY_DIFFER_IN_MESSAGES = {
    "content": "none beside calls: null, '' or missing all say the same",
    "reasoning": "that client dropped it; servers take back what they sent",
    "reasoning_content": "likewise",
    "refusal": "that client echoes null",
    "annotations": "that client echoes an empty list",
    "index": "that client echoes the position of a call",
    "name": "a name on a tool message, which no server needs",
    "closed": "Mistral's mark on a thinking part, dropped by that client",
    "custom": "Snowflake's empty twin of function",
}


REWRITTEN_BY_THEIR_CLIENT = {
    "groq-tool_use_failed": "it sent the reasoning back as content",
    "stream-args-null": "it lost the call, which is what that recording is about",
    "tools-long-run-9": "it ran and kept the first of two calls only",
}


def target_of(exchange: Recording) -> ChatTarget:
    host = exchange["request"].get("host") or "somewhere"
    model = (exchange["request"].get("body") or {}).get("model", "some-model")
    return ChatTarget(model=model, origin=f"chat:{model}@https://{host}", server=server_of(f"https://{host}"))


def request_of(body: Recording, history: History = ()) -> ModelRequest:
    functions = [tool["function"] for tool in body.get("tools") or []]
    tools = tuple(ToolSpec(f["name"], f.get("description", ""), f.get("parameters", {})) for f in functions)
    system = "\n".join(flat(m["content"]) for m in body["messages"] if m["role"] in {"system", "developer"})
    return ModelRequest(system=system, history=history, tools=tools, tool_choice="auto" if tools else None)


def turn_of(exchange: Recording, chunk: int = 0) -> Turn:
    body = exchange["request"].get("body") or {"messages": []}
    if "tools" not in body:
        body = {**body, "tools": [{"function": {"name": "read_file"}}]}
    assembly = ChatAssembly(request_of(body), target_of(exchange).origin)
    payload = body_of(exchange)
    return read(assembly, payload, range(chunk, len(payload), chunk) if chunk else ())[0]


@pytest.mark.parametrize("exchange", list(replies(FOLDER)))
def test_a_recorded_reply_is_read_the_same_however_it_is_cut(exchange: Recording) -> None:
    whole = turn_of(exchange)

    assert turn_of(exchange, chunk=1) == whole
    assert turn_of(exchange, chunk=7) == whole
    assert whole.finish in {"complete", "cut"}
    assert whole.text or whole.calls or whole.finish == "cut"
    assert all(not call.fault for call in whole.calls)


@pytest.mark.parametrize("run", list(steps(FOLDER, REWRITTEN_BY_THEIR_CLIENT)))
def test_each_recorded_request_follows_from_our_reading_of_the_reply_before(run: list[Recording]) -> None:
    target = target_of(run[0])
    history = past(run[0]["request"]["body"]["messages"])
    for exchange, following in itertools.pairwise(run):
        sent, recorded = exchange["request"]["body"]["messages"], following["request"]["body"]["messages"]
        if exchange["response"]["status"] != 200:
            history = past(recorded)
            continue
        history = (*history, *grown(turn_of(exchange), recorded[len(sent) :]))
        ours = to_request(request_of(following["request"]["body"], history), target)
        assert differences(ours, following["request"]["body"]) == {}


def past(messages: list[Recording]) -> History:
    """Read a recorded history neutrally, without any native blocks."""
    entries: list[Any] = []
    at = 0
    messages = [m for m in messages if m["role"] not in {"system", "developer"}]
    while at < len(messages):
        message = messages[at]
        results = []
        while message["role"] == "assistant" and at + 1 < len(messages) and messages[at + 1]["role"] == "tool":
            at += 1
            results.append(Result(flat(messages[at]["content"])))
        if message["role"] == "user":
            entries.append(UserText(flat(message["content"])))
        elif message.get("tool_calls"):
            whole = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
            turn = ChatAssembly(ModelRequest("", ()), "elsewhere").read_whole(whole)
            entries.append(Exchange(turn, tuple(results)))
        else:
            entries.append(AssistantText(flat(message["content"])))
        at += 1
    return tuple(entries)


def grown(turn: Turn, added: list[Recording]) -> Iterator[Any]:
    """Continue our turn with the recorded results, and with whatever the client put behind them."""
    assert added[0]["role"] == "assistant"
    end = next((at for at, m in enumerate(added) if at and m["role"] != "tool"), len(added))
    yield Exchange(turn, tuple(Result(flat(m["content"])) for m in added[1:end]))
    yield from past(added[end:])


def flat(content: Any) -> str:
    """Return content as text: some clients send it as a list of one."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def differences(ours: Recording, recorded: Recording) -> dict[str, tuple[Any, Any]]:
    """Return where two requests are not the same: ours and what was recorded, by their keys."""
    compared = {
        key: (ours.get(key), recorded.get(key)) for key in (ours.keys() | recorded.keys()) - MAY_DIFFER_AT_TOP.keys()
    }
    compared["tools"] = tool_names(ours), tool_names(recorded)
    compared["messages"] = plain(ours["messages"]), plain(recorded["messages"])
    return {key: pair for key, pair in compared.items() if pair[0] != pair[1]}


def tool_names(body: Recording) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools") or []]


def plain(messages: list[Recording]) -> list[Recording]:
    """Leave out what may differ, and join what we join."""
    kept: list[Recording] = []
    for recorded in messages:
        message = dict(recorded)
        if message["role"] in {"system", "developer"}:
            continue
        if isinstance(content := message.get("content"), list) and all(p["type"] == "text" for p in content):
            message["content"] = flat(content)
        if kept and kept[-1]["role"] == message["role"] == "user":
            kept[-1]["content"] += "\n\n" + message["content"]
            continue
        kept.append(strip(message))
    return kept


def strip(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        return [strip(part, depth + 1) for part in value]
    if not isinstance(value, dict):
        return value
    optional = set(MAY_DIFFER_IN_MESSAGES) - ({"name"} if depth else set())
    if value.get("content"):
        optional.discard("content")
    stripped = {k: strip(v, depth + 1) for k, v in value.items() if k not in optional}
    if isinstance(arguments := stripped.get("arguments"), str) and arguments:
        stripped["arguments"] = json.loads(arguments)
    return {k: v for k, v in stripped.items() if v is not None}


def test_errors_are_told_by_their_recorded_bodies() -> None:
    assert failures(FOLDER) == {
        "deepseek-error-400-context": ("context_overflow", False, "shrink"),
        "error-400-system-role": ("bad_request", False, "role:system"),
        "error-401-stream": ("credentials", False, ""),
        "groq-tool_use_failed": ("provider_error", True, ""),
        "mistral-error-401-detail": ("credentials", False, ""),
        "ollama-cloud-error-400-context": ("context_overflow", False, "shrink"),
        "openrouter-error-400-context": ("context_overflow", False, "shrink"),
    }


def test_an_error_under_status_200_is_an_error() -> None:
    for path in FILES:
        for exchange in load(path)["exchanges"]:
            if "error" in (exchange["response"].get("body") or {}) and exchange["response"]["status"] == 200:
                with pytest.raises(ModelFailure):
                    turn_of(exchange)
