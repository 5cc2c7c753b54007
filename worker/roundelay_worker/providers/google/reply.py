"""The reply of Gemini's generateContent: a reply under construction, and the turn that it makes.

A stream is a row of whole responses whose parts follow each other; every part is kept as it came, since a
signature may stand on any of them, also on an empty text at the end. Without ``alt=sse`` the same responses
come as one JSON array, which some intermediaries do.
"""

from typing import Any, Final

from roundelay_worker.loop.history import Call, Finish, Native, Turn, TurnUsage
from roundelay_worker.loop.surrogates import readable
from roundelay_worker.providers.arguments import read_arguments
from roundelay_worker.providers.base import ModelFailure, ModelRequest
from roundelay_worker.providers.encoding import encode
from roundelay_worker.providers.events import ServerEvent
from roundelay_worker.providers.failures import classify_error
from roundelay_worker.providers.leaked import has_leaked_calls
from roundelay_worker.providers.loose import as_count, as_object, as_word
from roundelay_worker.providers.reading import ALIVE, NOTHING, Piece, TextPiece, Thinking, cut_off, unreadable
from roundelay_worker.providers.slices import elements, members, parsed

FINISHES: Final[dict[str, Finish]] = {
    "STOP": "complete",
    "MAX_TOKENS": "cut",
    "MALFORMED_FUNCTION_CALL": "malformed",
    "MALFORMED_RESPONSE": "malformed",
    "UNEXPECTED_TOOL_CALL": "malformed",
    "TOO_MANY_TOOL_CALLS": "malformed",
    "RECITATION": "malformed",
    "OTHER": "malformed",
    "FINISH_REASON_UNSPECIFIED": "malformed",
    "SAFETY": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "LANGUAGE": "refused",
    "MODEL_ARMOR": "refused",
    "ESCALATION": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "IMAGE_RECITATION": "refused",
    "IMAGE_OTHER": "refused",
    "NO_IMAGE": "refused",
}
"""What each finish reason means to the loop; any other is unknown. RECITATION and OTHER may not happen again."""

_UNSIGNED: Final = "MISSING_THOUGHT_SIGNATURE"
_CALLED: Final = "UNEXPECTED_TOOL_CALL"
_LINGER: Final = 10.0
"""Seconds that a last chunk is worth waiting for once a finish reason came; old models send one with each chunk."""


