"""What all four writers share: the reply as a value, ids, pieces of text, and plausible token counts."""

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import orjson

from roundelay_worker.testing.fake_llm import seals
from roundelay_worker.testing.fake_llm.ask import Ask
from roundelay_worker.testing.fake_llm.refusal import Json, Refusal
from roundelay_worker.testing.fake_llm.script import ScriptedCall, Step

_PIECE = 24
_CACHE_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Reply:
    """A 200: ``body`` for a plain request, the rest for a stream, in order; ``closing`` begins with the terminal event.

    ``ping`` is the format's sign of life. ``refusal`` replaces the reply where the service would answer with an error.
    """

    body: Json = field(default_factory=dict)
    opening: tuple[bytes, ...] = ()
    content: tuple[bytes, ...] = ()
    closing: tuple[bytes, ...] = ()
    ping: bytes = b": keep-alive\n\n"
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a reply: input with the cached ones, output with the reasoning."""

    input: int
    output: int
    cached: int
    reasoning: int


def usage_of(ask: Ask, step: Step) -> Usage | None:
    """Return plausible counts, or those that the step gives; None where it asks for none."""
    if step.usage is None:
        return None
    entry = max(ask.size // 4, 8)
    turns = sum(said.turns for said in ask.talk if said.kind == "model")
    reasoning = len(step.thinking) // 4 + bool(step.thinking)
    spoken = len(step.text) + sum(len(call.name) + len(call.arguments or "") for call in step.calls)
    guess = {
        "input": entry,
        "output": spoken // 4 + 8 + reasoning,
        "cached": entry * 3 // 4 // _CACHE_BLOCK * _CACHE_BLOCK if turns else 0,
        "reasoning": reasoning,
    }
    return Usage(**{**guess, **step.usage})


def event(name: str, payload: Json) -> bytes:
    """Return a named server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(payload) + b"\n\n"


def unnamed(payload: Any) -> bytes:
    """Return a server-sent event without a name."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def new_id(prefix: str) -> str:
    """Return an id as services make them."""
    return prefix + uuid4().hex[:24]


def call_id(ask: Ask, step: Step, call: ScriptedCall, prefix: str) -> str:
    """Return the id of a call: the scripted one, or a fresh one that is marked if the turn had reasoning."""
    if call.id is not None:
        return call.id
    return new_id(prefix + (seals.mark(ask.format, ask.model) if step.thinking and ask.thinks else ""))


def pieces(text: str) -> list[str]:
    """Return a text in pieces, as a model streams it."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def text_pieces(step: Step) -> list[str]:
    """Return the pieces of the visible text, those that repeat first."""
    return [step.piece] * step.repeat_piece + pieces(step.text)


def whole_text(step: Step) -> str:
    """Return the visible text with all that repeats."""
    return step.piece * step.repeat_piece + step.text


def arguments_of(step: Step, place: int) -> str | None:
    """Return the argument text of a call as it goes out: the last call of a cut or malformed reply breaks off."""
    text = step.calls[place].arguments
    if step.finish in {"cut", "malformed"} and place == len(step.calls) - 1 and text:
        return text[: max(len(text) // 2, 1)]
    return text
