"""The arguments of a call, read as leniently as their meaning allows and kept in the model's own words."""

import json
from typing import Any, Final

import orjson

from roundelay_worker.loop.history import Call

EMPTY: Final = "{}"
DEEPEST: Final = 100
"""Levels of arrays and objects; some writers of JSON stop at 254, and an answer holds arguments a few levels down."""


def read_call(name: str, arguments: object, wire_id: object = "") -> Call:
    """Return the call that a provider's name, arguments and id stand for; whatever is wrong becomes its ``fault``."""
    text, fault = read_arguments(arguments)
    return Call(name=name, arguments=text, wire_id=wire_id if isinstance(wire_id, str) else "", fault=fault)


def read_arguments(raw: object) -> tuple[str, str]:
    """Return the JSON text of an object and '', or ``{}`` and what is wrong (places and reasons, never the values).

    None and blank text are no arguments; an object is written as JSON; a JSON string that holds the JSON of an
    object is unpacked once. Text that is JSON of an object is kept as it stands.
    """
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return EMPTY, ""
    if not isinstance(raw, str):
        return _written(raw)
    value, fault = _parsed(raw)
    if isinstance(value, str):
        raw, (value, fault) = value, _parsed(value)
    if fault or (fault := _depth_fault(value)):
        return EMPTY, fault
    return (raw, "") if isinstance(value, dict) and _is_strict(raw) else _written(value)


def _parsed(text: str) -> tuple[Any, str]:
    """Parse JSON; control characters inside strings are let pass, as models write them."""
    try:
        return json.loads(text, strict=False, parse_constant=_refuse), ""
    except json.JSONDecodeError as exc:
        return None, f"The arguments are not valid JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}."
    except (ValueError, RecursionError):
        return None, "The arguments are not valid JSON."


def _refuse(constant: str) -> None:
    raise ValueError(constant)


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


def _written(value: object) -> tuple[str, str]:
    if fault := _depth_fault(value):
        return EMPTY, fault
    if not isinstance(value, dict):
        return EMPTY, f"The arguments must be a JSON object, not {_kind(value)}."
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (ValueError, RecursionError, TypeError):
        return EMPTY, "The arguments cannot be written as JSON."
    return text, ""


def _kind(value: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")
