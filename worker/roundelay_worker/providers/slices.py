"""Values cut out of JSON text without being written anew: what an opaque block was is what goes back.

Parsing and writing again keeps the meaning but not the bytes (escapes, number forms, the order of a
repeated key), and a signature may be over the bytes. The text must be valid JSON; whoever calls has parsed it.
"""

import json
import re
from json import JSONDecoder
from math import inf
from typing import Any, Final, NoReturn

import orjson

from roundelay_worker.providers.encoding import encode

_SPACE = re.compile(r"[ \t\n\r]*")
_LONGEST_INTEGER: Final = 4300
_DECODER = JSONDecoder(strict=False, parse_int=str, parse_float=str)


def members(text: str) -> dict[str, str]:
    """Return the members of a JSON object, each value as the text it came in; {} for any other value."""
    found: dict[str, str] = {}
    at = _first(text, "{")
    while at and text[at] != "}":
        key, at = _value(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _value(text, start)
        found[key] = text[start:at]
        at = _next(text, at)
    return found


def elements(text: str) -> list[str]:
    """Return the elements of a JSON array, each as the text it came in; [] for any other value."""
    found: list[str] = []
    start = _first(text, "[")
    while start and text[start] != "]":
        _, end = _value(text, start)
        found.append(text[start:end])
        start = _next(text, end)
    return found


def _value(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins here, and where it ends; numbers stay text, since they may have any length."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc


def _first(text: str, opening: str) -> int:
    """Return where the first member stands (or the closing bracket), 0 if this is no such value."""
    at = _skip(text, 0)
    return _skip(text, at + 1) if text.startswith(opening, at) else 0


def _next(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def with_member(text: str, name: str, value: str) -> str:
    """Return the JSON object with this member set to this JSON text; all others keep theirs."""
    return object_of({**members(text), name: value})


def object_of(parts: dict[str, str]) -> str:
    """Return the JSON object of these members, each given as JSON text."""
    return "{" + ",".join(f"{encode(name).decode()}:{value}" for name, value in parts.items()) + "}"


def parsed(text: str | bytes) -> Any:
    """Return the value of JSON text; halves of surrogate pairs are valid JSON too. Raise ValueError for all else."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _leniently(text)


def _leniently(text: str | bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_integer)
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc


def _integer(digits: str) -> int | float:
    """Return the number; Python refuses to read thousands of digits, and one such count must not lose a reply."""
    return int(digits) if len(digits) < _LONGEST_INTEGER else inf


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
