"""The full run: repetition by repetition, system by system, so that a slow minute of the machine hits all alike."""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from time import monotonic

from bench.measures.imports import imports
from bench.model import Model
from bench.plan import Measure
from bench.results import Results
from bench.services import Services
from bench.stage import staged
from bench.system import System


def say(text: str) -> None:
    """Tell the person at the desk how far it is."""
    print(text, file=sys.stderr, flush=True)


def run(
    kinds: Sequence[type[System]], measures: Sequence[Measure], repeats: int, results: Results, services: Services
) -> None:
    """Measure everything; a system that fails loses that measure, not the run."""
    with Model() as model:
        results.describe(kinds, services.versions(), repeats)
        for number, kind in rounds(kinds, repeats):
            for group in groups(kind, measures, first=number == 0):
                play(kind, group, results, services, model)
    for kind in kinds:
        if kind.client_import is not None:
            results.add(kind.name, imports(kind))


def rounds(kinds: Sequence[type[System]], repeats: int) -> Iterator[tuple[int, type[System]]]:
    """Return the turns: every system once, then every system again in the other direction."""
    for number in range(repeats):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            yield number, kind


def groups(kind: type[System], measures: Sequence[Measure], *, first: bool) -> list[list[Measure]]:
    """Return the measures that concern a system, those of one setting together."""
    mine = [measure for measure in measures if measure.concerns(kind) and (first or not measure.once)]
    mine.sort(key=lambda measure: (measure.setting.watched, measure.setting.share or 0, measure.setting.processes != 2))
    return [list(group) for _, group in groupby(mine, key=lambda measure: measure.setting)]


def play(kind: type[System], group: Sequence[Measure], results: Results, services: Services, model: Model) -> None:
    """Run the measures of one setting on one stage."""
    started = monotonic()
    try:
        with staged(kind, group[0].setting, services, model) as stage:
            for measure in group:
                say(f"{kind.name:14} {measure.name:12} {monotonic() - started:6.1f} s")
                try:
                    numbers = measure.run(stage)
                except Exception as exc:
                    say(f"{kind.name}: {measure.name} failed: {exc}")
                    results.fail(kind.name, measure.name, exc)
                else:
                    results.add(kind.name, numbers, measure.suffix)
                    say("  " + "  ".join(f"{name}{measure.suffix} {value:.4g}" for name, value in numbers.items()))
    except Exception as exc:
        say(f"{kind.name} did not start: {exc}")
        results.fail(kind.name, "start", exc)
