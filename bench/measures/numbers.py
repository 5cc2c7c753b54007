"""Small sums over what the mock model saw."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import quantiles

from bench.model import Call


def gaps(calls: Sequence[Call]) -> list[float]:
    """Return the seconds between each answer and the next request of one conversation."""
    return [after.arrived - before.answered for before, after in pairwise(calls)]


def percentile(values: Iterable[float], percent: int) -> float:
    """Return a percentile; with one value, that."""
    values = sorted(values)
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def span(records: Mapping[str, Sequence[Call]]) -> tuple[float, float]:
    """Return when the first request came and when the last was answered."""
    calls = [call for each in records.values() for call in each]
    return min(call.arrived for call in calls), max(call.answered for call in calls)


def total(records: Mapping[str, Sequence[Call]]) -> int:
    """Return the number of calls."""
    return sum(map(len, records.values()))


def rank_correlation(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Return Spearman's coefficient of two orders of the same things: 1 the same order, 0 no relation."""
    places = {name: place for place, name in enumerate(sorted(before, key=before.__getitem__))}
    others = {name: place for place, name in enumerate(sorted(after, key=after.__getitem__))}
    n = len(places)
    distance = sum((places[name] - others[name]) ** 2 for name in places)
    return 1 - 6 * distance / (n * (n * n - 1)) if n > 1 else 1.0
