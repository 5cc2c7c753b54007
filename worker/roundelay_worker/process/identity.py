"""Whether a worker process has ended: its lease cannot tell, the kernel of its machine can.

A process's id says where and when it began. One of another machine, or of another container, is never said to have
ended; neither is any where there is no ``/proc``.
"""

import os
import secrets
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

EXIT_BROKEN: Final = 74
"""How a process ends that has lost one of its parts."""
EXIT_LOOP_ENDED: Final = 77
"""How a process ends whose event loop was ended by what it was given to run."""

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Places in ``/proc/PID/stat`` after the name of the program."""


def new_process_id() -> str:
    """Return an id for this process that is used once: ``host-pid-machine.start.random``."""
    pid = os.getpid()
    began = f"{_machine()}.{started(pid) or ''}.{secrets.token_hex(4)}"
    return f"{socket.gethostname()}-{pid}-{began}"


def has_ended(process_id: str) -> bool:
    """Say whether a process is known to have ended."""
    _, pid, began = process_id.rsplit("-", 2)
    machine, since, _ = began.split(".")
    return bool(machine) and bool(since) and machine == _machine() and started(int(pid)) != since


@cache
def _machine() -> str:
    """Return what tells this kernel since its start, and this container's view of processes, from all others."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        return sha256(f"{boot} {(_PROC / 'self/ns/pid').readlink()}".encode()).hexdigest()[:8]
    except OSError:
        return ""


def has_proc() -> bool:
    """Say whether this system tells of its processes at all."""
    return (_PROC / "self").exists()


def started(pid: int) -> str | None:
    """Return when a process that can still act began, in the kernel's ticks."""
    try:
        words = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[_STATE] in {"Z", "X"} else words[_STARTED]
