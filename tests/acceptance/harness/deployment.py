"""A deployment of its own on shared services: a prefix, a database, workers, a client."""

import asyncio
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import redis

from harness.waiting import PATIENCE, eventually
from harness.workers import Worker, Zygote
from roundelay import Answer, AnswerTimeout, Client, Job
from roundelay.names import messages_queue, rounds_queue
from roundelay_worker.store.records import Timeline
from roundelay_worker.store.store import Store
from roundelay_worker.testing.fake_llm import FakeLLM, script

T = TypeVar("T")
NUMBERS = count(1)
FOREIGN = re.compile(r"ROUNDELAY_|OPENAI_|ANTHROPIC_|GEMINI_|GOOGLE_API|FLOWER_|HARNESS_|CELERY")
SECRET = "sk-test-0123456789-secret"
QUICK = {"ROUNDELAY_LEASE": "2", "ROUNDELAY_SWEEP": "0.3", "ROUNDELAY_CONCURRENCY": "20"}


class Deployment:
    """What a test speaks to: ``ask``, ``worker``, ``effects``, ``show``."""

    eventually = staticmethod(eventually)

    def __init__(
        self, zygote: Zygote, home: Path, redis_url: str, database_url: str, fake: FakeLLM, **env: str
    ) -> None:
        self.zygote = zygote
        self.home = home
        self.prefix = f"d{os.getpid()}-{next(NUMBERS)}"
        self.redis_url = redis_url
        self.fake = fake
        self._refused = len(fake.refusals)
        self.effects_file = home / "effects.db"
        self.env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)} | {
            "ROUNDELAY_HOME": str(home),
            "ROUNDELAY_REDIS_URL": redis_url,
            "ROUNDELAY_DATABASE_URL": database_url,
            "ROUNDELAY_PREFIX": self.prefix,
            "ROUNDELAY_MODEL": "chat:fake-model",
            "ROUNDELAY_CHAT_BASE_URL": fake.url,
            "ROUNDELAY_CHAT_API_KEY": SECRET,
            "ROUNDELAY_TOOL_MODULES": "harness.effects",
            "HARNESS_EFFECTS": str(self.effects_file),
            **QUICK,
            **env,
        }
        self.client = Client(redis_url, env.get("ROUNDELAY_BROKER_URL"), prefix=self.prefix)
        self.redis = redis.Redis.from_url(redis_url, decode_responses=True)
        self.workers: list[Worker] = []
        with sqlite3.connect(self.effects_file) as effects:
            effects.execute("PRAGMA journal_mode = WAL")
            effects.execute("CREATE TABLE effects (tag TEXT, key TEXT, pid INTEGER, what TEXT, at REAL)")
        effects.close()

    def worker(self, *, app: str = "roundelay_worker.app", words: tuple[str, ...] = (), **env: str) -> Worker:
        """Start a worker process."""
        log = self.home / f"{len(self.workers)}.log"
        worker = Worker(self.zygote, {**self.env, **env}, log, app=app, words=words)
        self.workers.append(worker)
        return worker

    def start(self, **env: str) -> Worker:
        """Start a worker process and wait until it consumes."""
        return self.worker(**env).ready()

    def ask(self, *steps: dict[str, Any], name: str, closing: dict[str, Any] | None = None, **options: Any) -> Job:
        """Submit a message whose replies are scripted; ``name`` counts its requests."""
        return self.client.submit(self.scripted(*steps, name=name, closing=closing), **options)

    @staticmethod
    def scripted(*steps: dict[str, Any], name: str, closing: dict[str, Any] | None = None) -> str:
        """Return the text of a message whose replies are scripted."""
        return f"Please. {script(*steps, name=name, closing=closing)}"

    def effects(self, tag: str, what: str = "did") -> list[tuple[str, int, float]]:
        """Return how the world was changed under ``tag``: (idempotency key, process, time)."""
        connection = sqlite3.connect(self.effects_file, timeout=10)
        try:
            found = connection.execute(
                "SELECT key, pid, at FROM effects WHERE tag = ? AND what = ? ORDER BY at", (tag, what)
            )
            return found.fetchall()
        finally:
            connection.close()

    def began(self, tag: str, times: int = 1) -> int:
        """Wait until a tool has begun ``times`` under ``tag``; return its process."""
        return eventually(lambda: self.effects(tag, "began")[times - 1 :], f"{tag} begins")[0][1]

    def show(self, message_id: str) -> Timeline:
        """Return everything that the database knows of a message."""

        async def look(store: Store) -> Timeline | None:
            return await store.timeline(message_id)

        found = self.stored(look)
        assert found is not None, f"the database does not know {message_id}"
        return found

    def known(self, job: Job) -> bool:
        """Say whether the database has a message."""
        return self.stored(lambda store: store.timeline(job.message_id)) is not None

    def stored(self, question: Any) -> Any:
        """Ask the database something, in a loop of our own."""

        async def asked() -> Any:
            store = await Store.open(self.env["ROUNDELAY_DATABASE_URL"])
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    def migrate(self) -> None:
        """Make the tables before any worker does."""
        self.stored(lambda store: store.migrate())

    def queued(self) -> int:
        """Return how many tasks wait in the broker."""
        return sum(self.redis.llen(queue(self.prefix)) for queue in (messages_queue, rounds_queue))

    def settled(self, *jobs: Job, patience: float = PATIENCE) -> list[Answer]:
        """Wait for all answers, and see what must hold after any story (the words above the cases)."""
        answers = [self._answer(job, patience) for job in jobs]
        for job, answer in zip(jobs, answers, strict=True):
            self._sound(job, answer)
        return answers

    def _answer(self, job: Job, patience: float) -> Answer:
        try:
            return job.wait(timeout=patience)
        except AnswerTimeout as exc:
            shown = replace(self.show(job.message_id), turns=(), updates=(), submission="")
            raise AssertionError(f"{exc}: {shown}; {self.queued()} tasks queued") from exc

    def _sound(self, job: Job, answer: Answer) -> None:
        assert answer.text
        shown = self.show(job.message_id)
        assert shown.status == answer.status
        assert [seq for seq, _ in shown.updates] == list(range(1, shown.seq + 1))
        assert all(call.status == "done" for turn in shown.turns for call in turn.calls)
        assert self.fake.refusals[self._refused :] == ()

    def sound_at_rest(self) -> None:
        """See that nothing runs, and that nothing of this deployment lives in Redis for ever but its queues."""
        counts = self.stored(lambda store: store.counts())
        assert (counts.ready, counts.running, counts.postponed, counts.parked) == (0, 0, 0, 0), counts
        lasting = [key for key in self.redis.scan_iter(f"{self.prefix}:*", count=1000) if self.redis.ttl(key) == -1]
        assert lasting == []

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.close()
        self.client.close()
        self.redis.close()


@contextmanager
def together(*works: Any) -> Iterator[None]:
    """Run the works beside the body, and raise what they raised."""
    faults: list[BaseException] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - raised below, in the test's own thread
            faults.append(exc)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        yield
    if faults:
        raise faults[0]
