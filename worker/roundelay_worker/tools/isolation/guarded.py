"""One child process under its guardian, as the worker sees it."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from roundelay_worker.loop.history import Result
from roundelay_worker.settings import SECRET_VARIABLES
from roundelay_worker.tools.isolation import guardian
from roundelay_worker.tools.isolation.frames import BrokenFrame, Frame, pack, read_frame
from roundelay_worker.tools.run.results import Outcome

KILL_WAIT = 2.0
"""Seconds to wait until everything is dead; then the guardian is killed as well and the caller goes on."""


@dataclass(slots=True)
class Ended:
    """What became of a job: ``outcome`` is None if it was not told. ``began``: the tool's code was entered."""

    outcome: Outcome | None = None
    began: bool = False
    overran: bool = False

    def note(self, frame: Frame) -> None:
        """Take up what the child says about its job."""
        if frame["kind"] == "began":
            self.began = True
        elif frame["kind"] == "ended":
            result = Result(frame["text"], is_error=frame["is_error"], said=frame["said"])
            self.outcome = Outcome(result, code=frame["code"])


@dataclass(frozen=True, slots=True)
class GuardedChild:
    """A started process. ``control`` closes when it and all it started are dead, ``job`` carries frames."""

    process: subprocess.Popen[bytes]
    control: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    job: tuple[asyncio.StreamReader, asyncio.StreamWriter]

    @classmethod
    async def start(cls, prepare: Frame) -> Self:
        """Start a child that makes itself ready as ``prepare`` says and waits for its job."""
        ours, theirs = zip(socket.socketpair(), socket.socketpair(), strict=True)
        try:
            process = _popen(theirs)
        except BaseException:
            for end in ours:
                end.close()
            raise
        finally:
            for end in theirs:
                end.close()
        control, job = [await asyncio.open_unix_connection(sock=end) for end in ours]
        job[1].write(pack(prepare))
        return cls(process, control, job)

    @property
    def alive(self) -> bool:
        """Whether it still waits for a job."""
        return self.process.poll() is None and not self.job[0].at_eof()

    async def converse(self, job: Frame, ended: Ended, on_progress: Callable[[str], None]) -> None:
        """Send ``job`` and note in ``ended`` what comes back, until the job or the process has ended."""
        reader, writer = self.job
        with contextlib.suppress(BrokenFrame, ConnectionError):
            writer.write(pack(job))
            await writer.drain()
            while ended.outcome is None and (frame := await read_frame(reader)):
                if frame["kind"] == "progress":
                    on_progress(frame["text"])
                ended.note(frame)

    async def end(self, ended: Ended) -> None:
        """Return when the child and everything it started are dead, after some four seconds at the latest.

        What it had said and nobody had read yet is noted in ``ended``: it may be the news that it never began.
        """
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(KILL_WAIT):
                self.control[1].write(b"k")
                await self.control[0].read()
        if not await self._gone():
            self.process.kill()
            await self._gone()
        with contextlib.suppress(BrokenFrame, TimeoutError):
            async with asyncio.timeout(KILL_WAIT):
                while frame := await read_frame(self.job[0]):
                    ended.note(frame)
        for _, writer in (self.control, self.job):
            await _close(writer)

    async def _gone(self) -> bool:
        """Say whether the guardian ends within a moment, and collect it."""
        for _ in range(50):
            if self.process.poll() is not None:
                return True
            await asyncio.sleep(0.002)
        return False


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def _popen(ends: tuple[socket.socket, ...]) -> subprocess.Popen[bytes]:
    descriptors = [end.fileno() for end in ends]
    command = [sys.executable, "-P", guardian.__file__, *map(str, descriptors), json.dumps(sys.path)]
    return subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
        command, stdin=subprocess.DEVNULL, pass_fds=descriptors, start_new_session=True, env=_environment()
    )


def _environment() -> dict[str, str]:
    """Return the worker's environment without its keys and addresses: they are no business of a tool."""
    return {name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES}
