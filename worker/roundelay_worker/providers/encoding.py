"""Requests as bytes: the same request is always the same bytes, and what was once JSON text is not written anew."""

from collections.abc import Mapping
from typing import Any

import orjson


def encode(body: Mapping[str, Any]) -> bytes:
    """Return the JSON of a request; lone surrogates, which no provider can read, become replacement characters."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        return orjson.dumps(_readable(body))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_readable(key): _readable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(part) for part in value]
    return value


def verbatim(json_text: str) -> orjson.Fragment:
    """Return JSON text as a part of a request that ``encode`` copies as it stands."""
    return orjson.Fragment(json_text)
