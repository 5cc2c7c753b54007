"""The ledger of a job: what the messages that a new one continues have done and found, for the model.

It goes with the user's text, so it survives whatever is trimmed of the history, and any change of model: a write that
is in it will not be done again for want of memory.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from roundelay_worker.loop.history import Call, Effect, Exchange, Result

_MOST_FACTS: Final = 20
_MOST_CHARACTERS: Final = 300
"""Characters of the arguments of one call, and of what it brought."""

_BEGIN: Final = "[Record of this job so far, kept by the system; the user did not write it.]"
_END: Final = "[End of the record. Do nothing again that it says was done. The user's message:]"
_HEADINGS: Final[dict[str, str]] = {
    "done": "Writes done:",
    "unknown": "Writes of unknown outcome (check before you repeat them):",
    "not_executed": "Not done:",
    "found": "Found:",
}

Recorded = tuple[Exchange, tuple[Effect, ...]]
"""An exchange of an earlier message, and the effects of its calls."""


def with_ledger(text: str, recorded: Sequence[Recorded]) -> str:
    """Return a user's text with the ledger before it; as it is where nothing was called before."""
    lines = list(_lines(recorded))
    return "\n".join([_BEGIN, *lines, _END, "", text]) if lines else text


def without_ledger(text: str) -> str:
    """Return what the user wrote."""
    return text.partition(f"{_END}\n\n")[2] if text.startswith(_BEGIN) else text


def _lines(recorded: Sequence[Recorded]) -> Iterator[str]:
    told: dict[str, list[str]] = {kind: [] for kind in _HEADINGS}
    for exchange, effects in recorded:
        for call, result, effect in zip(exchange.turn.calls, exchange.results, effects, strict=True):
            if kind := _kind(result, effect):
                told[kind].append(_line(call, result, kind))
    undone = [line for line in told["not_executed"] if line not in told["done"]]
    told |= {"found": told["found"][-_MOST_FACTS:], "not_executed": undone}
    for kind, lines in told.items():
        if lines:
            yield _HEADINGS[kind]
            yield from (f"- {line}" for line in dict.fromkeys(lines))


def _kind(result: Result, effect: Effect) -> str:
    if result.outcome != "done":
        return result.outcome
    if result.is_error:
        return ""
    return "done" if effect == "write" else "found"


def _line(call: Call, result: Result, kind: str) -> str:
    asked = f"{call.name} {_short(call.arguments)}"
    return f"{asked} -> {_short(result.text)}" if kind in ("done", "found") else asked


def _short(text: str) -> str:
    flat = " ".join(text[: 8 * _MOST_CHARACTERS].split())
    return flat if len(flat) <= _MOST_CHARACTERS else f"{flat[: _MOST_CHARACTERS - 1]}\u2026"
