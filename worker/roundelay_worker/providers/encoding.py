"""Requests as bytes: the same request is always the same bytes, and what was once JSON text is not written anew."""

from collections.abc import Mapping
from typing import Any

import orjson

from roundelay_worker.loop.history import readable


def encode(value: Any) -> bytes:
    """Return the JSON of a request or a part of one; what ``readable`` replaces is replaced in all its strings."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_readable(value))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, Mapping):
        return {_readable(key): _readable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(part) for part in value]
    return value


def verbatim(json_text: str) -> orjson.Fragment:
    """Return JSON text as a part of a request that ``encode`` copies as it stands."""
    return orjson.Fragment(json_text)
