"""What the fake says no to: one value for every refusal, and what the checks may be told."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal, TypeVar

import orjson

Format = Literal["anthropic", "chat", "gemini", "responses"]
"""The four wire formats."""

Json = dict[str, Any]
View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is answered with an error: the rule it broke, and the answer as the service words it."""

    rule: str
    status: int
    message: str
    body: Json | list[Json] | str = field(hash=False)
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a check is told beside the request.

    ``key`` is the only key that is valid; None takes every key that does not contain ``invalid``, '' asks for none.
    ``stripped`` accepts an active sequence whose reasoning was left out, as after a refusal of that reasoning.
    ``foreign`` accepts reasoning that this fake never issued, for requests recorded elsewhere.
    ``body_limit`` is in bytes; None is the service's own.
    """

    key: str | None = None
    stripped: bool = False
    foreign: bool = False
    body_limit: int | None = None


USUAL: Final = Rules()
"""What a check is told unless someone says otherwise."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text, for long lists of names on the wire."""
    return frozenset(text.split())


def first(view: View, rules: Iterable[Callable[[View], Iterator[Refusal]]]) -> Refusal | None:
    """Return the first refusal that the rules find, in their order; later rules may rely on earlier ones."""
    return next(chain.from_iterable(rule(view) for rule in rules), None)


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers under lower-case names."""
    return {name.lower(): value for name, value in headers.items()}


def bearer(headers: Mapping[str, str]) -> str:
    """Return the token of an ``authorization`` header, '' if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def key_is_valid(key: str, rules: Rules) -> bool:
    """Say whether a key opens the door."""
    return key == rules.key if rules.key is not None else "invalid" not in key


def body_bytes(headers: Mapping[str, str]) -> int:
    """Return the length of the body that the headers announce."""
    text = headers.get("content-length", "")
    return int(text) if text.isdigit() else 0


def is_list_of_objects(value: Any) -> bool:
    """Say whether a JSON value is a list of objects."""
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def as_object(text: Any) -> Json:
    """Return the object behind argument text; whatever is not one counts as empty."""
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
