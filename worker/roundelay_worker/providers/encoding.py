"""Requests as bytes: the same request is always the same bytes, and what was once JSON text is not written anew."""

from typing import Any, Final

import orjson

from roundelay_worker.loop.surrogates import readable_value

_MARGIN: Final = 40
"""Levels of a request around what goes back in it, with room to spare; orjson stops at 254 in all."""


def encode(value: Any) -> bytes:
    """Return the JSON of a request or a part of one, made readable; raise ValueError for what JSON cannot carry."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        pass
    try:
        return orjson.dumps(readable_value(value))
    except (orjson.JSONEncodeError, RecursionError) as exc:
        raise ValueError("this cannot be written as JSON") from exc


def verbatim(json_text: str) -> orjson.Fragment:
    """Return JSON text as a part of a request that ``encode`` copies as it stands."""
    return orjson.Fragment(json_text)


def native_text(value: object) -> str | None:
    """Return the JSON text of a turn in the server's words; None where no request could carry it (nested too deep)."""
    for _ in range(_MARGIN):
        value = [value]
    try:
        return encode(value)[_MARGIN:-_MARGIN].decode()
    except ValueError:
        return None
