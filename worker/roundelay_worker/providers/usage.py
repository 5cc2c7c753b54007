"""Tokens as OpenAI's formats report them: input with what was cached, output with reasoning."""

from collections.abc import Mapping
from typing import Any, Final

from roundelay_worker.loop.history import TurnUsage

_MOST: Final = 2**53


def read_usage(
    usage: Mapping[str, Any], given_key: str = "prompt_tokens", written_key: str = "completion_tokens"
) -> TurnUsage | None:
    """Return the tokens, or None where there are none told.

    Servers that count reasoning beside the output (x.ai's chat) are known by their total.
    """
    cached = _count(_inner(usage, f"{given_key}_details"), "cached_tokens")
    reasoning = _count(_inner(usage, f"{written_key}_details"), "reasoning_tokens")
    given, written = _count(usage, given_key), _count(usage, written_key)
    if reasoning and _count(usage, "total_tokens") == given + written + reasoning:
        written += reasoning
    if not given and not written:
        return None
    cached = cached or _count(usage, "prompt_cache_hit_tokens") or _count(usage, "cached_tokens")
    return TurnUsage(input_tokens=given, output_tokens=written, cached_tokens=cached, reasoning_tokens=reasoning)


def _inner(usage: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = usage.get(key)
    return inner if isinstance(inner, dict) else {}


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return int(value) if isinstance(value, int | float) and 0 < value < _MOST else 0
