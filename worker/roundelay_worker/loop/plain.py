"""What a person reads of a call: plain words from arguments and results, never JSON, markup or links."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

_MOST_READ: Final = 10_000
_LONGEST: Final = 120
"""Characters of what is said of one call."""
_LONGEST_FIELD: Final = 60
_FIELDS: Final = 3
_MARKUP: Final = (
    (re.compile(r"<(script|style)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE), " "),
    (re.compile(r"</?[a-zA-Z!][^<>]*>"), " "),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), " "),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://\S+|\bwww\.\S+", re.IGNORECASE), " "),
    (re.compile(r"```.*?(?:```|\Z)", re.DOTALL), " "),
    (re.compile(r"^\s*(?:[#>|*+-]+|\d+\.)\s+|[|]|[-=_*]{3,}", re.MULTILINE), " "),
    (re.compile(r"[*_`~]{1,3}(?=\S)|(?<=\S)[*_`~]{1,3}"), ""),
    (re.compile(r"[\[\]{}<>#]+"), " "),
)
_WITHOUT_WORDS: Final = re.compile(r"[\W\d_]*\Z")


def named(name: str) -> str:
    """Return a tool's name in words: what it is called where it has no title."""
    return " ".join(re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name))).lower() or "tool"


def said(result: str) -> str:
    """Return a short plain text of a result, '' where it holds nothing that a person could read."""
    value = _value(result)
    if isinstance(value, str):
        return _plain(value, _LONGEST)
    if isinstance(value, list) and not any(isinstance(item, str) for item in value[:_FIELDS]):
        return ""
    return _short(", ".join(_fields(value)), _LONGEST)


def asked(arguments: str, hidden: Collection[str] = ()) -> str:
    """Return the first plain arguments of a call, without those that are ``hidden``."""
    value = _value(arguments)
    shown = {name: item for name, item in value.items() if name not in hidden} if isinstance(value, dict) else {}
    return _short(", ".join(_fields(shown)), _LONGEST)


def _value(text: str) -> Any:
    """Return the value of JSON; a text that is none, or no structure, is itself."""
    if text[:1] in ("{", "[", '"') or text in ("null", "true", "false"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return "" if text[:1] in ("{", "[") else text
    return text


def _fields(value: Any) -> Iterator[str]:
    """Yield the first plain fields of a structure, and how many things its lists hold."""
    if isinstance(value, list):
        texts = [_plain(item, _LONGEST_FIELD) for item in value if isinstance(item, str)]
        yield from [text for text in texts if text][:_FIELDS]
        return
    if not isinstance(value, dict):
        yield from ([str(value)] if isinstance(value, int | float) and not isinstance(value, bool) else [])
        return
    told = 0
    for name, item in value.items():
        text = _field(named(str(name)), item)
        if text and told < _FIELDS:
            told += 1
            yield text


def _field(name: str, item: Any) -> str:
    if isinstance(item, bool) or item is None:
        return ""
    if isinstance(item, list):
        return f"{len(item)} {name}" if item else ""
    if isinstance(item, str):
        text = _plain(item, _LONGEST_FIELD)
        return f"{name} {text}" if text else ""
    return f"{name} {item:g}" if isinstance(item, int | float) and abs(item) < 1e15 else ""  # noqa: PLR2004


def _plain(text: str, most: int) -> str:
    """Return a text without markup and links, in one line; '' if no word is left."""
    text = text[:_MOST_READ]
    for pattern, instead in _MARKUP:
        text = pattern.sub(instead, text)
    flat = " ".join(text.split())
    if _WITHOUT_WORDS.match(flat) and not re.search(r"\d", flat):
        return ""
    return _short(flat, most)


def _short(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most].rpartition(' ')[0] or text[: most - 1]}…"
