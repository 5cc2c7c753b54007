"""A server of our own: started with its folder locked, ended with us, and never two on one folder."""

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from roundelay_worker.embedded import guard as embedded_guard

LOOPBACK: Final = "127.0.0.1"
PATIENCE: Final = 15.0
"""Seconds that a server gets to start, to stop, or to leave a folder to its successor."""
_LOG_TAIL: Final = 2_000


class EmbeddedError(Exception):
    """An embedded server cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an embedded server listens, kept in its folder so that a restart has the same address."""

    port: int
    password: str


def guarded(command: list[str], at_parents_death: signal.Signals, user: int | None = None) -> list[str]:
    """Return ``command`` so that it runs as ``user`` and gets a signal when this process dies, however it dies.

    Start it from the main thread: the kernel looks at the death of the thread that started it.
    """
    guard = [sys.executable, "-I", "-S", embedded_guard.__file__]
    return [*guard, str(int(at_parents_death)), str(os.getpid()), "" if user is None else str(user), *command]


def last_address(folder: Path) -> Address:
    """Return the address that the server of this folder had; a fresh password, and no port, if there was none."""
    try:
        return Address(**json.loads((folder / "address.json").read_text()))
    except (OSError, ValueError, TypeError):
        return Address(0, secrets.token_urlsafe(24))


def next_address(folder: Path) -> Address:
    """Return the same address as before, with another port if that one is taken, and remember it."""
    before = last_address(folder)
    address = Address(free_port(before.port), before.password)
    write_private(folder / "address.json", json.dumps(asdict(address)))
    return address


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)


@contextmanager
def locked(file: Path, refusal: str) -> Iterator[int]:
    """Hold the lock of ``file``; raise EmbeddedError(refusal) if another has it.

    The lock is the kernel's: whoever had it and was killed has it no more. A child that is handed the
    descriptor shares it, so a server that outlives us keeps its folder locked.
    """
    with file.open("a+") as stream:
        if not _try_lock(stream.fileno()):
            raise EmbeddedError(refusal)
        yield stream.fileno()


@contextmanager
def inherited(folder: Path, end_leftover: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of a server's folder, which the server is to share.

    The caller has the lock of the home folder, so a server that still uses this one is left over from a
    run that was killed: it is asked to end, and waited for.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as stream:
        if not _try_lock(stream.fileno()):
            end_leftover()
        if not until(lambda: _try_lock(stream.fileno()), PATIENCE):
            raise EmbeddedError(f"a server left over from an earlier run still uses {folder}: end it, then try again")
        yield stream.fileno()


def until(condition: Callable[[], bool], patience: float) -> bool:
    """Return whether ``condition`` came true within ``patience`` seconds; it is looked at once at least."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


@dataclass(frozen=True)
class Child:
    """A running server."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Return when ``ready`` says so; raise EmbeddedError with the end of the log if it dies or takes too long."""
        if not until(lambda: self.process.poll() is not None or ready(), PATIENCE) or self.process.poll() is not None:
            self.stop(signal.SIGKILL)
            raise EmbeddedError(f"{self.name} did not start; the end of {self.log}:\n{self._tail()}")

    def stop(self, how: signal.Signals) -> None:
        """End the server: by ``how``, and by force if that is not heard."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_TAIL:].strip()


def start_child(
    name: str,
    command: list[str],
    *,
    folder: Path,
    lock: int,
    at_parents_death: signal.Signals,
    words: str = "",
    user: int | None = None,
) -> Child:
    """Start a server in its folder, in a session of its own (a Ctrl-C is ours to pass on), with ``words`` as input."""
    log = folder / f"{name}.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603  # the command is ours
            guarded(command, at_parents_death, user),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
            start_new_session=True,
        )
    _say(process, words)
    return Child(name, log, process)


def _say(process: subprocess.Popen[bytes], words: str) -> None:
    if process.stdin is not None:
        with process.stdin as stream:
            stream.write(words.encode())


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_port(wanted: int) -> int:
    """Return ``wanted`` if it is free on the loopback, else another port that is."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, wanted))
        except OSError:
            listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
    return port
