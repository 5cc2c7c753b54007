"""Shares out the bytes that all results of one round may take together."""

from collections.abc import Sequence
from dataclasses import replace

from roundelay_worker.loop.history import Result
from roundelay_worker.tools.run.truncation import shorten, size


def share_bytes(results: Sequence[Result], limit: int) -> tuple[Result, ...]:
    """Return ``results`` so that their texts take at most ``limit`` bytes together, the largest cut first.

    Errors are never cut, and no text is cut below the five bytes of its marker: the total fits wherever
    these leave it room. The same input always gives the same bytes, and what already fits is not touched.
    """
    sizes = [size(result.text) for result in results]
    if sum(sizes) <= limit:
        return tuple(results)
    errors = sum(length for length, result in zip(sizes, results, strict=True) if result.is_error)
    lengths = sorted(length for length, result in zip(sizes, results, strict=True) if not result.is_error)
    level = _level(lengths, limit - errors)
    return tuple(result if result.is_error else replace(result, text=shorten(result.text, level)) for result in results)


def _level(lengths: Sequence[int], room: int) -> int:
    """Return the greatest length to which the longer ones must be cut so that all (ascending) take ``room``."""
    level = 0
    for index, length in enumerate(lengths):
        level = max(room, 0) // (len(lengths) - index)
        if length > level:
            break
        room -= length
    return level
