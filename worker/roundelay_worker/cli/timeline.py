"""The timeline of a message, from its numbered updates: what ran when, and for how long."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from roundelay.updates import Ended, Retrying, Started, ToolFinished, ToolStarted, TurnEnded, TurnStarted, Update


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time; ``end`` is None while it runs. Times are seconds since the message was accepted."""

    kind: str
    name: str
    start: float
    end: float | None = None
    note: str = ""


@dataclass(slots=True)
class _Turn:
    number: int
    asked_at: datetime | None = None
    replied_at: datetime | None = None
    attempts: list[str] = field(default_factory=list)
    calls: dict[int, tuple[str, datetime, datetime | None, bool | None]] = field(default_factory=dict)
    tokens: str = ""
    closes: str = ""
    """The soft stop that this turn closes; '' for an ordinary one."""


def spans(updates: Iterable[Update]) -> list[Span]:
    """Return the spans of a message in order: waiting, turns, their calls."""
    ordered = sorted((update for update in updates if update.seq is not None), key=lambda update: update.seq or 0)
    if not ordered:
        return []
    origin = ordered[0].at
    started = next((update.at for update in ordered if isinstance(update, Started)), None)
    waiting = Span("wait", "waiting", 0.0, _since(started, origin))
    return [waiting, *(span for turn in _turns(ordered) for span in _spans_of(turn, origin))]


def _turns(updates: list[Update]) -> list[_Turn]:
    turns: dict[int, _Turn] = {}
    for update in updates:
        if update.turn is not None:
            _note(turns.setdefault(update.turn, _Turn(update.turn)), update)
    in_order = sorted(turns.values(), key=lambda turn: turn.number)
    for turn, following in pairwise(in_order):
        # A turn of which no end is told, as one that was cut off, ends where the next is asked for.
        turn.replied_at = turn.replied_at or following.asked_at
    if isinstance(updates[-1], Ended) and in_order:
        in_order[-1].replied_at = in_order[-1].replied_at or updates[-1].at
    return in_order


def _note(turn: _Turn, update: Update) -> None:
    match update:
        case TurnStarted():
            turn.asked_at = turn.asked_at or update.at
            turn.closes = update.closing or ""
        case Retrying():
            turn.attempts.append(update.code)
        case ToolStarted():
            turn.replied_at = min(turn.replied_at or update.at, update.at)
            turn.calls[update.call] = (update.tool, update.at, None, None)
        case ToolFinished():
            _finish(turn, update)
        case TurnEnded():
            turn.replied_at = turn.replied_at or update.at
            turn.tokens = f"{update.usage.input_tokens} + {update.usage.output_tokens} tokens so far"
        case _:
            pass


def _finish(turn: _Turn, update: ToolFinished) -> None:
    """A quick call is told of after it ended, both at once: its seconds say when it began."""
    began = update.at - timedelta(seconds=update.seconds or 0)
    known = turn.calls.get(update.call)
    start = min(began, known[1]) if known else began
    turn.calls[update.call] = (update.tool, start, update.at, update.ok)
    turn.replied_at = min(turn.replied_at or start, start)


def _spans_of(turn: _Turn, origin: datetime) -> Iterator[Span]:
    if turn.asked_at is not None:
        said = (turn.closes.replace("_", " "), *(f"again after {code}" for code in turn.attempts), turn.tokens)
        note = ", ".join(filter(None, said))
        start = _since(turn.asked_at, origin) or 0.0
        name = "closing turn" if turn.closes else f"turn {turn.number}"
        yield Span("turn", name, start, _since(turn.replied_at, origin), note)
    for _, (name, began, ended, is_ok) in sorted(turn.calls.items()):
        note = "failed" if is_ok is False else ""
        yield Span("call", f"  {name}", _since(began, origin) or 0.0, _since(ended, origin), note)


def _since(moment: datetime | None, origin: datetime) -> float | None:
    return None if moment is None else round(max(0.0, (moment - origin).total_seconds()), 3)
