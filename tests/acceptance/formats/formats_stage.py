"""The whole shell in this process: a Runtime on Valkey and SQLite, threads for the tasks, scripted models."""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, Self

import redis

from roundelay import Answer, Client, Job
from roundelay.updates import Update
from roundelay_worker.process.logs import EventFormatter
from roundelay_worker.settings import Settings
from roundelay_worker.store.records import Dispatch, Queue
from roundelay_worker.taskqueue.tasks import task_of
from roundelay_worker.testing.fake_llm import FakeLLM, Recorded, script
from roundelay_worker.wiring import Runtime

KEY = "sk-test-0123456789abcdef-SECRET"
PATIENCE = 60.0
"""Seconds that one message may take on a machine that others load."""
NUMBERS = count(1)

MODELS: Mapping[str, str] = {
    "openai": "openai:fake-thinker",
    "chat": "chat:vendor/thinker",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "google": "google:gemini-3-pro",
}
"""A model of each format whose reasoning comes signed and must go back unchanged."""
WIRE: Mapping[str, str] = {"openai": "responses", "chat": "chat", "anthropic": "anthropic", "google": "gemini"}
"""The formats in the words of the fake."""

Step = dict[str, Any]


def call(tool: str, /, **arguments: Any) -> Step:
    """Return a call as a script has it."""
    return {"name": tool, "arguments": arguments}


def environment(home: Path, redis_url: str, fake: FakeLLM, prefix: str) -> dict[str, str]:
    """Return the settings of a worker that reaches the fake under every format."""
    return {
        "ROUNDELAY_HOME": str(home),
        "ROUNDELAY_REDIS_URL": redis_url,
        "ROUNDELAY_DATABASE_URL": f"sqlite:///{home}/stage.db",
        "ROUNDELAY_PREFIX": prefix,
        "ROUNDELAY_TOOL_MODULES": "formats_tools",
        "ROUNDELAY_BUILTIN_TOOLS": "all",
        "ROUNDELAY_CHAT_BASE_URL": fake.url,
        "ROUNDELAY_CHAT_API_KEY": KEY,
        "OPENAI_BASE_URL": fake.url,
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_BASE_URL": fake.url,
        "GEMINI_API_KEY": KEY,
    }


class Lines(logging.Handler):
    """Keeps everything that is logged, as a worker would write it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(EventFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Stage:
    """A worker process without Celery; a context manager. Settings are keyword arguments, ``None`` unsets one."""

    def __init__(self, redis_url: str, folder: Path, fake: FakeLLM, **settings: object) -> None:
        self.fake = fake
        self.folder = folder
        self.prefix = f"formats{next(NUMBERS)}"
        self.redis_url = redis_url
        env = environment(folder, redis_url, fake, self.prefix)
        for name, value in settings.items():
            variable = name if name.isupper() else f"ROUNDELAY_{name.upper()}"
            env[variable] = "" if value is None else str(value)
        self.runtime = Runtime(Settings.from_env(env), self._send_later, self._length)
        self.client = Client(redis_url, prefix=self.prefix)
        self.log = Lines()
        self.tasks: list[str] = []
        self._threads = ThreadPoolExecutor(48, "task")
        self._leaving = False

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._level = root.level
        root.addHandler(self.log)
        root.setLevel(logging.DEBUG)
        self.runtime.start()
        self.runtime.consuming(True)
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        self.runtime.drain(1)
        self._threads.shutdown(wait=True)
        self.runtime.stop()
        self.client.close()
        logging.getLogger().removeHandler(self.log)
        logging.getLogger().setLevel(self._level)

    def _send(self, dispatches: tuple[Dispatch, ...]) -> None:
        for dispatch in dispatches:
            self.tasks.append(json.dumps(task_of(dispatch)))
            if not self._leaving:
                self._threads.submit(self._task, dispatch)

    def _task(self, dispatch: Dispatch) -> None:
        self._send(self.runtime.run(dispatch).dispatches)

    async def _send_later(self, dispatches: tuple[Dispatch, ...]) -> None:
        self._send(dispatches)

    async def _length(self, _queue: Queue) -> int:
        return 0

    def ask(
        self, model: str, *steps: Step, name: str, closing: Step | None = None, words: str = "Please.", **options: Any
    ) -> Job:
        """Submit a message that scripts its replies; ``model`` is a format, or ``provider:name``."""
        text = f"{words} {script(*steps, name=name, closing=closing)}"
        job = self.client.submit(text, model=MODELS.get(model, model), **options)
        self._threads.submit(self._task, Dispatch(job.message_id, 1, 1, "messages"))
        return job

    def answer(self, model: str, *steps: Step, name: str, **options: Any) -> Answer:
        """Submit, and wait for the answer."""
        return self.ask(model, *steps, name=name, **options).wait(PATIENCE)

    def asked(
        self, *steps: Step, name: str, formats: Iterable[str] = tuple(MODELS), flag: str = "", **options: Any
    ) -> dict[str, Job]:
        """Submit to every format at once; requests count under ``{format}-{name}``, ``flag`` is added to the model."""
        return {wire: self.ask(f"{MODELS[wire]}{flag}", *steps, name=f"{wire}-{name}", **options) for wire in formats}

    def answers(self, *steps: Step, name: str, **options: Any) -> dict[str, Answer]:
        """Submit to every format at once, and wait for all answers."""
        return {wire: job.wait(PATIENCE) for wire, job in self.asked(*steps, name=name, **options).items()}

    def requests(self, name: str) -> list[Recorded]:
        """Return the requests of a script, oldest first."""
        return [request for request in self.fake.requests if request.name == name]

    def refused(self, *names: str) -> list[str]:
        """Return the rules that requests broke: of these scripts, or of all."""
        found = [refused.request for refused in self.fake.refusals]
        return [request.refused for request in found if not names or request.name in names]

    def updates(self, message_id: str) -> list[Update]:
        """Return all updates of a message that has ended."""
        return list(self.client.get(message_id).follow(timeout=PATIENCE))

    def retries(self, message_id: str) -> list[str]:
        """Return the codes of the retries of a message."""
        return [update.code or "" for update in self.updates(message_id) if update.kind == "retrying"]

    def everything(self) -> str:
        """Return what was logged, every task, and all that the database and Redis hold."""
        tables, keys = database_texts(self.folder / "stage.db"), redis_texts(self.redis_url, self.prefix)
        return "\n".join([*self.log.lines, *self.tasks, *tables, *keys])


def database_texts(file: Path) -> Iterator[str]:
    """Yield every value of every column of every table."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from (str(value) for value in row if value is not None)
    finally:
        connection.close()


def redis_texts(url: str, prefix: str) -> Iterator[str]:
    """Yield everything that Redis holds under a prefix: answers, updates, states, tasks."""
    with redis.Redis.from_url(url, decode_responses=True) as connection:
        readers = {
            "string": connection.get,
            "hash": connection.hgetall,
            "stream": connection.xrange,
            "list": lambda key: connection.lrange(key, 0, -1),
            "zset": lambda key: connection.zrange(key, 0, -1),
            "set": connection.smembers,
        }
        for key in connection.scan_iter(match=f"*{prefix}*", count=1000):
            kind = connection.type(key)
            if kind in readers:  # a key that expired meanwhile has none
                yield f"{key} {readers[kind](key)}"
