"""``roundelay worker``: worker processes, as many as there are cores, kept running."""

import sys
from collections.abc import Mapping

from roundelay_worker.cli.crew import Crew
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.programs import worker_jobs
from roundelay_worker.cli.supervisor import supervise
from roundelay_worker.process.heartbeat import silent_after
from roundelay_worker.settings import Settings, unknown_names


def run(options: Options, env: Mapping[str, str]) -> int:
    """Run worker processes until told to stop; 0 if they finished what they were at."""
    settings = Settings.from_env(env)
    for sentence in unknown_names(env):
        _say(sentence)
    jobs = worker_jobs(options.processes, settings, env, concurrency=options.concurrency)
    return supervise(Crew(jobs, _say, silent=silent_after(settings.lease)), settings.shutdown_grace)


def _say(line: str) -> None:
    sys.stderr.write(f"roundelay worker: {line}\n")
    sys.stderr.flush()
