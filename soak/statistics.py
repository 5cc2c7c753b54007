"""Percentiles."""

from collections.abc import Sequence
from math import ceil


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of a hundred do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * share / 100) - 1, 0)] if ordered else 0.0
