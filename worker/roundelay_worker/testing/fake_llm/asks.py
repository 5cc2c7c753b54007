"""Requests of the four formats, read in the fake's own terms; for what a check accepts, and tolerant of the rest."""

from typing import Any

from roundelay_worker.testing.fake_llm.anthropic_request import blocks
from roundelay_worker.testing.fake_llm.ask import Ask, Said
from roundelay_worker.testing.fake_llm.check_gemini import get
from roundelay_worker.testing.fake_llm.check_responses import as_items, is_model, kind_of
from roundelay_worker.testing.fake_llm.models import claude_generation
from roundelay_worker.testing.fake_llm.refusal import Format, Json

PAUSE_ID = "srvtoolu_Paused"


def read(wire: Format, body: Json, *, stream: bool, size: int) -> Ask:
    """Return what a request of this format asks for; ``stream`` is what a URL says where it decides."""
    return _READERS[wire](body, stream, size)


def _anthropic(body: Json, _stream: bool, size: int) -> Ask:
    talk: list[Said] = []
    for message in body.get("messages") or ():
        content = blocks(message)
        if message["role"] == "assistant":
            talk.append(Said("model", turns=_anthropic_turns(content)))
            continue
        if any(block["type"] == "tool_result" for block in content):
            talk.append(Said("results"))
        talk += [Said("user", block["text"]) for block in content if block["type"] == "text"]
    choice, thinking = body.get("tool_choice") or {}, body.get("thinking") or {}
    return Ask(
        "anthropic",
        str(body.get("model", "")),
        tuple(talk),
        stream=bool(body.get("stream")),
        closing=choice.get("type") == "none",
        room=body.get("max_tokens"),
        size=size,
        thinks=thinking.get("type") != "disabled",
        shows=_anthropic_shows(str(body.get("model", "")), thinking),
    )


def _anthropic_shows(model: str, thinking: Json) -> bool:
    """Say whether thinking has a text: new models leave it out unless a summary is asked for."""
    usual = "omitted" if claude_generation(model) >= (5, 0) else "summarized"
    return bool(thinking.get("display", usual) != "omitted")


def _anthropic_turns(content: list[Json]) -> int:
    """Count the turns in one message: a paused turn and its continuation may have been merged."""
    return 1 + sum(str(block.get("id", "")).startswith(PAUSE_ID) for block in content[:-1])


def _chat(body: Json, _stream: bool, size: int) -> Ask:
    talk: list[Said] = []
    for message in body.get("messages") or ():
        if message["role"] == "assistant":
            talk.append(Said("model"))
        elif message["role"] == "tool":
            talk.append(Said("results"))
        elif message["role"] == "user":
            talk.append(Said("user", _texts(message.get("content"))))
    options = body.get("stream_options") or {}
    return Ask(
        "chat",
        str(body.get("model", "")),
        tuple(talk),
        stream=bool(body.get("stream")),
        closing=body.get("tool_choice") == "none",
        room=body.get("max_completion_tokens") or body.get("max_tokens"),
        size=size,
        wants_usage=not body.get("stream") or bool(options.get("include_usage")),
    )


def _responses(body: Json, _stream: bool, size: int) -> Ask:
    talk: list[Said] = []
    within = False
    for item in as_items(body.get("input")):
        if is_model(item):
            talk += [] if within else [Said("model")]
        elif kind_of(item) == "function_call_output":
            talk.append(Said("results"))
        elif item.get("role") == "user":
            talk.append(Said("user", _texts(item.get("content"))))
        within = is_model(item)
    return Ask(
        "responses",
        str(body.get("model", "")),
        tuple(talk),
        stream=bool(body.get("stream")),
        closing=body.get("tool_choice") == "none",
        room=body.get("max_output_tokens"),
        size=size,
        thinks="reasoning.encrypted_content" in (body.get("include") or ()),
        shows=bool((body.get("reasoning") or {}).get("summary")),
    )


def _gemini(body: Json, stream: bool, size: int) -> Ask:
    talk: list[Said] = []
    for content in body.get("contents") or ():
        parts = content.get("parts") or []
        if content.get("role") == "model":
            talk.append(Said("model"))
            continue
        if any(get(part, "functionResponse") for part in parts):
            talk.append(Said("results"))
        talk += [Said("user", part["text"]) for part in parts if "text" in part]
    calling = get(get(body, "toolConfig") or {}, "functionCallingConfig") or {}
    config = get(body, "generationConfig") or {}
    return Ask(
        "gemini",
        str(body.get("model", "")),
        tuple(talk),
        stream=stream,
        closing=str(calling.get("mode", "")).upper() == "NONE",
        room=get(config, "maxOutputTokens"),
        size=size,
        shows=bool(get(get(config, "thinkingConfig") or {}, "includeThoughts")),
    )


def _texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or ())


_READERS = {"anthropic": _anthropic, "chat": _chat, "gemini": _gemini, "responses": _responses}
