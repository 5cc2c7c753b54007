"""What the model is sent, computed from the state alone: the same state gives the same bytes.

A message asks again and again with a history that only grows, so what was shown once is kept with the setup
and shown as the same objects: a request costs what is new in it, and whoever writes it can reuse what was
written for an exchange before.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal

from roundelay_worker.engine.session import Setup
from roundelay_worker.loop.effects import AskModel
from roundelay_worker.loop.history import AssistantText, Entry, Exchange, History, Result, UserText
from roundelay_worker.loop.state import State
from roundelay_worker.loop.texts import NUDGES, closing_instruction
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.tools.run.sharing import share_bytes

SHRUNK: Final = "[This result was removed to make room: {count} characters.]"
_KEPT_WHOLE: Final = 200
"""Characters; a shorter result is not worth removing."""
_SHRUNK_SHARE: Final = 8
"""After an overflow, the newest results share this fraction of ``tool_result_bytes``."""
_LONGEST_ESCAPE: Final = 6
"""Bytes that JSON may take for one byte of text: a control character becomes six."""
_AROUND: Final = 128
"""Bytes of JSON around a text, a call or a result; more than any format takes."""


def model_request(state: State, setup: Setup, wanted: AskModel, cache_key: str) -> ModelRequest:
    """Return the request for a turn; raise ModelFailure if its newest part alone is too big to be sent.

    ``cache_key`` may be anything that is the same for a conversation; the provider sees only its hash.
    """
    options = setup.submission.model_options
    repairs = frozenset(state.repairs)
    return ModelRequest(
        system=_system(setup, wanted),
        history=_fitting(_history(state, setup, "shrink" in repairs), setup.most_request_bytes),
        tools=setup.tools,
        tool_choice=_choice(setup, wanted),
        max_output_tokens=wanted.max_output_tokens,
        temperature=options.temperature,
        reasoning_effort=options.reasoning_effort,
        repairs=repairs,
        nudge=NUDGES.get(wanted.nudge, ""),
        extra=options.extra or {},
        cache_key=hashlib.sha256(cache_key.encode()).hexdigest()[:32],
    )


def estimated_tokens(request: ModelRequest) -> int:
    """Return about how many input tokens a request takes: a quarter of its bytes, tools and reasoning included."""
    history = sum(map(_length, _texts(request.history))) + _AROUND * len(request.history) // 2
    return (_length(request.system) + _declared(request.tools) + history) // 4 + 1


@lru_cache(maxsize=64)
def _declared(tools: tuple[ToolSpec, ...]) -> int:
    return sum(len(tool.description) + len(json.dumps(tool.schema)) for tool in tools)


def _system(setup: Setup, wanted: AskModel) -> str:
    """Return the system prompt, which a closing request extends: its beginning stays as it was, for the cache."""
    if wanted.closing is None:
        return setup.system
    instruction = closing_instruction(wanted.closing)
    return f"{setup.system}\n\n{instruction}" if setup.system.strip() else instruction


def _choice(setup: Setup, wanted: AskModel) -> Literal["auto", "none"] | None:
    if not setup.tools:
        return None
    return "none" if wanted.closing is not None else "auto"


def _history(state: State, setup: Setup, shrink: bool) -> History:
    earlier = [_shown(entry, setup, shrink, newest=False) for entry in setup.context]
    last = len(state.sequence) - 1
    active = [_shown(entry, setup, shrink, newest=i == last) for i, entry in enumerate(state.sequence)]
    return (*earlier, UserText(setup.asked or setup.submission.text), *active)


def _shown(entry: Entry, setup: Setup, shrink: bool, *, newest: bool) -> Entry:
    """Return an entry as the model is shown it: the same object every time."""
    if not isinstance(entry, Exchange) or not entry.results:
        return entry
    key = (id(entry), shrink, shrink and newest)
    known = setup.shown.get(key)
    if known is not None and known[0] is entry:
        return known[1]
    shown = _written(entry, setup.tool_result_bytes, shrink, newest=newest)
    setup.shown[key] = (entry, shown)
    return shown


def _written(exchange: Exchange, limit: int, shrink: bool, *, newest: bool) -> Exchange:
    results = share_bytes(exchange.results, limit // _SHRUNK_SHARE if shrink and newest else limit)
    if shrink and not newest:
        results = tuple(map(_removed, results))
    if exchange.note:
        results = (*results[:-1], _noted(results[-1], exchange.note))
    return exchange if results == exchange.results else replace(exchange, results=results, note="")


def _removed(result: Result) -> Result:
    if result.is_error or len(result.text) <= _KEPT_WHOLE:
        return result
    return replace(result, text=SHRUNK.format(count=len(result.text)))


def _noted(result: Result, note: str) -> Result:
    error = _object(result.text) if result.is_error else None
    if error is None:
        return replace(result, text=f"{result.text}\n\n{note}")
    return replace(result, text=json.dumps({**error, "note": note}, ensure_ascii=False))


def _object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _fitting(history: History, most: int) -> History:
    """Drop the oldest whole exchanges until the history fits; what belongs to the newest message stays whole.

    Only if that is not enough, the oldest rounds of the newest message go as well.
    """
    if _LONGEST_ESCAPE * sum(map(_length, _texts(history))) + _AROUND * sum(map(_parts, history)) <= most:
        return history
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
    return (active[0], *active[kept:]) if kept < len(active) else None


def _size(entry: Entry) -> int:
    """Return how many bytes an entry takes in a request, or a little more."""
    return sum(map(_escaped, _texts((entry,)))) + _AROUND * _parts(entry)


def _parts(entry: Entry) -> int:
    return 1 + 2 * len(entry.turn.calls) if isinstance(entry, Exchange) else 1


def _texts(history: Iterable[Entry]) -> Iterator[str]:
    """Yield whatever is sent of a history: a turn in the provider's own blocks or in neutral words."""
    for entry in history:
        match entry:
            case UserText() | AssistantText():
                yield entry.text
            case Exchange():
                turn = entry.turn
                if turn.native:
                    yield turn.native.blocks
                else:
                    yield turn.text
                    for call in turn.calls:
                        yield from (call.name, call.arguments)
                yield from (result.text for result in entry.results)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _escaped(text: str) -> int:
    return _length(json.dumps(text, ensure_ascii=False))
