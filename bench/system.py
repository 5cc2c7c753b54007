"""What the benchmark asks of a system: start its workers, give it messages, say how many are durably done.

Programs import this too, so it needs nothing but the standard library: their memory is measured.
"""

import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.script import Conversation

ROOT = Path(__file__).parent.parent
SUBMITTERS = 4
"""Threads that submit a crowd of messages, as the threads of a web server do."""

Count = Callable[[str, list[str]], int]
"""Runs a counting statement on the system's database."""


@dataclass(frozen=True)
class Place:
    """Where a system runs, and how large."""

    database_url: str
    redis_url: str
    model_url: str
    processes: int = 2
    concurrency: int = 500
    watched: bool = False


class System(ABC):
    """A running system; construct it to start its workers."""

    name: ClassVar[str]
    label: ClassVar[str]
    note: ClassVar[str]
    has_queue: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]]
    ended_query: ClassVar[str]
    """Counts what the system itself keeps as ended among the ids given as an array."""

    client_import: ClassVar[str | None] = None
    """The statement that a web app runs to be able to submit."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.log = Path(tempfile.mkstemp(prefix=f"bench-{self.name}-", suffix=".log")[1])
        self.prepare()
        with self.log.open("wb") as log:
            self.roots = [self._start(command, log.fileno()) for command in self.commands()]

    def _start(self, command: Sequence[str], log: int) -> "subprocess.Popen[bytes]":
        environment = os.environ | {"PYTHONUNBUFFERED": "1"} | self.environment()
        return subprocess.Popen(command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def prepare(self) -> None:  # noqa: B027
        """Make tables, where a deployment would; nothing by default."""

    @abstractmethod
    def commands(self) -> list[list[str]]:
        """Return the commands to start, workers first."""

    def worker_roots(self) -> int:
        """Return how many of the commands are workers; the rest is not measured."""
        return len(self.commands())

    def environment(self) -> dict[str, str]:
        """Return what the programs read from their environment."""
        return {
            "BENCH_DATABASE_URL": self.place.database_url,
            "BENCH_REDIS_URL": self.place.redis_url,
            "BENCH_MODEL_URL": self.place.model_url,
            "BENCH_CONCURRENCY": str(self.place.concurrency),
            "BENCH_PROCESSES": str(self.place.processes),
        }

    @abstractmethod
    def submit(self, conversation: Conversation) -> None:
        """Hand over one message; returns once it is accepted. Called from several threads."""

    def submit_all(self, conversations: Sequence[Conversation]) -> None:
        """Hand over a crowd, from several threads."""
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            for _ in pool.map(self.submit, conversations):
                pass

    def ended(self, ids: list[str], count: Count) -> int:
        """Return how many of these messages the system itself keeps as ended."""
        return count(self.ended_query, ids)

    def close(self) -> None:
        """Ask the programs to end, and wait five seconds for it; who starts them kills what is left."""
        for root in self.roots:
            root.terminate()
        for root in self.roots:
            with suppress(subprocess.TimeoutExpired):
                root.wait(5)

    def tail(self) -> str:
        """Return the end of what the workers printed."""
        return self.log.read_text(errors="replace")[-2_000:]


class InProcess(System):
    """A system without a queue of its own: messages go to a running process through a pipe, in turn."""

    has_queue = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._turn = 0

    def commands(self) -> list[list[str]]:
        """Return one command per process."""
        return [[sys.executable, "-m", type(self).__module__] for _ in range(self.place.processes)]

    def submit(self, conversation: Conversation) -> None:
        """Write a line to the next process."""
        self.submit_all([conversation])

    def submit_all(self, conversations: Sequence[Conversation]) -> None:
        """Write lines to the processes in turn."""
        for conversation in conversations:
            pipe = self.roots[self._turn % len(self.roots)].stdin
            assert pipe is not None
            pipe.write(f"{conversation.id}\t{conversation.text}\n".encode())
            self._turn += 1
        for root in self.roots:
            assert root.stdin is not None
            root.stdin.flush()
