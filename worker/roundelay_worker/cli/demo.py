"""``roundelay demo``: everything embedded in a folder that is deleted afterwards, some messages, their timelines."""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from roundelay import Answer, AnswerTimeout, Client
from roundelay_worker.cli.ask import await_answer
from roundelay_worker.cli.crew import Crew
from roundelay_worker.cli.drawing import drawn, summary
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.programs import worker_jobs
from roundelay_worker.cli.progress import Progress
from roundelay_worker.cli.timeline import spans
from roundelay_worker.cli.up import DEMO_MODEL, environment, logs_folder
from roundelay_worker.embedded.servers import running_services
from roundelay_worker.settings import Settings, variable

OLLAMA: Final = ("127.0.0.1", 11434)
PATIENCE: Final = 45.0
"""Seconds that one message of the demonstration may take with the demo model."""
PATIENCE_WITH_A_MODEL: Final = 300.0
_GRACE: Final = 5.0
_KEYS: Final = {
    "OPENAI_API_KEY": "openai",
    "ANTHROPIC_API_KEY": "anthropic",
    "GEMINI_API_KEY": "google",
    "GOOGLE_API_KEY": "google",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A message of the demonstration, and what it shows."""

    shows: str
    text: str
    options: tuple[tuple[str, Any], ...] = ()


SCENES: Final = (
    Scene(
        "several rounds: sums, then units, then the time in two cities at once",
        "What is (1200 - 850) / 850 * 100, how many miles are 42 km, and what time is it in Tokyo and Lisbon?",
    ),
    Scene(
        "in Portuguese; each step needs the one before",
        "Qual é a população do Brasil? Divida isso por 27. Que horas são em São Paulo?",
    ),
    Scene(
        "a message that wants more rounds than it may have: a closing answer, no error",
        "Count to 50 one by one with the calculator.",
        (("max_rounds", 5), ("conversation_id", "counting")),
    ),
    Scene(
        "the same conversation: it goes on from what was found",
        "Yes, please go on.",
        (("max_rounds", 3), ("conversation_id", "counting")),
    ),
)


def run(options: Options, env: Mapping[str, str]) -> int:
    """Show Roundelay at work; 0 if every message was answered."""
    model = options.model or DEMO_MODEL
    with tempfile.TemporaryDirectory(prefix="roundelay-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        _say(f"starting Valkey and a worker in {home}; the model is {model}")
        _say(*_hints(model, env))
        with running_services(home) as found:
            inside = _with_ollama(environment({**env, variable("home"): folder, variable("model"): model}, found))
            settings = Settings.from_env(inside)
            patience = PATIENCE if model == DEMO_MODEL else PATIENCE_WITH_A_MODEL
            crew = Crew(worker_jobs(1, settings, inside, logs=logs_folder(home)), _say)
            with _working(crew), Client(found.redis_url, found.broker_url, found.prefix) as client:
                return _play(client, home, patience)


@contextmanager
def _working(crew: Crew) -> Iterator[None]:
    crew.tend()
    try:
        yield
    finally:
        crew.stop(_GRACE)


def _play(client: Client, home: Path, patience: float) -> int:
    failed = 0
    for number, scene in enumerate(SCENES, 1):
        _say("", f"--- {number} of {len(SCENES)}: {scene.shows}", f"> {scene.text}")
        try:
            failed += _ended_badly(_ask(client, scene, patience))
        except AnswerTimeout:
            _say(f"no answer after {patience:g} s; the worker said:", _tail(home / "logs" / "worker-1.log"))
            return 1
    _say("", "The same for your own: roundelay up, then roundelay ask TEXT, roundelay show MESSAGE_ID.")
    return 1 if failed else 0


def _ask(client: Client, scene: Scene, patience: float) -> Answer:
    job = client.submit(scene.text, **dict(scene.options))
    answer = await_answer(job, Progress(sys.stderr), patience)
    _say("", answer.text, "", *drawn(spans(job.follow(timeout=patience))), summary(answer))
    return answer


def _ended_badly(answer: Answer) -> bool:
    return answer.status in {"failed", "refused", "cancelled"}


def _hints(model: str, env: Mapping[str, str]) -> Iterator[str]:
    if model != DEMO_MODEL:
        return
    yield "(that model is a few plain rules, no language model; tools, rounds and crash safety are the real ones)"
    for provider in sorted({provider for key, provider in _KEYS.items() if env.get(key)}):
        yield f"there is a key for {provider}: try roundelay demo --model {provider}:NAME"
    if _ollama_answers():
        yield "there is an Ollama on this machine: try roundelay demo --model chat:NAME"


def _with_ollama(env: dict[str, str]) -> dict[str, str]:
    """A chat model without any address is looked for in the Ollama of this machine."""
    is_chat = env[variable("model")].startswith("chat:")
    is_addressed = any(env.get(name) for name in (variable("chat_base_url"), "OPENAI_BASE_URL", "OPENAI_API_KEY"))
    if is_chat and not is_addressed and _ollama_answers():
        return {**env, variable("chat_base_url"): "http://{}:{}".format(*OLLAMA)}
    return env


def _ollama_answers() -> bool:
    with suppress(OSError), socket.create_connection(OLLAMA, timeout=0.3):
        return True
    return False


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2_000:] if log.exists() else "nothing"


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}{os.linesep}")
    sys.stdout.flush()
