"""The form for CI: the hand-written chain and Roundelay take turns, and only their ratio counts."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import orjson

from bench.measures.idle import idle
from bench.measures.load import load
from bench.model import Model
from bench.registry import system
from bench.results import Results
from bench.run import say
from bench.services import Services
from bench.stage import Setting, staged

PAIR = ("celery-chain", "roundelay")
SMALL = Setting(concurrency=100)
TURNS = 3
ALLOWED = 1.25
BASELINE = Path(__file__).with_name("baseline.json")
LOWER_IS_BETTER: Mapping[str, bool] = {"gap_p50_ms": True, "cpu_ms": True, "calls_per_second": False}


def ratios(services: Services, results: Results) -> dict[str, float]:
    """Return Roundelay's share of the hand-written chain's number: the median of the ratios of the turns."""
    with Model() as model, ExitStack() as stages:
        pair = [stages.enter_context(staged(system(name), SMALL, services, model)) for name in PAIR]
        for _ in range(TURNS):
            for stage in pair:
                numbers = idle(stage, 3) | load(stage, 25)
                say(f"{stage.system.name:14}" + "  ".join(f"{name} {numbers[name]:.4g}" for name in LOWER_IS_BETTER))
                results.add(stage.system.name, numbers)
    return {name: ratio(results, name) for name in LOWER_IS_BETTER}


def ratio(results: Results, name: str) -> float:
    """Return the median over the turns of ours divided by theirs."""
    theirs, ours = (results.values[system][name] for system in PAIR)
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def regressions(now: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return a sentence for each ratio that is more than a quarter worse than the baseline."""
    worse = {name: worsened(now[name], baseline[name], lower) for name, lower in LOWER_IS_BETTER.items()}
    return [
        f"{name}: {now[name]:.2f} of the hand-written chain, baseline {baseline[name]:.2f}"
        for name, factor in worse.items()
        if factor > ALLOWED
    ]


def worsened(now: float, baseline: float, lower_is_better: bool) -> float:
    """Return by which factor a ratio got worse."""
    return now / baseline if lower_is_better else baseline / now


def short(services: Services, *, save: bool) -> int:
    """Run the short form; returns the exit code: 1 when a ratio regressed."""
    now = ratios(services, Results())
    say("Roundelay / Celery by hand: " + "  ".join(f"{name} {value:.3f}" for name, value in now.items()))
    if save:
        BASELINE.write_bytes(orjson.dumps(now, option=orjson.OPT_INDENT_2) + b"\n")
        return 0
    if not BASELINE.exists():
        say(f"no {BASELINE.name} to compare with: run with --save-baseline")
        return 1
    found = regressions(now, orjson.loads(BASELINE.read_bytes()))
    for sentence in found:
        say(f"slower than before: {sentence}")
    return 1 if found else 0
