"""The answer that needs no model: what was done, what was found, what is undone, from the record alone."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from roundelay_worker.loop.history import Call, Effect, Exchange, Outcome, Result
from roundelay_worker.loop.plain import asked, named, said
from roundelay_worker.loop.state import State, ToolWords
from roundelay_worker.loop.texts import Phrases, phrases

_MOST_FACTS: Final = 3
"""Facts that are told; the rest is a number. Writes that were done are always told."""
_MOST_LINES: Final = 12
"""Lines of any other kind; the rest is a number."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One call of a message, in a person's words."""

    call: Call
    result: Result
    words: ToolWords

    @property
    def outcome(self) -> Outcome:
        """What became of it."""
        return self.result.outcome

    @property
    def effect(self) -> Effect:
        """Whether it could change something."""
        return self.words.effect

    @property
    def line(self) -> str:
        """Its title, with what is to be said of it; an error's text is for the model."""
        detail = "" if self.words.private is True or self.result.is_error else self._detail()
        return f"{self.words.title}: {detail}" if detail else self.words.title

    def _detail(self) -> str:
        if self.result.said:
            return self.result.said
        if self.effect == "write" or self.outcome != "done" or self.words.private:
            return asked(self.call.arguments, self.words.hidden)
        return said(self.result.text)


def deeds(state: State) -> tuple[Deed, ...]:
    """Return the calls of a message in order."""
    known = {tool.name: tool for tool in state.tools}
    return tuple(deeds_of(state.sequence, known))


def deeds_of(sequence: Iterable[Exchange], known: dict[str, ToolWords]) -> Iterator[Deed]:
    """Yield the calls of these exchanges, with the words of their tools where they are known."""
    for exchange in sequence:
        for call, result in zip(exchange.turn.calls, exchange.results, strict=True):
            yield Deed(call, result, known.get(call.name) or ToolWords(call.name[:64], named(call.name[:64])))


def summary(state: State, headline: str, farewell: str = "") -> str:
    """Return a plain text for a person.

    ``headline`` is a sentence, or the key of one of the fixed texts; ``farewell`` is such a key, '' for none.
    """
    words = phrases(state.language)
    blocks = [words.get(headline, headline), *_blocks(deeds(state), words)]
    return "\n\n".join([*blocks, words[farewell]] if farewell else blocks)


def _blocks(done: tuple[Deed, ...], words: Phrases) -> Iterator[str]:
    ran = [deed for deed in done if deed.outcome == "done" and not deed.result.is_error]
    written = [deed for deed in ran if deed.effect == "write"]
    found = [deed for deed in ran if deed.effect == "read"]
    failed = [deed for deed in done if deed.outcome == "done" and deed.result.is_error]
    yield from _block(words["done"], _counted([deed.line for deed in written]))
    yield from _block(words["found"], _facts(found, words))
    yield from _block(words["uncertain"], _counted([deed.line for deed in done if deed.outcome == "unknown"]))
    yield from _block(words["failed_steps"], _some([deed.words.title for deed in failed], words))
    yield from _block(words["undone"], _some([deed.line for deed in done if deed.outcome == "not_executed"], words))
    if not ran and not any(deed.outcome == "unknown" for deed in done):
        yield words["nothing"]


def _block(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield "\n".join([title, *(f"- {line}" for line in lines)])


def _counted(lines: list[str]) -> list[str]:
    """Return each line once, with how often it came."""
    return [line if times == 1 else f"{line} (\u00d7{times})" for line, times in Counter(lines).items()]


def _some(lines: list[str], words: Phrases) -> list[str]:
    told = _counted(lines)
    rest = len(told) - _MOST_LINES
    return [*told[:_MOST_LINES], words["more"].format(count=rest)] if rest > 0 else told


def _facts(found: list[Deed], words: Phrases) -> list[str]:
    """Return the newest facts, and how often was looked; what says nothing by itself is only counted."""
    lines = list(dict.fromkeys(deed.line for deed in reversed(found) if deed.line != deed.words.title))
    told = list(reversed(lines[:_MOST_FACTS]))
    rest = len(found) - sum(deed.line in told for deed in found)
    return [*told, words["more_found"].format(count=rest)] if rest else told
