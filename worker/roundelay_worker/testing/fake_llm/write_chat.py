"""Replies in the vocabulary of Chat Completions, plain and in chunks."""

import time
from collections.abc import Iterator

from roundelay_worker.testing.fake_llm import errors, models, seals
from roundelay_worker.testing.fake_llm.ask import Ask
from roundelay_worker.testing.fake_llm.check_chat import essence
from roundelay_worker.testing.fake_llm.refusal import Json
from roundelay_worker.testing.fake_llm.reply import (
    Reply,
    Usage,
    arguments_of,
    call_id,
    event,
    new_id,
    pieces,
    text_pieces,
    unnamed,
    usage_of,
    whole_text,
)
from roundelay_worker.testing.fake_llm.script import Step

_FINISHES = {"cut": "length", "filtered": "content_filter", "unknown": "flux_exhausted"}
_REFUSAL = "I'm sorry, I can't help with that."
_FAILED = {"failed_generation": "<function=x>{broken", "code": "tool_use_failed"}


def write(ask: Ask, step: Step) -> Reply:
    """Return the reply to a step."""
    if step.finish == "overflow":
        return Reply(refusal=errors.named("chat", "overflow"))
    if step.finish == "malformed" and not ask.stream:
        return Reply(refusal=errors.openai("tool_use_failed", "Failed to call a function.", None, "tool_use_failed"))
    head: Json = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": ask.model}
    message, finish = _message(ask, step), _finish(step)
    usage = _usage(usage_of(ask, step))
    if step.in_stream_error and not ask.stream:
        return Reply(body={**head, "object": "chat.completion", "choices": [], **_error(step.in_stream_error)})
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    body = {**head, "object": "chat.completion", "choices": [choice], **usage}
    return _streamed(ask, step, head, message, body)


def _streamed(ask: Ask, step: Step, head: Json, message: Json, body: Json) -> Reply:
    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return unnamed({**head, "object": "chat.completion.chunk", "choices": [choice], "usage": None})

    closing = [chunk({}, body["choices"][0]["finish_reason"])]
    if ask.wants_usage and "usage" in body:
        closing.append(unnamed({**head, "object": "chat.completion.chunk", "choices": [], "usage": body["usage"]}))
    closing.append(b"data: [DONE]\n\n")
    if step.in_stream_error:
        closing = [unnamed(_error(step.in_stream_error))]
    if step.finish == "malformed":
        closing = [event("error", {"error": {"message": "Failed to call a function.", **_FAILED, "status_code": 400}})]
    return Reply(
        body=body,
        opening=(chunk({"role": "assistant", "content": None if step.calls else ""}),),
        content=tuple(chunk(delta) for delta in _deltas(step, message)),
        closing=tuple(closing),
    )


def _message(ask: Ask, step: Step) -> Json:
    text = "" if step.finish in {"empty", "filtered", "refused"} else whole_text(step)
    message: Json = {"role": "assistant", "content": text, "refusal": _REFUSAL if step.finish == "refused" else None}
    if step.calls and step.finish not in {"empty", "filtered", "refused", "malformed"}:
        message["content"] = text or None
        message["tool_calls"] = [
            {
                "id": call_id(ask, step, call, "call_"),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_of(step, place)},
            }
            for place, call in enumerate(step.calls)
        ]
    return {**message, **_thought(ask, step, message)}


def _thought(ask: Ask, step: Step, message: Json) -> Json:
    if not step.thinking:
        return {}
    if not models.chat_signs_reasoning(ask.model):
        return {"reasoning_content": step.thinking}
    turn = seals.digest([essence(message), step.thinking])
    signature = seals.sign(seals.Seal("chat", ask.model, seals.digest(step.thinking), turn))
    detail = {"type": "reasoning.text", "text": step.thinking, "signature": signature, "index": 0}
    return {"reasoning": step.thinking, "reasoning_details": [detail]}


def _finish(step: Step) -> str:
    calls = step.calls and step.finish not in {"empty", "refused"}
    return _FINISHES.get(step.finish) or ("tool_calls" if calls else "stop")


def _deltas(step: Step, message: Json) -> Iterator[Json]:
    yield from ({"reasoning_content": piece} for piece in pieces(message.get("reasoning_content", "")))
    for detail in message.get("reasoning_details", ()):
        for piece in pieces(detail["text"]):
            yield {"reasoning": piece, "reasoning_details": [{"type": detail["type"], "text": piece, "index": 0}]}
        yield {"reasoning_details": [{"type": detail["type"], "signature": detail["signature"], "index": 0}]}
    if message["refusal"]:
        yield {"refusal": message["refusal"]}
    if message["content"]:
        yield from ({"content": piece} for piece in text_pieces(step))
    elif step.repeat_piece:
        yield from ({"content": step.piece} for _ in range(step.repeat_piece))
    for index, call in enumerate(message.get("tool_calls", ())):
        named = {"name": call["function"]["name"], "arguments": "" if call["function"]["arguments"] else None}
        if call["function"]["arguments"] == "":
            named["arguments"] = ""
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": named}]}
        for piece in pieces(call["function"]["arguments"] or ""):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _usage(usage: Usage | None) -> Json:
    if usage is None:
        return {}
    return {
        "usage": {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }
    }


def _error(kind: str) -> Json:
    """Return an error as OpenRouter puts it into a body or a chunk: the code is the status."""
    refusal = errors.named("chat", kind)
    return {"error": {"message": refusal.message, "code": refusal.status, "metadata": {"provider_name": "fake"}}}
