"""Replies in Gemini's vocabulary: parts, and whole responses as the chunks of a stream."""

from collections.abc import Iterator

from roundelay_worker.testing.fake_llm import errors, seals
from roundelay_worker.testing.fake_llm.ask import Ask
from roundelay_worker.testing.fake_llm.check_gemini import essence, part_essence
from roundelay_worker.testing.fake_llm.models import gemini_generation
from roundelay_worker.testing.fake_llm.refusal import Json, as_object
from roundelay_worker.testing.fake_llm.reply import (
    Reply,
    Usage,
    call_id,
    new_id,
    pieces,
    text_pieces,
    unnamed,
    usage_of,
    whole_text,
)
from roundelay_worker.testing.fake_llm.script import Step

_REASONS = {
    "cut": "MAX_TOKENS",
    "refused": "SAFETY",
    "malformed": "MALFORMED_FUNCTION_CALL",
    "unknown": "FLUX_EXHAUSTED",
}
_SILENT = frozenset({"empty", "refused", "malformed", "filtered"})


def write(ask: Ask, step: Step) -> Reply:
    """Return the reply to a step."""
    if step.finish == "overflow" or (step.in_stream_error and not ask.stream):
        return Reply(refusal=errors.named("gemini", step.in_stream_error or "overflow"))
    common: Json = {"modelVersion": ask.model, "responseId": new_id("")}
    counts = _usage(usage_of(ask, step))
    if step.finish == "filtered":
        blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, **counts, **common}
        return Reply(body=blocked, closing=(unnamed(blocked),))
    parts = _parts(ask, step)

    def response(some: list[Json], *, last: bool = False) -> Json:
        candidate: Json = {"content": {"parts": some, "role": "model"} if some else {"role": "model"}, "index": 0}
        return {"candidates": [{**candidate, **(_ending(step) if last else {})}], **counts, **common}

    streamed, tail = _streamed(step, parts)
    closing = response(tail, last=True)
    if step.in_stream_error:
        body = errors.named("gemini", step.in_stream_error).body
        closing = body if isinstance(body, dict) else {}
    return Reply(
        body=response(parts, last=True),
        content=tuple(unnamed(response(some)) for some in streamed),
        closing=(unnamed(closing),),
    )


def _ending(step: Step) -> Json:
    reason = _REASONS.get(step.finish, "STOP")
    if step.finish == "malformed":
        return {"finishReason": reason, "finishMessage": "Malformed function call: print(default_api.x("}
    return {"finishReason": reason}


def _parts(ask: Ask, step: Step) -> list[Json]:
    if step.finish in _SILENT or (step.finish == "cut" and step.calls):
        return []
    said: list[Json] = [{"text": whole_text(step)}] if whole_text(step) else []
    for call in step.calls:
        function: Json = {"name": call.name, "args": as_object(call.arguments)}
        if gemini_generation(ask.model) >= (3, 0) or call.id is not None:
            function["id"] = call_id(ask, step, call, "")
        said.append({"functionCall": function})
    return _thought(ask, step, said)


def _thought(ask: Ask, step: Step, said: list[Json]) -> list[Json]:
    """Sign the first call, or after reasoning an empty text part at the end, as the service does."""
    thoughts: list[Json] = [{"text": step.thinking, "thought": True}] if step.thinking and ask.shows else []
    turn = seals.digest(essence(said))

    def signed(part: Json) -> Json:
        seal = seals.Seal("gemini", ask.model, seals.digest(part_essence(part)), turn)
        return {**part, "thoughtSignature": seals.sign(seal)}

    place = next((place for place, part in enumerate(said) if "functionCall" in part), None)
    if place is not None:
        return [*thoughts, *said[:place], signed(said[place]), *said[place + 1 :]]
    return [*thoughts, *said, *([signed({"text": ""})] if step.thinking else [])]


def _streamed(step: Step, parts: list[Json]) -> tuple[list[list[Json]], list[Json]]:
    """Return the parts of each chunk and those of the last one, which holds the finish reason."""
    chunks = [[piece] for part in parts for piece in _pieces(step, part)]
    if chunks and "thoughtSignature" in chunks[-1][0] and "functionCall" not in chunks[-1][0]:
        return chunks[:-1], chunks[-1]
    return chunks, [] if step.finish in {*_SILENT, "cut"} else [{"text": ""}]


def _pieces(step: Step, part: Json) -> Iterator[Json]:
    if not part.get("text"):
        yield part
        return
    spoken = pieces(part["text"]) if part.get("thought") else text_pieces(step)
    yield from ({**part, "text": piece} for piece in spoken)


def _usage(usage: Usage | None) -> Json:
    if usage is None:
        return {}
    counts: Json = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
    }
    cached = {"cachedContentTokenCount": usage.cached} if usage.cached else {}
    thoughts = {"thoughtsTokenCount": usage.reasoning} if usage.reasoning else {}
    return {"usageMetadata": {**counts, **cached, **thoughts}}
