"""One run: everything started, the plan worked off under blows, everything quiet again, the evidence gathered."""

import os
import random
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from soak.chaos import Chaos
from soak.deployment import Pod
from soak.evidence import Evidence, gather
from soak.listener import Listener
from soak.plan import MODELS, Message, Plan, last_message, make_plan
from soak.servers import Postgres, Redis
from soak.tools import VARIABLE
from soak.webapp import Ledger, WebApp

PREFIX: Final = "soak"
PATIENCE: Final = 240.0
"""Seconds after the last submit, and after the end of all blows, in which everything must have been answered."""
SETTLE: Final = 8.0
"""Seconds until late writes have ended and what was owed to Redis has been published."""
END: Final = 45.0
HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """What to run."""

    messages: int
    minutes: float
    seed: int
    workers: int
    at_once: int
    pause: float
    rounds: int
    keep: Path | None
    short: bool = False
    """Few kinds of blows, and no rest after them."""


def run(options: Options) -> Evidence:
    """Run, and return the evidence."""
    home = options.keep or Path(tempfile.mkdtemp(prefix="roundelay-soak-"))
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    try:
        return _run(options, home)
    finally:
        if options.keep is None:
            shutil.rmtree(home, ignore_errors=True)


def _run(options: Options, home: Path) -> Evidence:
    effects, requests = home / "effects.jsonl", home / "requests.jsonl"
    effects.touch()
    plan = make_plan(options.messages, options.rounds, options.seed)
    ledger = Ledger()
    redis, postgres = Redis(home), Postgres(home)
    with _model(requests) as model_url:
        pods = [
            Pod(number, _environment(redis, postgres, model_url, effects), home) for number in range(options.workers)
        ]
        listener = Listener(redis.url, PREFIX)
        listener.start()
        chaos = Chaos(pods, redis, postgres, ledger, PREFIX, random.Random(options.seed + 1), short=options.short)
        try:
            _under_blows(options, plan, chaos, ledger, redis)
            last = _at_the_end(options, plan, chaos, redis)
            chaos.rest(SETTLE)
            known = [str(row["id"]) for row in postgres.ask("SELECT id FROM roundelay_messages")]
            return gather(
                redis_url=redis.url,
                database_url=postgres.url,
                prefix=PREFIX,
                model_url=model_url,
                effects=effects,
                requests=requests,
                submitted=ledger.submitted,
                last=last.submitted,
                blows=chaos.blows,
                heard=listener.heard,
                known=known,
            )
        finally:
            for pod in pods:
                pod.end(END)
            listener.stop()
            postgres.stop()
            redis.stop()


def _under_blows(options: Options, plan: Plan, chaos: Chaos, ledger: Ledger, redis: Redis) -> None:
    """Work off the plan under blows; once all is submitted and each kind of blow was struck, let it come to an end."""
    app = WebApp(redis.url, PREFIX, plan, ledger, at_once=options.at_once, minutes=options.minutes)
    app.start()
    submitted_at = None
    while app.is_alive():
        chaos.rest(chaos.dice.uniform(0.5, 1.5) * options.pause)
        share = len(ledger.submitted) / len(plan.messages)
        if share >= 1:
            submitted_at = submitted_at or time.monotonic()
            if time.monotonic() - submitted_at > PATIENCE:
                app.give_up.set()
        if share < 1 or (chaos.owed and time.monotonic() - (submitted_at or 0) < PATIENCE / 2):
            _strike(chaos, ledger, share)
    _see(app)


def _strike(chaos: Chaos, ledger: Ledger, share: float) -> None:
    blow = chaos.strike(half_way=share > HALF)
    if blow is None:
        return
    under_way = sum(not each.status and not each.lost for each in ledger.submitted)
    _say(f"{blow.kind} {blow.detail} ({len(ledger.submitted)} submitted, {under_way} under way)")


def _at_the_end(options: Options, plan: Plan, chaos: Chaos, redis: Redis) -> Ledger:
    """Send one further message to each conversation."""
    _say("all is quiet; each conversation gets a further message")
    made = tuple(_further(plan, place, each) for place, each in enumerate(plan.conversations))
    last = Ledger()
    app = WebApp(redis.url, PREFIX, Plan(made), last, at_once=options.at_once, minutes=0)
    app.start()
    deadline = time.monotonic() + PATIENCE
    while app.is_alive():
        chaos.rest(0.5)
        if time.monotonic() > deadline:
            app.give_up.set()
    _see(app)
    return last


def _see(app: WebApp) -> None:
    if app.fault is not None:
        raise RuntimeError("the web app broke") from app.fault


def _further(plan: Plan, place: int, conversation: tuple[Message, ...]) -> tuple[Message, ...]:
    return (last_message(len(plan.messages) + place, conversation[0].conversation, conversation[0].user),)


def _say(line: str) -> None:
    sys.stderr.write(f"soak: {time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


@contextmanager
def _model(journal: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "soak.model", str(journal)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _environment(redis: Redis, postgres: Postgres, model_url: str, effects: Path) -> dict[str, str]:
    named = re.compile(r"ROUNDELAY_|OPENAI_|ANTHROPIC_|GEMINI_|GOOGLE_API|SOAK_")
    kept = {name: value for name, value in os.environ.items() if not named.match(name)}
    key = f"soak-{secrets.token_hex(8)}"
    return {
        **kept,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "ROUNDELAY_REDIS_URL": redis.url,
        "ROUNDELAY_DATABASE_URL": postgres.url,
        "ROUNDELAY_PREFIX": PREFIX,
        "ROUNDELAY_MODEL": MODELS[0],
        "ROUNDELAY_TOOL_MODULES": "soak.tools",
        "ROUNDELAY_CHAT_BASE_URL": f"{model_url}/v1",
        "ROUNDELAY_CHAT_API_KEY": key,
        "OPENAI_BASE_URL": model_url,
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": key,
        "GEMINI_BASE_URL": model_url,
        "GEMINI_API_KEY": key,
        VARIABLE: str(effects),
    }
