"""The arguments of a call, read as leniently as their meaning allows and kept in the model's own words.

Servers put more than one object under a call: an empty one before the arguments, the whole arguments once more, or
the arguments of the next call. So what came is read as a row of objects: empty ones say nothing, one that came
before says nothing new, and what is left are the arguments of as many calls.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import orjson

from roundelay_worker.loop.history import Call
from roundelay_worker.loop.surrogates import readable, readable_json

EMPTY: Final = "{}"
DEEPEST: Final = 100
"""Levels of arrays and objects; some writers of JSON stop at 254, and an answer holds arguments a few levels down."""

MOST_CALLS: Final = 32
"""Objects under one call that are taken for as many calls."""

_SEVERAL: Final = "The arguments are several JSON objects; call the tool once for each."
_HARMONY: Final = "<|"
_NAMESPACE: Final = "functions."
_SPACE: Final = re.compile(r"\s*")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=_refuse)


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands for arguments that were announced and never came."""


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class _Object:
    """One object: as it goes on, and what tells it from others."""

    text: str
    key: str

    @classmethod
    def of(cls, value: dict[str, Any], text: str) -> "_Object":
        return cls(text, json.dumps(value, sort_keys=True))


def read_call(name: str, arguments: object, wire_id: object = "") -> Call:
    """Return the call that a provider's name, arguments and id stand for; whatever is wrong becomes its ``fault``."""
    text, fault = read_arguments(arguments)
    return Call(name=name, arguments=text, wire_id=wire_id if isinstance(wire_id, str) else "", fault=fault)


def read_calls(name: str, arguments: Sequence[object], wire_id: object = "") -> list[Call]:
    """Return the calls that stand under one name and id, at least one; only the first has the id.

    ``arguments`` are what came for it, in order; each may be whole or a part of what is whole together.
    """
    first = read_call(name, None, wire_id)
    objects, fault = _told(arguments)
    if not objects:
        return [Call(name, EMPTY, first.wire_id, fault)]
    if len(objects) > MOST_CALLS:
        return [Call(name, EMPTY, first.wire_id, _SEVERAL)]
    return [Call(name, text, "" if place else first.wire_id) for place, text in enumerate(objects)]


def read_arguments(raw: object) -> tuple[str, str]:
    """Return the JSON text of an object and '', or ``{}`` and what is wrong (places and reasons, never the values).

    None and blank text are no arguments; an object is written as JSON; a JSON string that holds the JSON of an
    object is unpacked once. Text that is JSON of an object is kept as it stands.
    """
    objects, fault = _objects(raw)
    if len(objects) > 1:
        return EMPTY, _SEVERAL
    return (objects[0].text if objects else EMPTY), fault


def says_something(raw: object) -> bool:
    """Return whether these are whole arguments of any meaning: neither missing, nor empty, nor broken."""
    objects, fault = _objects(raw)
    return bool(objects) and not fault


def are_equal(raw: object, other: object) -> bool:
    """Return whether two arguments ask for the same."""
    return [one.key for one in _objects(raw)[0]] == [one.key for one in _objects(other)[0]]


def called_name(name: str, tool_names: Collection[str]) -> str:
    """Return the name of the tool that is meant: gpt-oss writes its channel behind it and a namespace before it."""
    name = readable(name)
    if name in tool_names:
        return name
    bare = name.partition(_HARMONY)[0].strip() or name
    spaceless = bare.removeprefix(_NAMESPACE)
    return spaceless if spaceless in tool_names else bare


def _told(arguments: Sequence[object]) -> tuple[list[str], str]:
    """Return the objects that all these tell, each once; if none is whole by itself, they are pieces of one text."""
    told: dict[str, str] = {}
    faults: list[str] = []
    for raw in arguments:
        objects, fault = _objects(raw)
        told |= {one.key: one.text for one in objects if one.key not in told}
        faults += [fault] if fault else []
    if faults and not told and len(arguments) > 1 and all(isinstance(raw, str) for raw in arguments):
        return _told(["".join(str(raw) for raw in arguments)])
    return list(told.values()), "" if told or not faults else faults[0]


def _objects(raw: object) -> tuple[list[_Object], str]:
    """Return the objects that say something, each once, or what is wrong."""
    if isinstance(raw, Missing):
        return [], "The arguments did not arrive."
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return [], ""
    if not isinstance(raw, str):
        return _written(raw)
    raw = readable_json(raw)
    values, fault = _parsed(raw)
    if len(values) == 1 and isinstance(text := values[0][0], str):
        values, fault = _parsed(readable_json(text))
    if fault:
        return [], fault
    told: dict[str, _Object] = {}
    for value, text in values:
        objects, fault = _kept(value, text)
        if fault:
            return [], fault
        told |= {one.key: one for one in objects if one.key not in told}
    return _alike(list(told.values()))


def _alike(objects: list[_Object]) -> tuple[list[_Object], str]:
    """Let several objects pass that may belong to one tool; a foreign one was sent to this call by mistake."""
    keys = [set(json.loads(one.key)) for one in objects] if len(objects) > 1 else []
    widest = max(keys, key=len, default=set())
    return (objects, "") if all(names <= widest for names in keys) else ([], _SEVERAL)


def _parsed(text: str) -> tuple[list[tuple[Any, str]], str]:
    """Parse one JSON value, or several behind each other; control characters inside strings are let pass."""
    try:
        return [(_DECODER.decode(text), text)], ""
    except json.JSONDecodeError as exc:
        values = _row(text) if exc.msg == "Extra data" else []
        fault = f"The arguments are not valid JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}."
        return (values, "") if values else ([], fault)
    except (ValueError, RecursionError):
        return [], "The arguments are not valid JSON."


def _row(text: str) -> list[tuple[Any, str]]:
    """Return the values that stand behind each other, [] if there is anything else among them."""
    values: list[tuple[Any, str]] = []
    at = _after_space(text, 0)
    try:
        while at < len(text):
            value, past = _DECODER.raw_decode(text, at)
            values.append((value, text[at:past]))
            at = _after_space(text, past)
    except (ValueError, RecursionError):
        return []
    return values


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _kept(value: object, text: str) -> tuple[list[_Object], str]:
    """Return an object in the words it came in, if strict readers take them."""
    if value == {}:
        return [], ""
    if isinstance(value, dict) and not (fault := _depth_fault(value)) and _is_strict(text):
        return [_Object.of(value, text)], fault
    return _written(value)


def _is_strict(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _depth_fault(value: object) -> str:
    """Return what is wrong with nesting that JSON writers and readers of others would refuse."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return ""
    return "The arguments are nested too deeply."


def _written(value: object) -> tuple[list[_Object], str]:
    if fault := _depth_fault(value):
        return [], fault
    if not isinstance(value, dict):
        return [], f"The arguments must be a JSON object, not {_kind(value)}."
    try:
        text = readable_json(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except (ValueError, RecursionError, TypeError):
        return [], "The arguments cannot be written as JSON."
    return ([_Object.of(value, text)] if value else []), ""


def _kind(value: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")
