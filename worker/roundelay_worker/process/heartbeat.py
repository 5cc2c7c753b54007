"""The heartbeat of a worker process: a small file that shows, without any server, that its Python still runs.

A call that keeps the interpreter's lock stops every thread, so nothing inside the process can notice; and a lease in
the database would call a process dead whenever the database is away. The file is written by a thread that does
nothing else, and read by the supervisor and by ``roundelay healthz --live``.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from roundelay_worker.process.identity import has_proc, started
from roundelay_worker.settings import SUPERVISED

EVERY: Final = 1.0
"""Seconds between two beats."""
SILENT: Final = 15.0
"""Seconds without a beat after which a process counts as frozen, where nothing says how long its lease is."""


def silent_after(lease: float) -> float:
    """Return the seconds without a beat after which a process is frozen: its lease has long run out by then."""
    return max(2.5 * lease, 6 * EVERY)


@dataclass(slots=True)
class Deeds:
    """What a process has done: rounds; and since it was told to stop, messages finished and handed over."""

    rounds: int = 0
    finished: int = 0
    handed_over: int = 0


class Heartbeat:
    """Beats until stopped."""

    def __init__(self) -> None:
        self.deeds = Deeds()
        self._file = heartbeat_file(os.getpid())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roundelay-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; from now on silence means that the process is frozen."""
        self._thread.start()

    def count_round(self) -> None:
        """Count a round; the first is told at once, since it tells a process that works from one that cannot start."""
        self.deeds.rounds += 1
        if self.deeds.rounds == 1:
            self._write()

    def stop(self) -> None:
        """Write what was done, once more, and stop; the file stays for a supervisor, if there is one."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=EVERY)
            self._write()
        if SUPERVISED not in os.environ:
            forget(os.getpid())

    def _run(self) -> None:
        while True:
            self._write()
            if self._stop.wait(EVERY):
                return

    def _write(self) -> None:
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):  # a full disk is no reason to be killed: the time is written by who reads
            self._file.touch(mode=0o600)
        with suppress(OSError):
            self._file.write_text(json.dumps(asdict(self.deeds)))


def heartbeat_file(pid: int) -> Path:
    """Return the file of a process of this user on this machine."""
    return Path(tempfile.gettempdir(), f"roundelay-{os.getuid()}", f"{pid}.alive")


def deeds_of(pid: int) -> Deeds:
    """Return what a process wrote last; nothing done if it never beat."""
    try:
        return Deeds(**json.loads(heartbeat_file(pid).read_text()))
    except (OSError, ValueError, TypeError):
        return Deeds()


def last_beat(pid: int) -> float | None:
    """Return when a process beat last, in seconds since the epoch; None if it never did."""
    try:
        return heartbeat_file(pid).stat().st_mtime
    except OSError:
        return None


def forget(pid: int) -> None:
    """Remove the file of a process that has ended, and its folder after the last."""
    file = heartbeat_file(pid)
    with suppress(OSError):
        file.unlink()
    with suppress(OSError):
        file.parent.rmdir()


def frozen(silent: float = SILENT) -> Iterator[int]:
    """Yield the processes of this user on this machine that live and have not beaten for ``silent`` seconds."""
    for file in heartbeat_file(0).parent.glob("*.alive"):
        pid = int(file.stem)
        beat = last_beat(pid)
        if has_proc() and started(pid) is None:
            forget(pid)
        elif beat is not None and time.time() - beat > silent:
            yield pid
