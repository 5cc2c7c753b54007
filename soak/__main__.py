"""``python -m soak``: run, judge, report; exit 1 if a promise was broken."""

import argparse
import os
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final

from soak.plan import LIMIT
from soak.promises import judge
from soak.report import Run, broken, put_into_page, written
from soak.run import PREFIX, Options, run

SHORT: Final = {"messages": 100, "minutes": 0.2, "rounds": 2, "workers": 2, "pause": 2.0}


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m soak", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=2, help="time over which the messages are submitted")
    parser.add_argument("--rounds", type=int, default=LIMIT, help="most rounds of a message")
    parser.add_argument("--seed", type=int, help="of the plan and the blows; default: a new one")
    parser.add_argument("--workers", type=int, default=3, help="worker processes, at least 2")
    parser.add_argument("--at-once", type=int, default=60, help="messages that are under way at most")
    parser.add_argument("--pause", type=float, default=4, help="seconds between two blows, on average")
    parser.add_argument("--short", action="store_true", help="the form for CI, under a minute: few rounds, few blows")
    parser.add_argument("--keep", type=Path, help="an empty folder for logs and journals, which are kept there")
    parser.add_argument("--report", type=Path, help="a file for the report; it is printed in any case")
    parser.add_argument("--page", action="store_true", help="put the report into docs/soak.md")
    if "--short" in sys.argv:
        parser.set_defaults(**SHORT)
    return parser.parse_args()


def main() -> int:
    """Do what the command line says; returns the exit code."""
    asked = arguments()
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    options = Options(
        messages=asked.messages,
        minutes=asked.minutes,
        seed=seed,
        workers=max(asked.workers, 2),
        at_once=asked.at_once,
        pause=asked.pause,
        rounds=asked.rounds,
        keep=asked.keep,
        short=asked.short,
    )
    began = time.monotonic()
    evidence = run(options)
    verdicts = judge(evidence, PREFIX)
    told = Run(
        command=_command(options),
        seed=seed,
        seconds=time.monotonic() - began,
        workers=options.workers,
        machine=f"{os.cpu_count()} cores",
        versions=f"Python {sys.version.split()[0]}, Roundelay {version('roundelay-worker')}",
    )
    report = written(told, evidence, verdicts)
    sys.stdout.write(f"{report}\n")
    if asked.report:
        asked.report.write_text(f"{report}\n")
    if asked.page:
        put_into_page(report)
    return 1 if broken(verdicts) else 0


def _command(options: Options) -> str:
    short = "--short " if options.short else ""
    words = (
        f"{short}--messages {options.messages} --minutes {options.minutes:g} --seed {options.seed} "
        f"--workers {options.workers} --at-once {options.at_once} --pause {options.pause:g} --rounds {options.rounds}"
    )
    return f'make soak SOAK="{words}"'


if __name__ == "__main__":
    sys.exit(main())
