"""A Chat Completions reply read from its stream, or from one body, by the same rules; pure."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from roundelay_worker.loop.history import Call, Finish, Native, Turn, TurnUsage
from roundelay_worker.providers.base import FailureCode, ModelFailure, ModelRequest
from roundelay_worker.providers.chat.calls import CallsInPieces, native_calls
from roundelay_worker.providers.chat.parts import GrowingParts
from roundelay_worker.providers.encoding import encode, native_text
from roundelay_worker.providers.events import ServerEvent
from roundelay_worker.providers.failures import classify_error
from roundelay_worker.providers.leaked import has_leaked_calls
from roundelay_worker.providers.reading import (
    ALIVE,
    NOTHING,
    Piece,
    TextPiece,
    Thinking,
    cut_off,
    unreadable,
)
from roundelay_worker.providers.slices import parsed
from roundelay_worker.providers.thoughts import ThoughtFilter, without_thoughts
from roundelay_worker.providers.usage import read_usage

FINISHES: Final[dict[str, Finish]] = {
    "": "complete",
    "stop": "complete",
    "tool_calls": "complete",
    "tool_call": "complete",
    "function_call": "complete",
    "eos": "complete",
    "end": "complete",
    "end_turn": "complete",
    "tool_use": "complete",
    "stop_sequence": "complete",
    "length": "cut",
    "max_tokens": "cut",
    "max_output_tokens": "cut",
    "incomplete": "cut",
    "model_length": "overflow",
    "model_context_window_exceeded": "overflow",
    "content_filter": "refused",
    "refusal": "refused",
    "safety": "refused",
    "recitation": "refused",
    "prohibited_content": "refused",
    "malformed_function_call": "malformed",
    "function_call_filter: malformed_function_call": "malformed",
    "tool_use_failed": "malformed",
}
"""What ``finish_reason`` means, in lower case; what is not here is ``unknown``."""

FAILED_FINISHES: Final[dict[str, FailureCode]] = {
    "error": "provider_error",
    "abort": "reply_cut_off",
    "cancelled": "reply_cut_off",
    "insufficient_system_resource": "model_overloaded",
}
"""Ends that are failures of the server; the same request may work later."""

_AFTER_FINISH: Final = 2.0
_AFTER_DONE: Final = 0.25
_REASONING_TEXT: Final = ("reasoning_content", "reasoning", "thinking")
_KEPT_FIELDS: Final = ("reasoning", "thinking", "thought", "extra_content", "provider_specific_fields")
"""Fields of a message that begin like this hold what the server wants back; others are for reading only."""


class ChatAssembly:
    """A Chat Completions reply under construction."""

    def __init__(self, request: ModelRequest, origin: str) -> None:
        self._tools = frozenset(tool.name for tool in request.tools)
        self._limit = request.max_output_tokens
        self._origin = origin
        self._message = _Message(self._tools)
        self._finish: str | None = None
        self._failure: ModelFailure | None = None
        self._done = False
        self._usage: TurnUsage | None = None

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that usage and the end marker are worth."""
        if self._done:
            return _AFTER_DONE
        return _AFTER_FINISH if self._finish else None

    def add(self, event: ServerEvent) -> list[Piece]:
        """Take one chunk; raise ModelFailure for an error inside the stream."""
        if event.data.strip() == "[DONE]":
            self._done = True
            return [ALIVE]
        try:
            chunk = parsed(event.data)
        except ValueError as exc:
            raise cut_off() from exc
        try:
            return self._take(chunk)
        except ValueError as exc:
            raise unreadable() from exc

    def read_whole(self, body: bytes) -> Turn:
        """Return the turn that one JSON body holds; raise ModelFailure for an error in it."""
        try:
            self._take(parsed(body.decode(errors="replace")))
        except ValueError as exc:
            raise unreadable() from exc
        if self._finish is None and not self._message.begun:
            raise unreadable()
        self._done = True
        return self.turn()

    def turn(self) -> Turn:
        """Return the turn; raise ModelFailure, ``reply_cut_off`` if no terminal value came."""
        marked_only = self._finish is None and not self._message.begun  # an end mark, and nothing before it
        if not self._finish and (marked_only or not self._done):
            raise cut_off()
        word = (self._finish or "").lower()
        if word in FAILED_FINISHES:
            given_up = ModelFailure(FAILED_FINISHES[word], "The model server gave the reply up.", retryable=True)
            raise self._failure or given_up
        text, called = self._message.text(), self._message.calls()
        calls = tuple(call for call, _ in called)
        native = native_text(self._message.native(native_calls(called)))
        finish = self._judged(word, text, calls)
        filtered = finish == "refused" and not self._message.refused  # cut off by a filter, in no words of its own
        return Turn(
            text="" if filtered else text,
            calls=calls,
            finish=finish,
            cut_call=finish == "cut" and bool(calls),
            usage=self._usage,
            native=Native(self._origin, native) if native is not None else None,
            note=self._finish or "",
        )

    def _judged(self, word: str, text: str, calls: tuple[Call, ...]) -> Finish:
        """Judge by the content first: a word for "complete" does not make it so."""
        if self._message.refused:
            return "refused"
        finish = FINISHES.get(word, "unknown")
        if finish != "complete":
            return finish
        if any(call.fault for call in calls) and self._usage and self._usage.output_tokens >= self._limit:
            return "cut"
        if any(not call.name for call in calls) or (not calls and has_leaked_calls(text, self._tools)):
            return "malformed"
        return "complete"

    def _take(self, chunk: object) -> list[Piece]:
        if not isinstance(chunk, dict):
            raise classify_error(chunk) if isinstance(chunk, list) and chunk else unreadable()
        if chunk.get("error") or ("choices" not in chunk and _is_bare_error(chunk)):
            self._failure = classify_error(chunk)
            raise self._failure
        self._take_usage(chunk)
        pieces: list[Piece] = []
        for choice in _dicts(chunk.get("choices")):
            if not choice.get("index"):  # the first: we never ask for more
                pieces += self._take_choice(choice)
        return pieces or [ALIVE if chunk.get("usage") else NOTHING]

    def _take_choice(self, choice: Mapping[str, Any]) -> list[Piece]:
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and (not self._finish or self._is_worse(finish)):
            self._finish = finish or self._finish or ""
        if "usage" in choice:
            self._take_usage(choice)
        delta = choice.get("delta") or choice.get("message")
        return self._message.add(delta) if isinstance(delta, dict) else []

    def _is_worse(self, finish: str) -> bool:
        """Return whether a second end takes the first back: one that was complete may yet be cut or refused."""
        known, new = (FINISHES.get(word.lower()) for word in (self._finish or "", finish))
        return known == "complete" and new is not None

    def _take_usage(self, holder: Mapping[str, Any]) -> None:
        usage = holder.get("usage")
        if usage is None and isinstance(groq := holder.get("x_groq"), dict):
            usage = groq.get("usage")
        if isinstance(usage, dict):
            self._usage = read_usage(usage) or self._usage


