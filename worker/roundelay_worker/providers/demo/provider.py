"""The demo provider: a plainly named stand-in with a few rules, so that Roundelay runs with no key and no network.

It asks for the real tools, round by round, and answers with their results; the same history always brings the
same turn. ``demo:slow`` takes its time over each piece of text, so that progress can be watched and cancelled.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from roundelay_worker.loop.history import Call, Exchange, History, Result, Turn, TurnUsage, UserText
from roundelay_worker.loop.ledger import without_ledger
from roundelay_worker.providers.base import ModelRequest, Patience
from roundelay_worker.providers.demo.plan import RESULT, Plan, Step, plan
from roundelay_worker.providers.demo.texts import TEXTS, Texts, language_of
from roundelay_worker.providers.demo.words import GO_ON

PIECE: Final = re.compile(r"\S+\s*")
SLOW: Final = 0.05
_MILLIONS: Final = "population_millions"
_LONG_NUMBER: Final = re.compile(r"(\d+\.\d{4})\d+")
_LETTERS_PER_TOKEN: Final = 4


class DemoProvider:
    """A provider with rules for a model; ``model`` is any name, ``slow`` pauses before each piece of text."""

    def __init__(self, model: str = "rules") -> None:
        self._model = model
        self._pause = SLOW if model == "slow" else 0.0

    @property
    def origin(self) -> str:
        """Return ``demo:model@``: no place on any network."""
        return f"demo:{self._model}@"

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:  # noqa: ARG002  # nothing here can keep one waiting
        """Return the turn that the rules make of the history, its text piece by piece beforehand."""
        turn = reply(request)
        for piece in PIECE.findall(turn.text):
            await asyncio.sleep(self._pause)
            on_text(piece)
        return turn


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was asked, and how far it is."""

    texts: Texts
    plan: Plan
    done: tuple[Exchange, ...]

    @property
    def left(self) -> Plan:
        return self.plan[len(self.done) :]


def reply(request: ModelRequest) -> Turn:
    """Return the next turn: the calls of the next round, or the answer."""
    reading = _read(request.history)
    declared = {tool.name for tool in request.tools}
    steps = [step for step in next(iter(reading.left), ()) if step.tool in declared]
    if steps and request.tool_choice == "auto":
        return _asking(request, reading, steps)
    return _turn(request, _answer(reading, declared, closing=request.tool_choice == "none"), ())


def _read(history: History) -> _Reading:
    """Find the last question; "go on" is none, it continues with the one before."""
    start, question = max(_questions(history), default=(-1, ""))
    language = language_of(question)
    done = tuple(entry for entry in history[start + 1 :] if isinstance(entry, Exchange) and _was_run(entry))
    return _Reading(TEXTS[language], plan(question, language), done)


def _questions(history: History) -> Iterator[tuple[int, str]]:
    for at, entry in enumerate(history):
        if isinstance(entry, UserText) and not GO_ON.fullmatch(asked := without_ledger(entry.text)):
            yield at, asked


def _was_run(exchange: Exchange) -> bool:
    return bool(exchange.results) and all(result.outcome != "not_executed" for result in exchange.results)


def _asking(request: ModelRequest, reading: _Reading, steps: list[Step]) -> Turn:
    before = _number_before(reading)
    number = len(reading.done) + 1
    calls = tuple(
        Call(step.tool, json.dumps(_arguments(step, before), ensure_ascii=False), f"demo_{number}_{at}")
        for at, step in enumerate(steps)
    )
    return _turn(request, "" if reading.done else reading.texts.beside, calls)


def _arguments(step: Step, before: str) -> dict[str, str | float]:
    return {name: value.replace(RESULT, before) if isinstance(value, str) else value for name, value in step.arguments}


def _turn(request: ModelRequest, text: str, calls: tuple[Call, ...]) -> Turn:
    sent = len(request.system) + sum(len(str(entry)) for entry in request.history)
    written = len(text) + sum(len(call.arguments) for call in calls)
    usage = TurnUsage(1 + sent // _LETTERS_PER_TOKEN, 1 + written // _LETTERS_PER_TOKEN)
    return Turn(text=text, calls=calls, usage=usage, note="demo")


def _answer(reading: _Reading, declared: set[str], *, closing: bool) -> str:
    texts = reading.texts
    if not reading.plan:
        return texts.lost
    facts = list(_facts(reading, declared))
    if closing:
        open_steps = "; ".join(_shortened([step.about for group in reading.left for step in group]))
        told = texts.found.format(facts="; ".join(_shortened(facts)) or texts.nothing_found)
        return told + (texts.undone.format(open=open_steps) if open_steps else "") + texts.go_on
    sentence = "; ".join(_shortened(facts))
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _shortened(lines: list[str]) -> list[str]:
    """Keep both ends of a long list."""
    few = 6
    return lines if len(lines) <= few else [*lines[:2], "…", *lines[-2:]]


def _facts(reading: _Reading, declared: set[str]) -> Iterator[str]:
    for group, exchange in zip(reading.plan, reading.done, strict=False):
        asked = [step for step in group if step.tool in declared]
        yield from (_fact(reading.texts, step, result) for step, result in zip(asked, exchange.results, strict=False))
    for step in (step for group in reading.left for step in group if step.tool not in declared):
        yield reading.texts.missing_tool.format(about=step.about, tool=step.tool)


def _fact(texts: Texts, step: Step, result: Result) -> str:
    if result.is_error:
        return texts.failed.format(about=step.about, value=_error_in(result))
    value = _LONG_NUMBER.sub(r"\1…", _value_in(step, result))
    if step.field == _MILLIONS:
        value = texts.millions.format(number=value)
    return texts.facts.get(step.tool, "{about}: {value}").format(about=step.about, value=value)


def _value_in(step: Step, result: Result) -> str:
    """Return what was asked for: a field, the local time, or the whole text."""
    found = _object_in(result)
    if step.field in found:
        value = found[step.field]
        return f"{value:g}" if isinstance(value, float) else str(value)
    if "time" in found:
        return str(found["time"])[:16].replace("T", " ")
    return result.text


def _error_in(result: Result) -> str:
    error = _object_in(result).get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else result.text


def _number_before(reading: _Reading) -> str:
    """Return the number that the last call of the round before brought, as a calculator reads it."""
    if not reading.done:
        return "0"
    step, result = reading.plan[len(reading.done) - 1][-1], reading.done[-1].results[-1]
    found = re.search(r"-?\d+(?:\.\d+)?", _value_in(step, result))
    number = found[0] if found and not result.is_error else "0"
    return f"{number} * 1000000" if step.field == _MILLIONS else number


def _object_in(result: Result) -> dict[str, object]:
    try:
        found = json.loads(result.text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
