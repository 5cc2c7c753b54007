"""The commands that start Celery's programs with Roundelay's application."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roundelay_worker.cli.crew import Job
from roundelay_worker.settings import SUPERVISED, Settings, variable

APPLICATION: Final = "roundelay_worker.app"


def celery(program: str, *words: str) -> list[str]:
    """Return the command of one of Celery's programs."""
    return [sys.executable, "-m", "celery", "-A", APPLICATION, program, *words]


def worker_jobs(
    processes: int,
    settings: Settings,
    env: Mapping[str, str],
    *,
    concurrency: int | None = None,
    logs: Path | None = None,
) -> list[Job]:
    """Return one job for each worker process; ``logs`` is a folder for their output, None for ours."""
    slots = concurrency or settings.concurrency
    handed_down = {**env, variable("concurrency"): str(slots), SUPERVISED: "1"}
    return [
        Job(
            f"worker-{number}",
            celery("worker", *_worker_words(number, slots, settings)),
            handed_down,
            logs / f"worker-{number}.log" if logs else None,
            is_needed=True,
        )
        for number in range(1, processes + 1)
    ]


def _worker_words(number: int, slots: int, settings: Settings) -> list[str]:
    """Gossip and mingle are between workers; ours agree through the database."""
    pool = ["--pool", "threads", "--concurrency", str(slots)]
    name = ["--hostname", f"{settings.prefix.replace(':', '-')}-{number}-{os.getpid()}@%h"]
    return [*pool, *name, "--loglevel", settings.log_level, "--without-gossip", "--without-mingle"]


def replace_by(command: list[str], env: Mapping[str, str]) -> int:
    """Become another program: nothing of us stays, and signals reach it directly."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, dict(env))  # noqa: S606  # no shell is wanted
