"""The workers as a deployment has them: pods that each run ``roundelay worker``, started again when they end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

COMMAND: Final = (sys.executable, "-c", "import sys; from roundelay_worker.cli import main; sys.exit(main())")
BACK_OFF: Final = 1.0
GUARDIAN: Final = "guardian.py"


class Pod:
    """One ``roundelay worker`` with one worker process in it."""

    def __init__(self, number: int, env: Mapping[str, str], logs: Path) -> None:
        self.name = f"pod-{number}"
        self._env = env
        self._log = logs / f"{self.name}.log"
        self.codes: list[int] = []
        self._due = 0.0
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                [*COMMAND, "worker", "--processes", "1"],
                env=self._env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._ended = False

    def tend(self) -> None:
        """Start it again a moment after it has ended."""
        code = self._running.poll()
        if code is None:
            return
        if not self._ended:
            self._ended, self._due = True, time.monotonic() + BACK_OFF
            self.codes.append(code)
        elif time.monotonic() >= self._due:
            self._start()

    @property
    def pid(self) -> int | None:
        """The process of ``roundelay worker``, None if it has ended."""
        return self._running.pid if self._running.poll() is None else None

    @property
    def worker(self) -> int | None:
        """The worker process, None while there is none."""
        return next(iter(children(self._running.pid)), None) if self.pid else None

    def guardians(self) -> list[int]:
        """Return the guardians of isolated tools."""
        return [each for each in children(self.worker or 0) if GUARDIAN in command_of(each)]

    def restart(self, patience: float) -> float:
        """End it warmly and start a new one; return the seconds that it took to end."""
        began = time.monotonic()
        self.end(patience)
        self._start()
        return time.monotonic() - began

    def end(self, patience: float) -> None:
        """End it warmly, by force if it does not end in time."""
        self._running.terminate()
        try:
            self.codes.append(self._running.wait(patience))
        except subprocess.TimeoutExpired:
            self._running.kill()
            self.codes.append(self._running.wait())


def children(pid: int) -> list[int]:
    """Return the child processes of a process, of all its threads."""
    return list(_children(pid))


def _children(pid: int) -> Iterator[int]:
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, listed.read_text().split())


def command_of(pid: int) -> str:
    """Return the command line of a process, '' if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
