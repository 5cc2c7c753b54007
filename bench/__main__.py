"""``python -m bench``: measure, and write docs/performance.md."""

import argparse
import sys
from pathlib import Path

from bench.plan import MEASURES
from bench.registry import SYSTEMS, system
from bench.report import publish
from bench.results import Results
from bench.run import run
from bench.services import services
from bench.short import short

RESULTS = Path(__file__).parent / "results" / "last.json"


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [measure.name for measure in MEASURES]
    for option, choices in (("--systems", list(SYSTEMS)), ("--measures", names)):
        help_text = f"some of {', '.join(choices)}"
        parser.add_argument(option, nargs="+", choices=choices, default=choices, metavar="NAME", help=help_text)
    parser.add_argument("--repeats", type=int, default=3, help="how often each system has its turn")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the numbers are kept as JSON")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md from the numbers")
    parser.add_argument("--only-page", action="store_true", help="measure nothing, write the page from kept numbers")
    parser.add_argument("--short", action="store_true", help="for CI: two systems, fails when the ratio regresses")
    parser.add_argument("--save-baseline", action="store_true", help="with --short: keep the ratios as the baseline")
    return parser.parse_args()


def main() -> int:
    """Do what the command line says; returns the exit code."""
    asked = arguments()
    kinds = [] if asked.short else [system(name) for name in asked.systems]
    if asked.only_page:
        publish(Results.load(asked.results), kinds)
        return 0
    with services(in_memory=asked.short) as servers:
        if asked.short:
            return short(servers, save=asked.save_baseline)
        results = Results()
        measures = [measure for measure in MEASURES if measure.name in asked.measures]
        run(kinds, measures, asked.repeats, results, servers)
    results.save(asked.results)
    if asked.page:
        publish(results, kinds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
