r"""Halves of surrogate pairs, mended in one place for all that models and tools say.

JSON may escape half of a character (``\ud83d``), and models and servers write such halves: the other half is in the
next chunk, or nowhere. A half alone cannot be sent, stored or shown. Halves that meet are joined; one that stays
alone becomes U+FFFD.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_REPLACEMENT: Final = "\\ufffd"
_ESCAPES: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_FIRST_HALVES: Final = ("\ud800", "\udbff")


def readable(text: str) -> str:
    """Return the text with halves of surrogate pairs joined or, where one is alone, replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def readable_json(text: str) -> str:
    """Return JSON text with its halves mended, also those that it holds as escapes; all else keeps its bytes."""
    text = readable(text)
    return _ESCAPES.sub(_mended, text) if "\\u" in text else text


def readable_value(value: Any) -> Any:
    """Return a JSON value with ``readable`` applied to all its strings; tuples become lists."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, Mapping):
        return {readable_value(key): readable_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [readable_value(part) for part in value]
    return value


class TextJoiner:
    """Makes text readable that comes in pieces: a first half at the end of one waits for the next."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be shown by now."""
        text, self._held = self._held + piece, ""
        if text and _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1]:
            text, self._held = text[:-1], text[-1]
        return readable(text)


def _mended(escape: re.Match[str]) -> str:
    return _REPLACEMENT if escape["half"] else escape[0]
