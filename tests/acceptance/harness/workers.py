"""A worker process as a deployment runs it: ``celery -A roundelay_worker.app worker``."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.waiting import eventually

QUIET = ("worker", "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO")
HERE = Path(__file__).parents[1]


class Zygote:
    """What workers are forked from; see ``zygote.py``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.zygote"],
            env={**os.environ, "PYTHONPATH": str(HERE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **words: Any) -> Any:
        """Ask for one thing; safe from any thread."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{json.dumps(words)}\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End everything that was started."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


class Worker:
    """One process; it is killed with everything that it started when its deployment closes."""

    def __init__(
        self,
        zygote: Zygote,
        env: Mapping[str, str],
        log: Path,
        *,
        app: str = "roundelay_worker.app",
        words: tuple[str, ...] = (),
    ) -> None:
        self.log = log
        self._zygote = zygote
        path = os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])
        argv = ["-A", app, *QUIET, "-n", f"w{log.stem}@%h", *words]
        self.pid: int = zygote.ask(env={**env, "PYTHONPATH": path}, argv=argv, log=str(log))

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        code: int | None = self._zygote.ask(pid=self.pid)
        return code

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def ready(self) -> "Worker":
        """Return when it consumes."""
        eventually(lambda: self.code is not None or " ready." in self.said, "the worker is ready")
        assert self.code is None, self.said[-3000:]
        return self

    def kill(self) -> None:
        """End it as a power cut does."""
        os.kill(self.pid, signal.SIGKILL)
        self.ended()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def ended(self, patience: float = 45) -> int:
        """Return its exit code, once it has ended."""
        eventually(lambda: self.code is not None, "the worker ends", patience)
        code = self.code
        assert code is not None
        return code

    def close(self) -> None:
        """Leave nothing of it behind."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.ended()
