"""A worker process as a deployment runs it: ``celery -A roundelay_worker.app worker``."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.waiting import eventually

COMMAND = (sys.executable, "-m", "celery", "-A")
QUIET = ("worker", "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO")
HERE = Path(__file__).parents[1]


class Worker:
    """One process; it is killed with everything that it started when its deployment closes."""

    def __init__(
        self, env: Mapping[str, str], log: Path, *, app: str = "roundelay_worker.app", words: tuple[str, ...] = ()
    ) -> None:
        self.log = log
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                [*COMMAND, app, *QUIET, "-n", f"w{log.stem}@%h", *words],
                env={**env, "PYTHONPATH": os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])},
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def ready(self) -> "Worker":
        """Return when it consumes."""
        eventually(lambda: self.process.poll() is not None or " ready." in self.said, "the worker is ready")
        assert self.process.poll() is None, self.said[-3000:]
        return self

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self, patience: float = 45) -> int:
        """Return its exit code, once it has ended."""
        return self.process.wait(patience)

    def close(self) -> None:
        """Leave nothing of it behind."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(30)
