"""Reads a question with plain rules and plans the tool calls that answer it, one group of calls a round.

This is no language model: it finds sums, conversions, times and facts by patterns, in English, Portuguese and
Spanish, in the order they are asked for. What depends on an earlier result comes in a later round.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from roundelay_worker.providers.demo import words

RESULT: Final = "{}"
"""Stands in an argument for the number that the round before brought."""

MOST_COUNTED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Step:
    """One call: its tool, its arguments, and what it is about, in the user's words."""

    tool: str
    arguments: tuple[tuple[str, str | float], ...]
    about: str
    needs_result: bool = False
    field: str = ""
    """The part of a result that was asked for, where a result has several."""


Plan = tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class _Found:
    start: int
    end: int
    step: Step
    priority: int


def plan(question: str, language: str) -> Plan:
    """Return the rounds of calls that answer ``question``; empty if no rule fits."""
    question = words.NUMBER.sub(lambda number: _plain(number[0], decimal_comma=language != "en"), question)
    if counted := words.COUNT.search(question):
        return tuple(_count(min(int(counted["to"]), MOST_COUNTED)))
    return tuple(_rounds(_without_overlaps(_findings(question))))


def _count(to: int) -> Iterator[tuple[Step, ...]]:
    for number in range(1, to + 1):
        expression = f"{number - 1} + 1"
        yield (_calculation(expression, expression),)


def _findings(question: str) -> list[_Found]:
    rules: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]], ...] = (
        (
            words.FACT,
            lambda found: Step(
                "lookup", (("country", found["of"]),), found[0], field=words.KINDS[found["kind"].casefold()]
            ),
        ),
        (words.AMOUNT, lambda found: _conversion(found["value"], found["source"], found["target"])),
        (words.HOW_MANY, lambda found: _conversion(found["value"], found["source"], found["target"])),
        (words.SUM_OF, lambda found: _calculation(f"{found['a']} + {found['b']}", found[0])),
        (words.PERCENT, lambda found: _calculation(f"{found['b']} * {found['a']} / 100", found[0])),
        (words.EXPRESSION, lambda found: _calculation(_expression(found[0]), found[0].strip())),
        (words.DEPENDENT, _dependent),
    )
    findings = [
        _Found(found.start(), found.end(), make(found), priority)
        for priority, (pattern, make) in enumerate(rules)
        for found in pattern.finditer(question)
    ]
    return findings + list(_times(question, len(rules)))


def _times(question: str, priority: int) -> Iterator[_Found]:
    asked = words.TIME.search(question)
    for place in words.PLACE.finditer(question, asked.end() if asked else len(question)):
        zone = words.ZONES.get(place[0].casefold(), place[0])
        yield _Found(place.start(), place.end(), Step("current_time", (("zone", zone),), place[0]), priority)


def _without_overlaps(findings: list[_Found]) -> list[Step]:
    kept: list[_Found] = []
    for found in sorted(findings, key=lambda found: (found.priority, found.start)):
        if all(found.end <= other.start or found.start >= other.end for other in kept):
            kept.append(found)
    return [found.step for found in sorted(kept, key=lambda found: found.start)]


def _rounds(steps: list[Step]) -> Iterator[tuple[Step, ...]]:
    """Put neighbours with the same tool into one round; what needs a result begins another."""
    group: list[Step] = []
    for step in steps:
        if step.needs_result and not group:
            continue
        if group and (step.needs_result or step.tool != group[-1].tool):
            yield tuple(group)
            group = []
        group.append(step)
    if group:
        yield tuple(group)


def _calculation(expression: str, about: str) -> Step:
    return Step("calculator", (("expression", expression),), about)


def _conversion(value: str, source: str, target: str) -> Step:
    units = words.UNITS[source.casefold()], words.UNITS[target.casefold()]
    arguments = (("value", float(value)), ("from_unit", units[0]), ("to_unit", units[1]))
    return Step("convert_units", arguments, f"{value} {source}")


def _dependent(found: re.Match[str]) -> Step:
    sign = next(sign for stem, sign in words.VERBS.items() if found["verb"].casefold().startswith(stem))
    expression = f"{RESULT} {sign} {found['n']}"
    return Step("calculator", (("expression", expression),), found[0].strip(), needs_result=True)


def _expression(text: str) -> str:
    spelt = text.casefold()
    for word, sign in words.OPERATORS.items():
        spelt = re.sub(rf"\s{word}\s", f" {sign} ", spelt)
    return " ".join(spelt.split())


def _plain(text: str, *, decimal_comma: bool) -> str:
    """Return ``1,234.5``, or where a comma marks decimals ``1.234,5``, as a program writes it."""
    thousands, decimal = ".," if decimal_comma else ",."
    mixed = thousands in text and decimal in text
    if text.count(decimal) > 1 or (text.count(thousands) == 1 and not mixed and not re.search(r"\W\d{3}$", text)):
        thousands, decimal = decimal, thousands
    return text.replace(thousands, "").replace(decimal, ".")
