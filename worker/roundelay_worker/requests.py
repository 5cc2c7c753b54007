"""What the model is sent, computed from the state alone: the same state gives the same bytes."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

from roundelay_worker.loop.effects import AskModel
from roundelay_worker.loop.history import AssistantText, Entry, Exchange, History, Result, UserText
from roundelay_worker.loop.state import State
from roundelay_worker.loop.texts import NUDGES, closing_instruction
from roundelay_worker.providers.base import ModelFailure, ModelRequest
from roundelay_worker.session import Setup
from roundelay_worker.tools.sharing import share_bytes

SHRUNK: Final = "[This result was removed to make room: {count} characters.]"
_KEPT_WHOLE = 200
"""Characters; a shorter result is not worth removing."""
_SHRUNK_SHARE = 8
"""After an overflow, the newest results share this fraction of ``tool_result_bytes``."""


def model_request(state: State, setup: Setup, wanted: AskModel, cache_key: str) -> ModelRequest:
    """Return the request for a turn; raise ModelFailure if its newest part alone is too big to be sent."""
    options = setup.submission.model_options
    repairs = frozenset(state.repairs)
    system = setup.system
    if wanted.closing is not None:
        system = f"{system}\n\n{closing_instruction(wanted.closing)}".strip()
    return ModelRequest(
        system=system,
        history=_fitting(_history(state, setup, "shrink" in repairs), setup.most_request_bytes),
        tools=setup.tools,
        tool_choice=_choice(setup, wanted),
        max_output_tokens=wanted.max_output_tokens,
        temperature=options.temperature,
        reasoning_effort=options.reasoning_effort,
        repairs=repairs,
        nudge=NUDGES.get(wanted.nudge, ""),
        cache_key=cache_key,
    )


def estimated_tokens(request: ModelRequest) -> int:
    """Return about how many input tokens a request takes: a quarter of its bytes, tools and reasoning included."""
    tools = sum(len(tool.description) + len(json.dumps(tool.schema)) for tool in request.tools)
    return (len(request.system) + tools + sum(map(_size, request.history))) // 4 + 1


def _choice(setup: Setup, wanted: AskModel) -> Literal["auto", "none"] | None:
    if not setup.tools:
        return None
    return "none" if wanted.closing is not None else "auto"


def _history(state: State, setup: Setup, shrink: bool) -> History:
    limit = setup.tool_result_bytes
    earlier = [_shown(entry, limit, shrink) for entry in setup.context]
    last = len(state.sequence) - 1
    active: list[Entry] = []
    for position, exchange in enumerate(state.sequence):
        newest = position == last
        share = limit // _SHRUNK_SHARE if shrink and newest else limit
        active.append(_shown(exchange, share, shrink and not newest))
    return (*earlier, UserText(setup.submission.text), *active)


def _shown(entry: Entry, limit: int, shrink: bool) -> Entry:
    if not isinstance(entry, Exchange) or not entry.results:
        return entry
    results = share_bytes(entry.results, limit)
    if shrink:
        results = tuple(map(_removed, results))
    if entry.note:
        results = (*results[:-1], _noted(results[-1], entry.note))
    return entry if results == entry.results else replace(entry, results=results, note="")


def _removed(result: Result) -> Result:
    if result.is_error or len(result.text) <= _KEPT_WHOLE:
        return result
    return replace(result, text=SHRUNK.format(count=len(result.text)))


def _noted(result: Result, note: str) -> Result:
    if not result.is_error:
        return replace(result, text=f"{result.text}\n\n{note}")
    return replace(result, text=json.dumps(json.loads(result.text) | {"note": note}, ensure_ascii=False))


def _fitting(history: History, most: int) -> History:
    """Drop the oldest whole exchanges until the history fits; what belongs to the newest message stays whole."""
    sizes = [_size(entry) for entry in history]
    excess = sum(sizes) - most
    if excess <= 0:
        return history
    newest = max(i for i, entry in enumerate(history) if isinstance(entry, UserText))
    first = next(_cuts(history, sizes, excess, newest), None)
    if first is not None:
        return history[first:]
    active = _dropping_rounds(history[newest:], sizes[newest:], most)
    if active is None:
        raise ModelFailure("request_too_large", "The message and its newest results are larger than a request may be.")
    return active


def _cuts(history: History, sizes: list[int], excess: int, newest: int) -> Iterator[int]:
    dropped = 0
    for position in range(newest + 1):
        if dropped >= excess and isinstance(history[position], UserText):
            yield position
        dropped += sizes[position]


def _dropping_rounds(active: History, sizes: list[int], most: int) -> History | None:
    room = most - sizes[0]
    kept = len(active)
    while kept > 1 and sizes[kept - 1] <= room:
        kept -= 1
        room -= sizes[kept]
    enough = room >= 0 and (kept < len(active) or len(active) == 1)
    return (active[0], *active[kept:]) if enough else None


def _size(entry: Entry) -> int:
    match entry:
        case UserText() | AssistantText():
            return len(entry.text.encode()) + 64
        case Exchange():
            turn = entry.turn
            own = len(turn.native.blocks) if turn.native else len(turn.text) + sum(len(c.arguments) for c in turn.calls)
            return own + sum(len(result.text) for result in entry.results) + 128 * (1 + len(turn.calls))