class GenerationAssembly:
    """A reply under construction, fed with chunks; ``origin`` is what its native parts will hold for."""

    def __init__(self, request: ModelRequest, origin: str) -> None:
        self._tool_names = frozenset(tool.name for tool in request.tools)
        self._origin = origin
        self._parts: list[tuple[dict[str, Any], str]] = []
        self._known: set[bytes] = set()
        self._usage: dict[str, Any] = {}
        self._reason = ""
        self._blocked = ""
        self._begun = False
        self._answered = False

    @property
    def linger(self) -> float | None:
        """Return None, or the seconds that what is still missing is worth."""
        return _LINGER if self._reason or self._blocked else None

    def add(self, event: ServerEvent) -> list[Piece]:
        """Take one chunk; raise ModelFailure for an error inside the stream, or a chunk that cannot be read."""
        if event.data.strip() == "[DONE]":
            return [ALIVE]
        try:
            return self._chunk(event.data)
        except ValueError as exc:
            raise unreadable() from exc

    def turn(self) -> Turn:
        """Return the turn; raise ModelFailure, ``reply_cut_off`` if candidates came without a finish reason."""
        if not self._begun or (self._answered and not self._reason and not self._blocked):
            raise cut_off()
        try:
            return self._turn()
        except ValueError as exc:
            raise unreadable() from exc

    def read_whole(self, body: bytes) -> Turn:
        """Return the turn that one JSON body holds, a response or an array of them; raise ModelFailure for an error."""
        text = body.decode(errors="replace").strip()
        try:
            for chunk in elements(text) if isinstance(parsed(text), list) else [text]:
                self._chunk(chunk)
        except ValueError as exc:
            raise (cut_off() if text.startswith("[") else unreadable()) from exc
        return self.turn()

    def _chunk(self, raw: str) -> list[Piece]:
        chunk = parsed(raw)
        if not isinstance(chunk, dict):
            return [NOTHING]
        if chunk.get("error"):
            raise classify_error(chunk)
        self._begun = True
        self._usage.update(as_object(chunk.get("usageMetadata")))
        self._blocked = as_word(as_object(chunk.get("promptFeedback")).get("blockReason")) or self._blocked
        candidates = chunk.get("candidates")
        if not isinstance(candidates, list) or not candidates:
            return [NOTHING]
        return self._candidate(as_object(candidates[0]), elements(members(raw)["candidates"])[0])

    def _candidate(self, candidate: dict[str, Any], raw: str) -> list[Piece]:
        self._answered = True
        self._reason = as_word(candidate.get("finishReason")) or self._reason
        parts = as_object(candidate.get("content")).get("parts")
        if not isinstance(parts, list):
            return [NOTHING]
        raws = elements(members(members(raw)["content"])["parts"])
        return [self._part(part, part_raw) for part, part_raw in zip(parts, raws, strict=True)]

    def _part(self, part: object, raw: str) -> Piece:
        if not isinstance(part, dict) or part in ({}, {"text": ""}) or self._is_repeated(part):
            return NOTHING
        self._parts.append((part, raw))
        text = _visible(part)
        return TextPiece(text) if text else Thinking(raw)

    def _is_repeated(self, part: dict[str, Any]) -> bool:
        """Say whether the part is a call that came before under its id: intermediaries send chunks again."""
        called = as_object(part.get("functionCall"))
        if not (call_id := as_word(called.get("id"))):
            return False
        key = encode([call_id, called.get("name"), called.get("args")])
        known = key in self._known
        self._known.add(key)
        return known

    def _turn(self) -> Turn:
        if self._reason == _UNSIGNED:
            raise ModelFailure("bad_request", "A call in the history lacks its signature.", repair="drop_reasoning")
        calls = tuple(_call(raw) for part, raw in self._parts if isinstance(part.get("functionCall"), dict))
        text = readable("".join(_visible(part) for part, _ in self._parts))
        finish = self._finish(text, calls)
        note = self._blocked or self._reason
        if finish != "complete":
            said, usage = "" if finish == "refused" else text, _usage(self._usage)
            return Turn(said, finish=finish, usage=usage, cut_call=bool(calls), note=note)
        native = Native(self._origin, "[" + ",".join(raw for _, raw in self._parts) + "]")
        return Turn(text, calls, finish, _usage(self._usage), native, note=note)

    def _finish(self, text: str, calls: tuple[Call, ...]) -> Finish:
        """Judge by the content first; no reason at all is an empty reply, an unexpected call may be a call."""
        if self._blocked:
            return "refused"
        usable = bool(calls) and not any(call.fault for call in calls)
        finish = FINISHES.get(self._reason, "unknown") if self._reason else "complete"
        if finish != "complete":
            return "complete" if self._reason == _CALLED and usable else finish
        if any(not call.name for call in calls) or (not calls and has_leaked_calls(text, self._tool_names)):
            return "malformed"
        return "complete"


def _visible(part: dict[str, Any]) -> str:
    """Return the text of a part that is meant for the user: summaries of thoughts are not."""
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else ""


def _call(raw: str) -> Call:
    called = members(members(raw)["functionCall"])
    arguments, fault = read_arguments(called.get("args", "").removeprefix("null"))
    name, call_id = (as_word(parsed(called.get(key, "null"))) for key in ("name", "id"))
    return Call(name, arguments, call_id, fault)


def _usage(usage: dict[str, Any]) -> TurnUsage | None:
    """Return the usage in neutral terms: the output includes thoughts, the input what server tools read."""
    if not usage:
        return None
    thoughts = as_count(usage.get("thoughtsTokenCount"))
    return TurnUsage(
        input_tokens=as_count(usage.get("promptTokenCount")) + as_count(usage.get("toolUsePromptTokenCount")),
        output_tokens=as_count(usage.get("candidatesTokenCount")) + thoughts,
        cached_tokens=as_count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )
