"""``roundelay up``: everything on this machine, kept running, found by clients and commands without a setting."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from roundelay_worker.cli.arrival import Arrival, consumes
from roundelay_worker.cli.crew import Crew, Job
from roundelay_worker.cli.flower import flower_auth, flower_command, flower_env
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.programs import worker_jobs
from roundelay_worker.cli.supervisor import supervise
from roundelay_worker.embedded.child import LOOPBACK, free_port
from roundelay_worker.embedded.servers import Addresses, announced, running_services
from roundelay_worker.process.heartbeat import silent_after
from roundelay_worker.settings import Settings, home_folder, unknown_names, variable

DEMO_MODEL: Final = "demo:rules"
FLOWER_PORT: Final = 5555


def run(options: Options, env: Mapping[str, str]) -> int:
    """Start everything, say where it is, and keep it running until told to stop."""
    home = home_folder(env)
    with ExitStack() as stack:
        found = stack.enter_context(running_services(home, postgres=options.postgres))
        if not options.no_flower:
            found = replace(found, flower_url=f"http://{LOOPBACK}:{free_port(FLOWER_PORT)}")
        inside = environment(env, found)
        settings = Settings.from_env(inside)
        for sentence in unknown_names(env):
            _say(sentence)
        crew = Crew(
            _jobs(options, settings, inside, found, logs_folder(home)), _say, silent=silent_after(settings.lease)
        )
        stack.enter_context(announced(home, found))
        arrival = Arrival(
            lambda: consumes(settings, crew.pids),
            lambda: _greet(settings, found, options.processes),
            settings.home / "logs",
        )
        return supervise(crew, settings.shutdown_grace, arrival)


def environment(env: Mapping[str, str], found: Addresses) -> dict[str, str]:
    """Return the environment of what runs here: our own addresses, whatever was set, and a model."""
    ours = {"redis_url": found.redis_url, "broker_url": found.broker_url, "database_url": found.database_url}
    addressed = {variable(name): value for name, value in ours.items()}
    model = env.get(variable("model"), "").strip() or DEMO_MODEL
    return {**env, **addressed, variable("prefix"): found.prefix, variable("model"): model}


def logs_folder(home: Path) -> Path:
    """Return the folder of the workers' output, made if need be."""
    folder = home / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _jobs(options: Options, settings: Settings, env: Mapping[str, str], found: Addresses, logs: Path) -> list[Job]:
    jobs = worker_jobs(options.processes, settings, env, concurrency=options.concurrency, logs=logs)
    if found.flower_url:
        port = int(found.flower_url.rpartition(":")[2])
        handed_down = flower_env(env, flower_auth(LOOPBACK, env))
        jobs.append(Job("flower", flower_command(LOOPBACK, port), handed_down, logs / "flower.log"))
    return jobs


def _greet(settings: Settings, found: Addresses, processes: int) -> None:
    demo = settings.model == DEMO_MODEL
    model = f"{settings.model} (plain rules; set {variable('model')} for a language model)" if demo else settings.model
    lines = (
        f"roundelay is up: worker processes: {processes}, logs in {settings.home / 'logs'}",
        f"  model     {model}",
        f"  database  {found.database_url.partition(':')[0]} in {settings.home}",
        f"  flower    {found.flower_url}",
        '  ask       roundelay ask "How many miles are 42 km, and what time is it in Lisbon?"',
        "  stop      Ctrl-C",
    )
    sys.stdout.write("\n".join(line for line in lines if found.flower_url or "flower" not in line) + "\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(f"roundelay up: {line}\n")
    sys.stderr.flush()
