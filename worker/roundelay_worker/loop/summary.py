"""The answer that needs no model: what was done, what was found, what is undone, from the record alone."""

import json
from collections.abc import Iterable, Iterator

from roundelay_worker.loop.history import Call, Exchange, Result
from roundelay_worker.loop.state import State
from roundelay_worker.loop.texts import Phrases, phrases

_MOST_LINES = 12
_MOST_CHARACTERS = 240
_MOST_READ = 10_000


def calls_with(outcome: str, sequence: Iterable[Exchange]) -> Iterator[Call]:
    """Yield the calls whose result says ``outcome``, in order."""
    for call, result in _pairs(sequence):
        if result.outcome == outcome:
            yield call


def summary(state: State, headline: str, farewell: str) -> str:
    """Return a plain text for a person; ``headline`` and ``farewell`` are keys of the fixed texts."""
    words = phrases(state.language)
    blocks = [words[headline], *_blocks(state.sequence, words), words[farewell]]
    return "\n\n".join(blocks)


def _blocks(sequence: tuple[Exchange, ...], words: Phrases) -> Iterator[str]:
    done = [f"{_named(call)}: {_found(result)}" for call, result in _pairs(sequence) if result.outcome == "done"]
    undone = [_named(call) for call in calls_with("not_executed", sequence)]
    uncertain = [_named(call) for call in calls_with("unknown", sequence)]
    for title, lines in (("done", done), ("undone", undone), ("uncertain", uncertain)):
        if lines:
            yield "\n".join([words[title], *_bullets(lines, words)])
    if not done and not uncertain:
        yield words["nothing"]


def _bullets(lines: list[str], words: Phrases) -> Iterator[str]:
    yield from (f"- {line}" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield words["more"].format(count=len(lines) - _MOST_LINES)


def _pairs(sequence: Iterable[Exchange]) -> Iterator[tuple[Call, Result]]:
    for exchange in sequence:
        yield from zip(exchange.turn.calls, exchange.results, strict=True)


def _named(call: Call) -> str:
    name = _short(call.name)
    return name if call.arguments == "{}" else f"{name} {_short(call.arguments)}"


def _found(result: Result) -> str:
    return _short(_message(result.text) if result.is_error else result.text)


def _message(error: str) -> str:
    """Return what an error result says, without the JSON around it."""
    try:
        return str(json.loads(error)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return error


def _short(text: str) -> str:
    flat = " ".join(text[:_MOST_READ].split())
    return flat if len(flat) <= _MOST_CHARACTERS else flat[: _MOST_CHARACTERS - 1] + "…"