class _Message:
    """The assistant's message as it grows: what is seen, what is called, and all that must go back."""

    def __init__(self, tool_names: Collection[str]) -> None:
        self.begun = False
        self._refusal: list[str] = []
        self._content: list[str] = []
        self._parts: GrowingParts | None = None
        self._thoughts = ThoughtFilter()
        self._calls = CallsInPieces(tool_names)
        self._texts: dict[str, list[str]] = {}
        self._details = GrowingParts()
        self._kept: dict[str, Any] = {}

    def add(self, delta: Mapping[str, Any]) -> list[Piece]:
        """Take a delta, or a whole message, and return what it brought."""
        self.begun = True
        pieces: list[Piece] = []
        for key, value in delta.items():
            if value is None:
                continue
            if key == "content":
                self._visible(value, pieces)
            elif key == "tool_calls":
                pieces += [Thinking(mark) for call in _dicts(value) if (mark := self._calls.add(call))]
            elif key.startswith(_KEPT_FIELDS):
                self._reasoning(key, value, pieces)
            elif key in {"refusal", "function_call"}:
                self._seldom(value, pieces)
        return pieces

    def text(self) -> str:
        """Return the visible text."""
        return "".join(self._refusal) or without_thoughts("".join(self._content))

    @property
    def refused(self) -> bool:
        """Return whether there are words of a refusal."""
        return bool(self._refusal)

    def calls(self) -> list[tuple[Call, dict[str, Any]]]:
        """Return the calls, each with what else the server put on it."""
        return self._calls.calls()

    def native(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the message with these calls as it goes back; ``reasoning_details``, where there are any, say all."""
        content: Any = self._parts.whole() if self._parts is not None else "".join(self._content)
        kept = self._kept | {key: "".join(pieces) for key, pieces in self._texts.items()}
        if details := self._details.whole():
            kept = {key: value for key, value in kept.items() if key not in _REASONING_TEXT}
            kept["reasoning_details"] = details
        message = {"role": "assistant", "content": content or (None if calls else "")}
        return message | ({"tool_calls": calls} if calls else {}) | kept

    def _reasoning(self, key: str, value: object, pieces: list[Piece]) -> None:
        """Keep what must go back; the same thought often comes in two fields, and counts once."""
        mark = value if isinstance(value, str) else str(value)
        if key == "reasoning_details":
            for detail in _dicts(value):
                self._details.add(detail)
        elif isinstance(value, str):
            self._texts.setdefault(key, []).append(value)
        else:
            self._kept[key] = value
        if value and not any(isinstance(piece, Thinking) for piece in pieces):
            pieces.append(Thinking(mark))

    def _visible(self, content: object, pieces: list[Piece]) -> None:
        if isinstance(content, str):
            self._text(content, pieces)
        elif isinstance(content, list):
            for part in _dicts(content):
                self._part(part, pieces)
        elif isinstance(content, dict):
            self._text(encode(content).decode(), pieces)

    def _part(self, part: dict[str, Any], pieces: list[Piece]) -> None:
        """Take a part of a list: from now on the content goes back as a list."""
        if self._parts is None:
            self._parts = GrowingParts()
            if self._content:
                self._parts.add({"type": "text", "text": "".join(self._content)})
        if isinstance(text := part.get("text"), str):
            self._text(text, pieces)
        else:
            self._parts.add(part)
            pieces.append(Thinking(str(part)))

    def _text(self, text: str, pieces: list[Piece]) -> None:
        if not text:
            return
        self._content.append(text)
        if self._parts is not None:
            self._parts.add({"type": "text", "text": text})
        seen, thought = self._thoughts.feed(text)
        if thought:
            pieces.append(Thinking(thought))
        if seen:
            pieces.append(TextPiece(seen))

    def _seldom(self, value: object, pieces: list[Piece]) -> None:
        """Take a refusal, or the one call of the time before ``tool_calls``; some servers send an empty one."""
        if isinstance(value, str) and value:
            self._refusal.append(value)
            pieces.append(TextPiece(value))
        elif isinstance(value, dict) and (value.get("name") or value.get("arguments")):
            pieces.append(Thinking(self._calls.add({"index": 0, "function": value})))


def _is_bare_error(chunk: Mapping[str, Any]) -> bool:
    return bool(chunk.get("detail") or chunk.get("object") == "error" or isinstance(chunk.get("message"), str))


def _dicts(value: object) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
