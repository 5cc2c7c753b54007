"""What a tool returned, written as text: its string, or JSON.

A call that returned has had its effect. So a value that JSON cannot carry is never a failed call, which the model would
repeat: whatever can be written is written, a placeholder stands for the rest, and each such place is named.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_json

DEEPEST: Final = 100
"""Levels; providers and databases give up at 200 or so."""
MOST_PLACES: Final = 10
"""Places that are named; the rest is counted."""
LONGEST_PLACE: Final = 120


@dataclass(frozen=True, slots=True)
class Rendered:
    """A value as text. ``lost`` names what could not be written: its place (``rows[2].photo``) and its type."""

    text: str
    lost: tuple[str, ...] = ()


def render(value: Any) -> Rendered:
    """Return ``value`` as text; never raises, whatever its own methods do."""
    text = _whole(value)
    if text is not None:
        return Rendered(text)
    lost: list[str] = []
    plain = _plain(value, "", (), lost)
    text = _as_json(plain)
    return Rendered("null" if text is None else text, tuple(lost))


def _whole(value: Any) -> str | None:
    try:
        if isinstance(value, str):
            return str(value)
        # pydantic would consume an iterator, which may have no end.
        return None if isinstance(value, Iterator) else _as_json(value)
    except BaseException:  # noqa: BLE001 - even isinstance runs code of the project: __class__ may be a property
        return None


def _as_json(value: Any) -> str | None:
    try:
        return to_json(value, inf_nan_mode="strings").decode()
    except BaseException:  # noqa: BLE001 - serializers are code of the project
        return None


def _plain(value: Any, place: str, above: tuple[int, ...], lost: list[str]) -> Any:
    """Return ``value`` with a placeholder for each part that JSON cannot carry; ``above`` are the ids on the way."""
    if id(value) in above or len(above) >= DEEPEST:
        return _placeholder(value, place, lost)
    inside = _parts(value)
    if inside is None:
        return value if _whole(value) is not None else _placeholder(value, place, lost)
    way = (*above, id(value))
    if isinstance(inside, list):
        return [_plain(part, f"{place}[{index}]", way, lost) for index, part in enumerate(inside)]
    plain: dict[str, Any] = {}
    for key, part in inside.items():
        name = _key(key)
        plain[name] = _plain(part, f"{place}.{name}" if place else name, way, lost)
    return plain


def _parts(value: Any) -> list[Any] | Mapping[Any, Any] | None:
    """Return what a container holds, None for anything else; one whose methods raise counts as no container."""
    try:
        if isinstance(value, BaseModel):
            return {name: getattr(value, name) for name in type(value).model_fields}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, list | tuple | AbstractSet):
            return list(value)
    except BaseException:  # noqa: BLE001 - as above
        return None
    return None


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return str(key)
    return f"[{type(key).__name__}]"


def _placeholder(value: Any, place: str, lost: list[str]) -> str:
    kind = type(value).__name__
    lost.append(f"{place[:LONGEST_PLACE] or 'the value itself'} ({kind})")
    return f"[{kind}]"
