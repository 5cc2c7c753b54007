"""How a state is written into rows and read back: ``decoded(head, turns, calls) == state``.

A state is stored in parts that change at different times: its head (JSON of everything but turns and results),
one row for each turn, one row for each call. So a save writes what is new and nothing else.

JSON is written by orjson, and by the slower standard library where orjson refuses what a model or a tool may
well say (half of a surrogate pair). A provider's own blocks are stored as the text they are.
"""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from math import inf, isinf
from typing import Any, Final, TypeVar, assert_never, cast

import orjson

from roundelay_worker.loop.history import Call, Exchange, Native, Result, Turn, TurnUsage
from roundelay_worker.loop.state import (
    Asking,
    CallPlan,
    CallState,
    Ended,
    Failure,
    Limits,
    Queued,
    Running,
    Spent,
    Stage,
    State,
    ToolWords,
)

NOT_EXECUTED: Final = Result("Not executed: the message had ended.", outcome="not_executed")
"""What stands for a call that had not begun when its message was ended from outside."""

UNKNOWN: Final = Result("Outcome unknown: the message ended while this ran.", is_error=True, outcome="unknown")
"""What stands for a call that had begun when its message was ended from outside."""

_MARK: Final = "\x01"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as stored; ``native`` is None without blocks, and after the end."""

    round: int
    body: str
    origin: str | None
    native: str | None
    note: str


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call as stored; the plan is None where the turn was saved together with its results."""

    round: int
    position: int
    plan: CallPlan | None
    status: str
    result: str | None


def dumps(value: Any) -> str:
    """Return ``value`` (dataclasses included) as JSON."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, default=asdict, separators=(",", ":"))


def loads(text: str) -> Any:
    """Return the value of JSON that ``dumps`` wrote."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def packed(text: str) -> str:
    """Return ``text`` as it is, or, if a database would refuse it, escaped behind a mark."""
    if "\0" in text or text.startswith(_MARK) or not _encodable(text):
        return _MARK + json.dumps(text)
    return text


def unpacked(text: str) -> str:
    """Return what was packed."""
    return str(json.loads(text[1:])) if text.startswith(_MARK) else text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encoded_head(state: State) -> str:
    """Return the JSON of everything in ``state`` but turns and results."""
    head: dict[str, Any] = {name: getattr(state, name) for name in _names(State) if name not in {"stage", "sequence"}}
    for name in ("soft_deadline", "deadline"):
        head[name] = None if isinf(head[name]) else head[name]
    return dumps(head | {"stage": _stage_head(state.stage), "length": len(state.sequence)})


def _stage_head(stage: Stage) -> dict[str, Any]:
    match stage:
        case Queued():
            return {"is": "queued"}
        case Asking():
            return {"is": "asking"} | {name: getattr(stage, name) for name in _names(Asking)}
        case Running():
            return {"is": "running"}
        case Ended():
            return {"is": "ended"} | {name: getattr(stage, name) for name in _names(Ended)}
    assert_never(stage)


def encoded_turn(round_: int, turn: Turn, note: str = "") -> TurnRow:
    """Return the row of ``turn``."""
    body = {"text": turn.text, "calls": turn.calls, "finish": turn.finish, "usage": turn.usage, "note": turn.note}
    native = turn.native
    return TurnRow(
        round_,
        dumps(body),
        packed(native.origin) if native else None,
        packed(native.blocks) if native else None,
        packed(note),
    )


def encoded_calls(round_: int, states: Iterable[CallState]) -> list[CallRow]:
    """Return the rows of the calls of a running turn."""
    return [
        CallRow(round_, position, each.plan, each.status, encoded_result(each.result))
        for position, each in enumerate(states)
    ]


def encoded_results(round_: int, results: Iterable[Result]) -> list[CallRow]:
    """Return the rows of the calls of a turn that is over."""
    return [CallRow(round_, position, None, "done", encoded_result(result)) for position, result in enumerate(results)]


def encoded_result(result: Result | None) -> str | None:
    """Return the JSON of ``result``."""
    return None if result is None else dumps(result)


def decoded(
    head_text: str, turns: Sequence[TurnRow], calls: Sequence[CallRow], known: tuple[Exchange, ...] = ()
) -> State:
    """Return the state of these rows, which are in order and come after the exchanges that are known."""
    head = loads(head_text)
    length = head["length"]
    new = length - len(known)
    by_round: dict[int, list[CallRow]] = {}
    for call in calls:
        by_round.setdefault(call.round, []).append(call)
    sequence = (*known, *(decoded_exchange(turn, by_round.get(turn.round, ())) for turn in turns[:new]))
    if head["stage"]["is"] == "running":
        stage: Stage = Running(decoded_turn(turns[new]), tuple(map(_call_state, by_round.get(length + 1, ()))))
    else:
        stage = _decoded_stage(head["stage"])
    for name in ("soft_deadline", "deadline"):
        head[name] = inf if head[name] is None else head[name]
    nested = {
        "limits": _built(Limits, head["limits"]),
        "spent": _built(Spent, head["spent"]),
        "models": tuple(head.get("models", ())),
        "tools": tuple(_tool_words(tool) for tool in head.get("tools", ())),
    }
    return _built(State, head | nested | {"repairs": tuple(head["repairs"]), "stage": stage, "sequence": sequence})


def _tool_words(words: dict[str, Any]) -> ToolWords:
    private = words["private"]
    return _built(ToolWords, words | {"private": private if isinstance(private, bool) else tuple(private)})


def _decoded_stage(stage: dict[str, Any]) -> Stage:
    match stage["is"]:
        case "queued":
            return Queued()
        case "asking":
            return _built(Asking, stage)
        case "ended":
            failure = stage["failure"]
            return _built(Ended, stage | {"failure": failure and _built(Failure, failure)})
        case unknown:
            raise ValueError(f"a stored state has the unknown stage {unknown!r}")


def decoded_turn(row: TurnRow) -> Turn:
    """Return the turn of ``row``."""
    body = loads(row.body)
    calls = tuple(_built(Call, call) for call in body["calls"])
    usage = body["usage"] and _built(TurnUsage, body["usage"])
    native = None
    if row.native is not None and row.origin is not None:
        native = Native(unpacked(row.origin), unpacked(row.native))
    return _built(Turn, body | {"calls": calls, "usage": usage, "native": native})


def decoded_exchange(row: TurnRow, calls: Iterable[CallRow]) -> Exchange:
    """Return the exchange of a turn that is over and its calls, in order."""
    return Exchange(decoded_turn(row), tuple(_closed_result(call) for call in calls), unpacked(row.note))


def decoded_result(text: str) -> Result:
    """Return the result of its JSON."""
    return _built(Result, loads(text))


def _closed_result(row: CallRow) -> Result:
    if row.result is not None:
        return decoded_result(row.result)
    return NOT_EXECUTED if row.status == "requested" else UNKNOWN


def _call_state(row: CallRow) -> CallState:
    result = None if row.result is None else decoded_result(row.result)
    return CallState(row.plan or CallPlan(), row.status, result)  # type: ignore[arg-type]  # written from a CallState


def _built(cls: type[_T], values: Mapping[str, Any]) -> _T:
    """Return a ``cls`` of those values that it knows: what a newer version added and an older one can do without."""
    return cls(**{name: values[name] for name in _names(cast("Hashable", cls)) if name in values})


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))
