"""The form for CI: the hand-written chain and Roundelay take turns, and only their ratio counts.

The servers keep their files in memory here where they can: on a virtual disk a commit takes 0.3 ms in one minute and
4 ms in the next, which would be taken for a regression.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from time import monotonic

import orjson

from bench.measures.idle import idle
from bench.measures.load import load
from bench.model import Model
from bench.registry import system
from bench.results import Results
from bench.run import say
from bench.services import Services
from bench.stage import Setting, Stage, staged

PAIR = ("celery-chain", "roundelay")
SMALL = Setting(concurrency=100)
TURNS = 5
SECONDS = 55.0
"""Turns are taken for at most this long once the fewest are done, start of the workers included."""
ALLOWED = 1.25
BASELINE = Path(__file__).with_name("baseline.json")
LOWER_IS_BETTER: Mapping[str, bool] = {"gap_p50_ms": True, "cpu_ms": True, "calls_per_second": False}


def ratios(services: Services, baseline: Mapping[str, float]) -> dict[str, float]:
    """Return Roundelay's share of the hand-written chain's numbers: the median of the ratios of the turns.

    A ratio that looks like a regression gets more turns, as long as there is time: a noisy minute is not one.
    """
    results = Results()
    until = monotonic() + SECONDS
    with Model() as model, ExitStack() as stages:
        pair = [stages.enter_context(staged(system(name), SMALL, services, model)) for name in PAIR]
        for number in count(1):
            turn(pair, results)
            now = {name: ratio(results, name) for name in LOWER_IS_BETTER}
            if number >= TURNS and (not regressions(now, baseline) or monotonic() > until):
                return now
    raise AssertionError


def turn(pair: Sequence[Stage], results: Results) -> None:
    """Measure both, one after the other."""
    for stage in pair:
        numbers = idle(stage, 3) | load(stage, 25)
        say(f"{stage.system.name:14}" + "  ".join(f"{name} {numbers[name]:.4g}" for name in LOWER_IS_BETTER))
        results.add(stage.system.name, numbers)


def ratio(results: Results, name: str) -> float:
    """Return the median over the turns of ours divided by theirs."""
    theirs, ours = (results.values[system][name] for system in PAIR)
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def regressions(now: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return a sentence for each ratio that is more than a quarter worse than the baseline."""
    worse = {name: worsened(now[name], baseline[name], LOWER_IS_BETTER[name]) for name in baseline}
    return [
        f"slower than before: {name} {now[name]:.2f} of the hand-written chain, baseline {baseline[name]:.2f}"
        for name, factor in worse.items()
        if factor > ALLOWED
    ]


def worsened(now: float, baseline: float, lower_is_better: bool) -> float:
    """Return by which factor a ratio got worse."""
    return now / baseline if lower_is_better else baseline / now


def short(services: Services, *, save: bool) -> int:
    """Run the short form; returns the exit code: 1 when a ratio regressed, or when there is nothing to compare with."""
    known = orjson.loads(BASELINE.read_bytes()) if BASELINE.exists() and not save else {}
    now = ratios(services, known)
    say("Roundelay / Celery by hand: " + "  ".join(f"{name} {value:.3f}" for name, value in now.items()))
    if save:
        BASELINE.write_bytes(orjson.dumps(now, option=orjson.OPT_INDENT_2) + b"\n")
        return 0
    found = regressions(now, known) if known else [f"no {BASELINE.name} to compare with: run with --save-baseline"]
    for sentence in found:
        say(sentence)
    return 1 if found else 0
