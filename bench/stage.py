"""One system on its stage: fresh database, workers warmed up, the mock model reset; what the measures work on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from time import monotonic

import psycopg

from bench.model import Call, Model, StillRunning
from bench.processes import Workers
from bench.quota import Quotas
from bench.script import Conversation, Script
from bench.services import Services
from bench.system import Place, System

WARM_UP = Script(rounds=3)
NUMBERS = count()
STAGES = count()


@dataclass(frozen=True)
class Setting:
    """How a measure wants its system started."""

    processes: int = 2
    concurrency: int = 500
    watched: bool = False
    share: float | None = None
    """Of a core: what each worker process is held to once it is warm; None for no such limit."""


@dataclass(frozen=True)
class Stage:
    """A running system with all that a measure reads."""

    system: System
    workers: Workers
    model: Model
    services: Services

    def conversations(self, number: int, script: Script) -> list[Conversation]:
        """Return new conversations with ids of their own."""
        return [Conversation(f"c{next(NUMBERS)}", script) for _ in range(number)]

    def play(self, conversations: Sequence[Conversation], timeout: float) -> dict[str, list[Call]]:
        """Submit all at once, wait for the last answer, return what the mock model saw."""
        self.model.reset()
        self.system.submit_all(conversations)
        self.wait(len(conversations), timeout)
        return self.model.records()

    def wait(self, finished: int, timeout: float) -> None:
        """Return once that many conversations have finished, or raise with what the workers printed."""
        try:
            self.model.wait(finished, timeout)
        except StillRunning as exc:
            raise StillRunning(f"{self.system.name}: {exc}\n{self.system.tail()}") from exc

    def ended(self, conversations: Sequence[Conversation], timeout: float = 20) -> int:
        """Return how many the system keeps as ended, waiting for the last ones."""
        ids = [conversation.id for conversation in conversations]
        until = monotonic() + timeout
        while (ended := self.system.ended(ids, self._count)) < len(ids) and monotonic() < until:
            self.workers.settle(1)
        return ended

    def check(self) -> None:
        """Raise if a program has ended already."""
        for root in self.system.roots:
            if root.poll() is not None:
                raise StillRunning(f"{self.system.name} ended with {root.returncode}:\n{self.system.tail()}")

    def _count(self, query: str, ids: list[str]) -> int:
        with psycopg.connect(self.system.place.database_url) as connection:
            row = connection.execute(query, [ids]).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def staged(kind: type[System], setting: Setting, services: Services, model: Model) -> Iterator[Stage]:
    """Start a system on an empty database and warm its processes up; end it all at the exit."""
    number = next(STAGES)
    database = f"bench_{number}"
    urls = services.fresh_database(database), services.fresh_redis(number)
    system = kind(Place(*urls, model.url, setting.processes, setting.concurrency, setting.watched))
    workers = Workers([root.pid for root in system.roots[: system.worker_roots()]])
    stage = Stage(system, workers, model, services)
    quotas = Quotas()
    try:
        warm_up(stage)
        if setting.share is not None:
            quotas.hold(workers.pids(), setting.share)
        yield stage
    finally:
        system.close()
        workers.kill()
        quotas.close()
        services.drop_database(database)


def warm_up(stage: Stage) -> None:
    """Play a few conversations twice: some processes import for seconds after the first ones answer."""
    stage.workers.settle(20)
    stage.check()
    for _ in range(2):
        stage.play(stage.conversations(20, WARM_UP), 60)
        stage.workers.settle()
