"""Replies in the vocabulary of the Responses API: output items, and the events that stream them."""

import time
from collections.abc import Iterator
from itertools import count

from roundelay_worker.testing.fake_llm import errors, seals
from roundelay_worker.testing.fake_llm.ask import Ask
from roundelay_worker.testing.fake_llm.check_responses import essence
from roundelay_worker.testing.fake_llm.refusal import Json, Refusal
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

_REFUSAL = "I'm sorry, I can't help with that."
_TERMINAL = {"completed": "response.completed", "incomplete": "response.incomplete", "failed": "response.failed"}
_INCOMPLETE = {"cut": "max_output_tokens", "filtered": "content_filter"}


def write(ask: Ask, step: Step) -> Reply:
    """Return the reply to a step."""
    if step.finish == "overflow" and not ask.stream:
        return Reply(refusal=errors.named("responses", "overflow"))
    head: Json = {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "model": ask.model,
        "store": False,
    }
    output = _output(ask, step)
    begun = {**head, "status": "in_progress", "error": None, "incomplete_details": None, "output": [], "usage": None}
    fault = "overflow" if step.finish == "overflow" else step.in_stream_error
    whole = {**head, **_status(step, fault), "output": [] if fault else output, **_usage(usage_of(ask, step))}
    return _numbered(step, begun, output, whole, fault)


def _numbered(step: Step, begun: Json, output: list[Json], whole: Json, fault: str) -> Reply:
    numbers = count()

    def numbered(payload: Json) -> bytes:
        return event(payload["type"], {**payload, "sequence_number": next(numbers)})

    opening = [{"type": f"response.{word}", "response": begun} for word in ("created", "in_progress")]
    closing: list[Json] = [{"type": _TERMINAL.get(whole["status"], "response.flux"), "response": whole}]
    if fault:
        closing.insert(0, {"type": "error", "error": _fault(fault)})
    return Reply(
        body=whole,
        opening=tuple(numbered(payload) for payload in opening),
        content=tuple(numbered(payload) for payload in _events(step, output)),
        closing=tuple(numbered(payload) for payload in closing),
        ping=event("keepalive", {"type": "keepalive"}),
    )


def _status(step: Step, fault: str) -> Json:
    if fault:
        code = _fault(fault)
        return {
            "status": "failed",
            "error": {"code": code["code"], "message": code["message"]},
            "incomplete_details": None,
        }
    reason = _INCOMPLETE.get(step.finish)
    if reason:
        return {"status": "incomplete", "error": None, "incomplete_details": {"reason": reason}}
    status = "flux" if step.finish == "unknown" else "completed"
    return {"status": status, "error": None, "incomplete_details": None}


def _fault(kind: str) -> Json:
    refusal: Refusal = errors.named("responses", kind)
    body = refusal.body
    return dict(body["error"]) if isinstance(body, dict) else {"code": kind, "message": refusal.message}


def _output(ask: Ask, step: Step) -> list[Json]:
    said: list[Json] = []
    text = whole_text(step)
    if step.finish == "refused":
        said.append(_message(step, {"type": "refusal", "refusal": _REFUSAL}))
    elif step.finish not in {"empty", "filtered"}:
        said += [_message(step, {"type": "output_text", "text": text, "annotations": []})] if text else []
        said += [_call(ask, step, place) for place in range(len(step.calls))]
    return [*_thought(ask, step, said), *said]


def _message(step: Step, part: Json) -> Json:
    status = "incomplete" if step.finish == "cut" and not step.calls else "completed"
    phase = "commentary" if step.calls else "final_answer"
    return {
        "id": new_id("msg_"),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [part],
        "phase": phase,
    }


def _call(ask: Ask, step: Step, place: int) -> Json:
    call, cut = step.calls[place], step.finish == "cut" and place == len(step.calls) - 1
    return {
        "id": new_id("fc_"),
        "type": "function_call",
        "status": "incomplete" if cut else "completed",
        "arguments": arguments_of(step, place) or "",
        "call_id": call_id(ask, step, call, "call_"),
        "name": call.name,
    }


def _thought(ask: Ask, step: Step, said: list[Json]) -> list[Json]:
    if not step.thinking:
        return []
    summary = [{"type": "summary_text", "text": step.thinking}] if ask.shows else []
    item: Json = {"id": new_id("rs_"), "type": "reasoning", "summary": summary}
    turn = [essence(each) for each in (item, *said)]
    if not ask.thinks:
        return [item]
    seal = seals.Seal("responses", ask.model, seals.digest(turn[0]), seals.digest(turn), 0, len(turn))
    return [{**item, "encrypted_content": seals.sign(seal)}]


def _events(step: Step, output: list[Json]) -> Iterator[Json]:
    for index, item in enumerate(output):
        place = {"output_index": index}
        begun, inner = _inside(step, item, place)
        yield {"type": "response.output_item.added", "item": begun, **place}
        yield from inner
        yield {"type": "response.output_item.done", "item": item, **place}


def _inside(step: Step, item: Json, place: Json) -> tuple[Json, list[Json]]:
    where = {"item_id": item["id"], **place}
    if item["type"] == "reasoning":
        draft = {"encrypted_content": seals.sign(seals.Seal("responses", "", "", "", state="draft"))}
        begun = {**item, "summary": [], **(draft if "encrypted_content" in item else {})}
        return begun, _summary(item, where)
    begun = {**item, "status": "in_progress"}
    if item["type"] == "function_call":
        kind = "response.function_call_arguments"
        deltas = [{"type": f"{kind}.delta", "delta": piece, **where} for piece in pieces(item["arguments"])]
        return {**begun, "arguments": ""}, [*deltas, {"type": f"{kind}.done", "arguments": item["arguments"], **where}]
    return {**begun, "content": []}, _part(step, item["content"][0], {**where, "content_index": 0})


def _summary(item: Json, where: Json) -> list[Json]:
    if not item["summary"]:
        return []
    kind, at, part = "response.reasoning_summary", {**where, "summary_index": 0}, item["summary"][0]
    return [
        {"type": f"{kind}_part.added", "part": {**part, "text": ""}, **at},
        *({"type": f"{kind}_text.delta", "delta": piece, **at} for piece in pieces(part["text"])),
        {"type": f"{kind}_text.done", "text": part["text"], **at},
        {"type": f"{kind}_part.done", "part": part, **at},
    ]


def _part(step: Step, part: Json, at: Json) -> list[Json]:
    refusal = part["type"] == "refusal"
    kind, key = ("response.refusal", "refusal") if refusal else ("response.output_text", "text")
    spoken = pieces(part[key]) if refusal else text_pieces(step)
    return [
        {"type": "response.content_part.added", "part": {**part, key: ""}, **at},
        *({"type": f"{kind}.delta", "delta": piece, **at} for piece in spoken),
        {"type": f"{kind}.done", key: part[key], **at},
        {"type": "response.content_part.done", "part": part, **at},
    ]


def _usage(usage: Usage | None) -> Json:
    if usage is None:
        return {"usage": None}
    return {
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }
    }
