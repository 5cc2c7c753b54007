"""Which reply a request gets: the check, the script, the step, the attempt."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import orjson

from roundelay_worker.testing.fake_llm import (
    asks,
    check_anthropic,
    check_chat,
    check_gemini,
    check_responses,
    errors,
    write_anthropic,
    write_chat,
    write_gemini,
    write_responses,
)
from roundelay_worker.testing.fake_llm.ask import Ask
from roundelay_worker.testing.fake_llm.leaks import leaked
from roundelay_worker.testing.fake_llm.ledger import Ledger, Recorded
from roundelay_worker.testing.fake_llm.refusal import Format, Json, Refusal, Rules
from roundelay_worker.testing.fake_llm.reply import Reply
from roundelay_worker.testing.fake_llm.script import Script, ScriptUnreadable, Step, locate, parse

CLOSING: Final = "closing"
Check = Callable[[Json, Mapping[str, str], Rules], Refusal | None]
CHECKS: Final[Mapping[Format, Check]] = {
    "anthropic": check_anthropic.check,
    "chat": check_chat.check,
    "gemini": check_gemini.check,
    "responses": check_responses.check,
}
_WRITERS: Final[Mapping[Format, Callable[[Ask, Step], Reply]]] = {
    "anthropic": write_anthropic.write,
    "chat": write_chat.write,
    "gemini": write_gemini.write,
    "responses": write_responses.write,
}
_DOUBTS = frozenset({"signature", "encrypted", "changed_turn", "reasoning"})
_LEFT_OUT = frozenset({"thinking_left_out", "reasoning_left_out"})
_UNREAD = (KeyError, TypeError, AttributeError, ValueError)


@dataclass(frozen=True, slots=True)
class Scene:
    """One request and what it gets: ``refusal``, or the reply to ``step``."""

    request: Recorded
    ask: Ask
    step: Step
    reply: Reply
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class _Cue:
    """Where a request stands in its script."""

    script: Script
    label: str
    step: Step


class Director:
    """Decides what each request gets, and keeps the ledger; it sends nothing."""

    def __init__(self, ledger: Ledger, rules: Rules, default: Script, *, strict: bool) -> None:
        self._ledger = ledger
        self._rules = rules
        self._default = default
        self._strict = strict

    def direct(
        self, wire: Format, raw: bytes, headers: Mapping[str, str], *, model: str = "", stream: bool = False
    ) -> Scene:
        """Return the scene for a request's bytes; ``model`` and ``stream`` are what its URL says."""
        body = _body(raw)
        if body is not None and model:
            body = {**body, "model": model}
        sent = {**headers, "content-length": str(len(raw))}
        refusal = self._refusal(wire, body, sent, self._rules)
        ask, cue, fault = self._cue(wire, body, stream=stream, size=len(raw))
        if refusal is not None and refusal.rule in _LEFT_OUT and self._ledger.was_doubted(cue.script.name):
            refusal = self._refusal(wire, body, sent, replace(self._rules, stripped=True))
        return self._scene(raw, ask, cue, refusal or fault)

    def _refusal(self, wire: Format, body: Json | None, headers: Mapping[str, str], rules: Rules) -> Refusal | None:
        if body is None:
            invalid = errors.named(wire, "invalid")
            return Refusal("not_json", invalid.status, invalid.message, invalid.body)
        return CHECKS[wire](body, headers, rules) if self._strict else None

    def _cue(self, wire: Format, body: Json | None, *, stream: bool, size: int) -> tuple[Ask, _Cue, Refusal | None]:
        try:
            ask = asks.read(wire, body or {}, stream=stream, size=size)
            return ask, self._place(ask), None
        except ScriptUnreadable as fault:
            refusal = Refusal("script", 422, str(fault), {"error": {"message": f"script: {fault}"}})
        except _UNREAD:
            refusal = errors.named(wire, "invalid")
        nothing = _Cue(self._default, "", Step())
        return Ask(wire, "", (), stream=stream, size=size), nothing, refusal

    def _place(self, ask: Ask) -> _Cue:
        found = locate(ask.talk)
        script, turn = (parse(found[0]), found[1]) if found else (self._default, 0)
        if not ask.closing:
            return _Cue(script, str(turn), script.step(turn))
        return _Cue(script, CLOSING, script.closing or _without_calls(script.step(turn), turn))

    def _scene(self, raw: bytes, ask: Ask, cue: _Cue, refusal: Refusal | None) -> Scene:
        def record(number: int, attempt: int) -> Recorded:
            rule = refusal.rule if refusal else ""
            place = (cue.script.name, cue.label, attempt)
            return Recorded(number, time.time(), ask.format, ask.model, *place, ask.stream, ask.closing, rule, raw)

        request = self._ledger.arrived(record, cue.script.name, cue.label, refusal)
        if refusal is not None:
            self._doubt(cue.script.name, refusal.rule)
            return Scene(request, ask, Step(), Reply(), refusal)
        step = _prepared(cue.step.on_attempt(request.attempt), ask)
        self._doubt(cue.script.name, step.error)
        try:
            return Scene(request, ask, step, _reply(ask, step))
        except BaseException:
            self._ledger.ended(request)
            raise

    def _doubt(self, name: str, rule: str) -> None:
        if rule in _DOUBTS:
            self._ledger.doubted(name)


def _body(raw: bytes) -> Json | None:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None


def _reply(ask: Ask, step: Step) -> Reply:
    if step.error:
        return Reply(refusal=errors.named(ask.format, step.error, step.retry_after))
    return Reply() if step.status else _WRITERS[ask.format](ask, step)


def _without_calls(step: Step, turn: int) -> Step:
    """Return a step as a model gives it that may not call: its calls, and the words beside them, are left out."""
    return replace(step, calls=(), leak=False, text=f"Closing after {turn} turns.") if step.calls else step


def _prepared(step: Step, ask: Ask) -> Step:
    if step.leak:
        text = "\n".join([step.text, *(leaked(call, step.leak) for call in step.calls)])
        return replace(step, text=text.lstrip("\n"), calls=())
    if step.needs and (ask.room or 0) < step.needs:
        return replace(step, finish="cut")
    return step
