"""Each format through a real worker process of Celery: the loop, its way over Redis, and what it leaves in logs."""

import base64
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
import redis
from formats_stage import KEY, MODELS, NUMBERS, PATIENCE, call, database_texts, environment, redis_texts

from roundelay import Client
from roundelay_worker.testing.fake_llm import FakeLLM, script

pytestmark = [pytest.mark.services, pytest.mark.processes]
HERE = Path(__file__).parent
FOREIGN = re.compile(r"ROUNDELAY_|OPENAI_|ANTHROPIC_|GEMINI_|GOOGLE_API|CELERY")
COMMAND = (
    sys.executable,
    "-m",
    "celery",
    "-A",
    "roundelay_worker.app",
    "worker",
    "--without-gossip",
    "--without-mingle",
)

THOUGHT = "a secret thought of the model"
ROUNDS = (
    {"thinking": THOUGHT, "text": "I look.", "calls": [call("add", a=1, b=2), call("weather", city="Lisbon")]},
    {"thinking": THOUGHT, "calls": [call("broken"), call("nothing_like_it"), call("add", a="one")]},
    {"error": "overloaded", "times": 1, "then": {"calls": [call("note", text="x")]}},
)
BEYOND = {"calls": [call("add", a=3, b=3)]}
ODD_TOOL = """
from typing import Annotated

from pydantic import WithJsonSchema

from roundelay_worker import tool


@tool
def paint(colour: Annotated[str, WithJsonSchema({"$ref": "https://example.org/colours.json"})]) -> str:
    "Paint."
    return colour
"""


@contextmanager
def worker(env: dict[str, str], log: Path) -> Iterator[None]:
    """Keep a worker process running."""
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    with log.open("wb") as stream:
        process = subprocess.Popen(
            COMMAND, env={**kept, **env, "PYTHONPATH": paths}, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()


class Monitor:
    """Hears every command that Redis is given."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, socket_timeout=None)
        self._over = threading.Event()
        self._begun = threading.Event()
        self.commands: list[str] = []
        self._thread = threading.Thread(target=self._listen)

    def _listen(self) -> None:
        with self._client.monitor() as monitor:
            self._begun.set()
            while not self._over.is_set():
                self.commands.append(monitor.next_command()["command"])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._client.ping()
        self._thread.join(10)
        self._client.close()

    def tasks(self, prefix: str) -> list[str]:
        """Return the bodies of the tasks that were sent under a prefix."""
        sent = [command for command in self.commands if command.startswith("LPUSH") and prefix in command]
        bodies = [re.search(r'body\\*": \\*"([A-Za-z0-9+/=]+)', command) for command in sent]
        return [base64.b64decode(body[1]).decode() for body in bodies if body]


def test_every_format_runs_to_its_cap_and_on_in_a_worker_process(valkey_url: str, fake: FakeLLM, tmp_path: Path):
    prefix = f"processes{next(NUMBERS)}"
    env = environment(tmp_path, valkey_url, fake, prefix) | {"ROUNDELAY_LOG_LEVEL": "DEBUG"}

    with Client(valkey_url, prefix=prefix) as client, Monitor(valkey_url) as monitor, worker(env, tmp_path / "log"):

        def ask(wire: str, *steps: dict, name: str, **options):
            words = script(*steps, name=f"{wire}-{name}", closing={"text": "Shall I go on?"})
            return client.submit(f"Please. {words}", model=MODELS[wire], conversation_id=wire, **options)

        capped = {wire: ask(wire, *ROUNDS, BEYOND, name="run", max_rounds=3) for wire in MODELS}
        on = {wire: ask(wire, BEYOND, {"thinking": THOUGHT, "text": "Done."}, name="on") for wire in MODELS}
        answers = {wire: (capped[wire].wait(PATIENCE), on[wire].wait(PATIENCE)) for wire in MODELS}
        updates = [update.model_dump_json() for job in (*capped.values(), *on.values()) for update in job.follow()]

    for wire, (first, second) in answers.items():
        assert (wire, first.status, first.text, first.rounds) == (wire, "round_limit", "Shall I go on?", 3)
        assert (wire, second.status, second.text, second.rounds) == (wire, "answered", "Done.", 1)
        assert fake.count(f"{wire}-run") == 6
    assert fake.refusals == ()
    tasks = monitor.tasks(prefix)
    assert len(tasks) >= 8 + 3 * 4
    log = (tmp_path / "log").read_text()
    assert "message_ended" in log
    assert [line for line in [*tasks, *updates, *log.splitlines()] if THOUGHT in line or "gAAAAABf" in line] == []
    left = "\n".join([*database_texts(tmp_path / "stage.db"), *redis_texts(valkey_url, prefix), log, *tasks])
    assert "gAAAAABf" not in left
    assert KEY not in left


def test_a_tool_that_no_model_could_be_told_of_keeps_the_worker_from_starting(
    valkey_url: str, fake: FakeLLM, tmp_path: Path
):
    (tmp_path / "odd_tools.py").write_text(ODD_TOOL)
    env = environment(tmp_path, valkey_url, fake, f"processes{next(NUMBERS)}") | {"ROUNDELAY_TOOL_MODULES": "odd_tools"}
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}

    refused = subprocess.run(
        COMMAND,
        env={**kept, **env, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert refused.returncode != 0
    assert (
        "roundelay: Tool 'paint' cannot be declared to a model: its schema refers to another document" in refused.stderr
    )
