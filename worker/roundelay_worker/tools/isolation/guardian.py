"""The process that stands between the worker and an isolated tool, and ends everything that the tool started.

Run as a script, with two inherited sockets: ``control`` from the worker, and the tool's own, which it only
hands on. It has one thread and imports next to nothing, so it may fork. It collects all orphans of the
tool (PR_SET_CHILD_SUBREAPER), also those that left their process group, and kills until none is left when

- the tool's process has ended,
- the worker closes ``control``, or dies (the kernel closes it then, whatever thread of it started this), or
- this process has another parent than at its start (a fork of the worker holds ``control`` open).

Should it be killed itself, the kernel kills the tool's process (PR_SET_PDEATHSIG). Where there is no
/proc (macOS) it kills the tool's process group instead. It exits when all is dead, which closes ``control``.
"""

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LOOK_AGAIN = 1.0
KILLING_TAKES_AT_MOST = 5.0
CHILD_MODULE = "roundelay_worker.tools.isolation.child"


def main(control_fd: int, job_fd: int, path: list[str]) -> None:
    """Fork the tool's process, watch until it or the worker ends, and leave nothing alive."""
    parent = os.getppid()
    control = socket.socket(fileno=control_fd)
    _set_process_option(PR_SET_CHILD_SUBREAPER, 1)
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, _stay)  # the worker decides when we end; a handler, unlike SIG_IGN, ends at exec
    child = os.fork()
    if child == 0:
        control.close()
        _become_tool(os.getppid(), job_fd, path)
    os.close(job_fd)
    _watch(control, child, parent)
    _kill_all(child)
    os._exit(0)


def _become_tool(guardian: int, job_fd: int, path: list[str]) -> None:
    """Go on as the tool's process; never returns."""
    status = 1
    try:
        os.setpgid(0, 0)
        _set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guardian:
            sys.path[:] = path
            importlib.import_module(CHILD_MODULE).main(socket.socket(fileno=job_fd))
            status = 0
    finally:
        os._exit(status)


def _stay(_signal: int, _frame: object) -> None:
    """Do nothing."""


def _set_process_option(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _watch(control: socket.socket, child: int, parent: int) -> None:
    """Return when the child has ended or the worker is done with it."""
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _stay)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while not _reap(child) and os.getppid() == parent:
            if any(key.fileobj is control for key, _ in selector.select(LOOK_AGAIN)):
                break
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
    signal.set_wakeup_fd(-1)


def _reap(child: int) -> bool:
    """Collect what has died; say whether the tool's process, or everything, is among it."""
    while True:
        try:
            dead, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if dead in (0, child):
            return dead == child


def _kill_all(child: int) -> None:
    """Kill every descendant, again and again until none is left to wait for."""
    ends_at = time.monotonic() + KILLING_TAKES_AT_MOST
    while time.monotonic() < ends_at:
        for pid in _descendants(os.getpid()):
            _kill(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _descendants(ancestor: int) -> list[int]:
    """Return the processes below ``ancestor``; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = list(children.get(ancestor, []))
    for pid in found:
        found.extend(children.get(pid, []))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
