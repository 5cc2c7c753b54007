"""Replies in Anthropic's vocabulary: blocks, and the events that stream them."""

from collections.abc import Iterator

from roundelay_worker.testing.fake_llm import errors, seals
from roundelay_worker.testing.fake_llm.anthropic_request import essence
from roundelay_worker.testing.fake_llm.ask import Ask
from roundelay_worker.testing.fake_llm.asks import PAUSE_ID
from roundelay_worker.testing.fake_llm.refusal import Json, as_object
from roundelay_worker.testing.fake_llm.reply import (
    Reply,
    Usage,
    arguments_of,
    call_id,
    event,
    new_id,
    pieces,
    text_pieces,
    usage_of,
    whole_text,
)
from roundelay_worker.testing.fake_llm.script import Step

_STOPS = {
    "cut": "max_tokens",
    "refused": "refusal",
    "filtered": "refusal",
    "paused": "pause_turn",
    "overflow": "model_context_window_exceeded",
    "unknown": "flux_exhausted",
}


def write(ask: Ask, step: Step) -> Reply:
    """Return the reply to a step."""
    if step.in_stream_error and not ask.stream:
        return Reply(refusal=errors.named("anthropic", step.in_stream_error))
    content, usage = _content(ask, step), usage_of(ask, step)
    stop = _STOPS.get(step.finish) or ("tool_use" if step.calls and step.finish != "empty" else "end_turn")
    start = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": ask.model, "content": []}
    ending: Json = {"stop_reason": stop, "stop_sequence": None, "stop_details": _details(stop)}
    counts = _usage(usage)
    opened: Json = {**start, "stop_reason": None, "stop_sequence": None, **counts}
    return Reply(
        body={**start, "content": content, **ending, **counts},
        opening=(event("message_start", {"type": "message_start", "message": opened}),),
        content=tuple(_blocks(step, content)),
        closing=tuple(_closing(step, ending, counts)),
        ping=event("ping", {"type": "ping"}),
    )


def _content(ask: Ask, step: Step) -> list[Json]:
    if step.finish in {"empty", "filtered"}:
        return []
    said: list[Json] = [{"type": "text", "text": whole_text(step)}] if whole_text(step) else []
    said += [
        {
            "type": "tool_use",
            "id": call_id(ask, step, call, "toolu_"),
            "name": call.name,
            "input": as_object(arguments_of(step, place)),
        }
        for place, call in enumerate(step.calls)
    ]
    if step.finish == "paused":
        said.append({"type": "server_tool_use", "id": new_id(PAUSE_ID), "name": "web_search", "input": {"query": "x"}})
    return _thought(ask, step, said)


def _thought(ask: Ask, step: Step, said: list[Json]) -> list[Json]:
    if not step.thinking or not ask.thinks:
        return said
    kind = "redacted_thinking" if step.redacted else "thinking"
    block: Json = {"type": kind} if step.redacted else {"type": kind, "thinking": step.thinking if ask.shows else ""}
    turn = [essence(each) for each in (block, *said)]
    signature = seals.sign(seals.Seal("anthropic", ask.model, seals.digest(turn[0]), seals.digest(turn), 0, len(turn)))
    return [{**block, "data" if step.redacted else "signature": signature}, *said]


def _details(stop: str) -> Json | None:
    refusal = {"type": "refusal", "category": "cyber", "explanation": "This request was blocked."}
    return refusal if stop == "refusal" else None


def _usage(usage: Usage | None) -> Json:
    if usage is None:
        return {}
    counts: Json = {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "service_tier": "standard",
    }
    thought = {"output_tokens_details": {"thinking_tokens": usage.reasoning}}
    return {"usage": {**counts, **thought} if usage.reasoning else counts}


def _blocks(step: Step, content: list[Json]) -> Iterator[bytes]:
    calls = 0
    for index, block in enumerate(content):
        raw = arguments_of(step, calls) if block["type"] == "tool_use" else None
        calls += block["type"] == "tool_use"
        begun, deltas = _deltas(step, block, raw)
        yield event("content_block_start", {"type": "content_block_start", "index": index, "content_block": begun})
        for delta in deltas:
            yield event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
        broken = step.finish == "cut" and block["type"] == "tool_use" and index == len(content) - 1
        if not broken:
            yield event("content_block_stop", {"type": "content_block_stop", "index": index})


def _deltas(step: Step, block: Json, raw: str | None) -> tuple[Json, list[Json]]:
    """Return a block as it begins and the deltas that fill it; opaque blocks come whole."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in text_pieces(step)]
    if block["type"] == "thinking":
        thoughts: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        signed: Json = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*thoughts, signed]
    if block["type"] == "tool_use":
        inputs = ["", *([] if raw in {None, "", "{}"} else pieces(raw or ""))]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in inputs]
    return block, []


def _closing(step: Step, ending: Json, counts: Json) -> Iterator[bytes]:
    if step.in_stream_error:
        yield event("error", _error(step.in_stream_error))
        return
    yield event("message_delta", {"type": "message_delta", "delta": ending, **counts})
    yield event("message_stop", {"type": "message_stop"})


def _error(kind: str) -> Json:
    body = errors.named("anthropic", kind).body
    return {"type": "error", "error": {"details": None, **body["error"]}} if isinstance(body, dict) else {}
