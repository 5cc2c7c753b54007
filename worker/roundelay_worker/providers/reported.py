"""What a provider said about an error, read out of any of the shapes that bodies and stream events have."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_.\-]{1,47}\Z")
"""Codes are names: without digits no key looks like one."""
_PARAM: Final = re.compile(r"[A-Za-z_][A-Za-z_]{0,40}(?:\.[A-Za-z_]{1,40}|\.?\[\d{1,5}\])*\Z")
_DEEPEST: Final = 3
_WAITS: Final = frozenset(
    {"resets_in_seconds", "reset_in_seconds", "retry_after", "retry_after_seconds", "reset_after"}
)
_MOMENTS: Final = frozenset({"resets_at", "reset_at"})
_FAR: Final = 1e11
_LONGEST_TEXT: Final = 4096


@dataclass(frozen=True, slots=True)
class Reported:
    """An error as it was reported.

    ``words`` are its types, codes, statuses and reasons in lower case; ``text`` is free text and unsafe to show.
    ``details`` are Google's typed details. ``status`` is an HTTP status that the error itself names.
    """

    words: frozenset[str] = frozenset()
    text: str = field(default="", repr=False)
    param: str = ""
    status: int | None = None
    details: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    wait: float | None = None
    """Seconds after which the error says that it is over, in a field of its own."""

    @property
    def code(self) -> str:
        """Return the words as they may be shown: they are names, never sentences."""
        return ", ".join(sorted(self.words - {"error"}))

    @property
    def shown_param(self) -> str:
        """Return the parameter if it looks like the path of one, which may be shown."""
        return self.param if _PARAM.match(self.param) else ""


def read_body(body: bytes) -> Reported:
    """Read the body of an error reply; HTML, empty and unreadable bodies report nothing."""
    try:
        return read_error(orjson.loads(body.strip()))
    except orjson.JSONDecodeError:
        return (
            Reported()
            if body.lstrip().startswith(b"<")
            else Reported(text=body[:_LONGEST_TEXT].decode(errors="replace"))
        )


def read_error(error: object) -> Reported:
    """Read an error object, or a whole body or event that holds one."""
    layers = list(_layers(error, 0))
    words = {word for layer in layers for word in _words(layer)}
    details = tuple(detail for layer in layers for detail in _details(layer))
    return Reported(
        words=frozenset(words | {str(d["reason"]).lower() for d in details if _is_word(d.get("reason"))}),
        text=" ".join(dict.fromkeys(text for layer in layers for text in _texts(layer)))[:_LONGEST_TEXT],
        param=next((param for layer in layers if (param := _param(layer))), ""),
        status=next((code for layer in layers if (code := _status(layer)) is not None), None),
        details=details,
        wait=max((wait for layer in layers for wait in _waits(layer)), default=None),
    )


def _layers(error: object, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that describe the error, the outermost first."""
    if depth > _DEEPEST:
        return
    if isinstance(error, str):
        yield {"message": error}
    elif isinstance(error, list):
        for part in error[:4]:
            yield from _layers(part, depth + 1)
    elif isinstance(error, dict):
        yield error
        for key in ("error", "detail", "errors", "innererror", "response", "message"):
            if error.get(key) and not (key == "message" and isinstance(error[key], str)):
                yield from _layers(error[key], depth + 1)


def _words(layer: Mapping[str, Any]) -> Iterator[str]:
    for key in ("type", "code", "status", "reason"):
        if _is_word(value := layer.get(key)):
            yield str(value).lower()


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(_WORD.match(value))


def _param(layer: Mapping[str, Any]) -> str:
    """Return the parameter an error names; FastAPI's validation errors name it by the end of ``loc``."""
    if isinstance(param := layer.get("param"), str):
        return param
    loc = layer.get("loc")
    return str(loc[-1]) if isinstance(loc, list) and loc else ""


def _texts(layer: Mapping[str, Any]) -> Iterator[str]:
    for key in ("message", "msg"):
        if isinstance(value := layer.get(key), str):
            yield value
    metadata = layer.get("metadata")
    if isinstance(metadata, dict) and isinstance(raw := metadata.get("raw"), str):
        yield raw


def _status(layer: Mapping[str, Any]) -> int | None:
    for key in ("status", "code", "status_code"):
        value = layer.get(key)
        if isinstance(value, str) and value.isdigit():
            value = int(value[:4])
        if isinstance(value, int) and 400 <= value < 600:  # noqa: PLR2004 - HTTP's error statuses
            return value
    return None


def _waits(layer: Mapping[str, Any]) -> Iterator[float]:
    for key, value in layer.items():
        seconds = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if seconds is None or not 0 <= seconds < _FAR:
            continue
        if key in _WAITS:
            yield float(seconds)
        elif key in _MOMENTS:
            yield max(0.0, float(seconds) - time.time())


def _details(layer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    details = layer.get("details")
    if isinstance(details, list):
        yield from (detail for detail in details if isinstance(detail, dict))
