"""Tokens as OpenAI's formats report them: input with what was cached, output with reasoning."""

from collections.abc import Mapping
from typing import Any

from roundelay_worker.loop.history import TurnUsage
from roundelay_worker.providers.loose import as_count, as_object


def read_usage(
    usage: Mapping[str, Any], given_key: str = "prompt_tokens", written_key: str = "completion_tokens"
) -> TurnUsage | None:
    """Return the tokens, or None where there are none told.

    Servers that count reasoning beside the output (x.ai's chat) are known by their total.
    """
    cached = as_count(as_object(usage.get(f"{given_key}_details")).get("cached_tokens"))
    reasoning = as_count(as_object(usage.get(f"{written_key}_details")).get("reasoning_tokens"))
    given, written = as_count(usage.get(given_key)), as_count(usage.get(written_key))
    if reasoning and as_count(usage.get("total_tokens")) == given + written + reasoning:
        written += reasoning
    if not given and not written:
        return None
    cached = cached or as_count(usage.get("prompt_cache_hit_tokens")) or as_count(usage.get("cached_tokens"))
    return TurnUsage(input_tokens=given, output_tokens=written, cached_tokens=cached, reasoning_tokens=reasoning)
