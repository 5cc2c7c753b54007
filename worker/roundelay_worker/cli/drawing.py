"""A message's timeline as lines of text."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from roundelay import Answer, Update
from roundelay_worker.cli.timeline import Span, spans

_BAR: Final = 30
_NAME: Final = 24


def lines(updates: list[Update], answer: Answer | None) -> Iterator[str]:
    """Yield the lines of a message's timeline."""
    if updates:
        running_for = (datetime.now(UTC) - updates[0].at).total_seconds()
        yield from drawn(spans(updates), None if answer else running_for)
    if answer is None:
        yield "not ended yet"
        return
    yield summary(answer)
    yield from (f"not executed: {call.name}" for call in answer.undone)
    yield from (f"unknown outcome: {call.name}" for call in answer.uncertain)
    if answer.error:
        yield f"{answer.error.code}: {answer.error.message}"
    yield answer.text


def summary(answer: Answer) -> str:
    """Return one line that says how a message ended and what it took."""
    usage = answer.usage
    requests = f"{answer.rounds} rounds, {usage.model_calls} model calls, {usage.tool_calls} tool calls"
    tokens = f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
    return f"{answer.status.replace('_', ' ')}: {requests}, {tokens}"


def drawn(found: list[Span], now: float | None = None) -> Iterator[str]:
    """Yield a line for each span, with a bar on one common scale."""
    whole = max((span.end or now or span.start for span in found), default=0.0) or 1.0
    for span in found:
        end = whole if span.end is None else span.end
        seconds = f"{end - span.start:8.3f} s" if span.end is not None else "   running"
        bar = _bar(span.start / whole, end / whole)
        yield f"{span.name:<{_NAME}.{_NAME}} {seconds:>10} |{bar}| {span.note}".rstrip()


def _bar(start: float, end: float) -> str:
    left = min(_BAR - 1, int(start * _BAR))
    length = max(1, round((end - start) * _BAR))
    return f"{' ' * left}{'#' * length}"[:_BAR].ljust(_BAR)
