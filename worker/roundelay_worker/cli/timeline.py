"""The timeline of a message, from its numbered updates: what ran when, and for how long."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from roundelay import Update


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time; ``end`` is None while it runs. Times are seconds since the message was accepted."""

    kind: str
    name: str
    start: float
    end: float | None = None
    note: str = ""


@dataclass(slots=True)
class _Round:
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
    started = next((update.at for update in ordered if update.kind == "started"), None)
    waiting = Span("wait", "waiting", 0.0, _since(started, origin))
    return [waiting, *(span for round_ in _rounds(ordered) for span in _spans_of(round_, origin))]


def _rounds(updates: list[Update]) -> list[_Round]:
    rounds: dict[int, _Round] = {}
    for update in updates:
        if update.round is not None:
            _note(rounds.setdefault(update.round, _Round(update.round)), update)
    in_order = sorted(rounds.values(), key=lambda round_: round_.number)
    for round_, following in pairwise(in_order):
        # A turn that nothing followed from, as the one at the cap, ends where the next is asked for.
        round_.replied_at = round_.replied_at or following.asked_at
    if updates[-1].kind == "ended" and in_order:
        in_order[-1].replied_at = in_order[-1].replied_at or updates[-1].at
    return in_order


def _note(round_: _Round, update: Update) -> None:
    match update.kind:
        case "round_started":
            round_.asked_at = round_.asked_at or update.at
            round_.closes = update.code or ""
        case "retrying":
            round_.attempts.append(update.code or "failed")
        case "tool_started":
            round_.replied_at = min(round_.replied_at or update.at, update.at)
            round_.calls[update.call or 0] = (update.tool or "a tool", update.at, None, None)
        case "tool_finished":
            _finish(round_, update)
        case "round_ended":
            round_.replied_at = round_.replied_at or update.at
            usage = update.usage
            round_.tokens = f"{usage.input_tokens} + {usage.output_tokens} tokens so far" if usage else ""


def _finish(round_: _Round, update: Update) -> None:
    """A quick call is told of after it ended, both at once: its seconds say when it began."""
    began = update.at - timedelta(seconds=update.seconds or 0)
    known = round_.calls.get(update.call or 0)
    start = min(began, known[1]) if known else began
    round_.calls[update.call or 0] = (update.tool or "a tool", start, update.at, update.ok)
    round_.replied_at = min(round_.replied_at or start, start)


def _spans_of(round_: _Round, origin: datetime) -> Iterator[Span]:
    if round_.asked_at is not None:
        said = (round_.closes.replace("_", " "), *(f"again after {code}" for code in round_.attempts), round_.tokens)
        note = ", ".join(filter(None, said))
        start = _since(round_.asked_at, origin) or 0.0
        name = "closing turn" if round_.closes else f"turn {round_.number}"
        yield Span("turn", name, start, _since(round_.replied_at, origin), note)
    for _, (name, began, ended, is_ok) in sorted(round_.calls.items()):
        note = "failed" if is_ok is False else ""
        yield Span("call", f"  {name}", _since(began, origin) or 0.0, _since(ended, origin), note)


def _since(moment: datetime | None, origin: datetime) -> float | None:
    return None if moment is None else round(max(0.0, (moment - origin).total_seconds()), 3)
