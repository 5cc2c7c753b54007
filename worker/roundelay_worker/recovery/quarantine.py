"""The worker's side of a quarantine: starts the process that runs one message alone, and judges its end.

Only an end that the worker saw, and that can be the message's own doing, speaks against the message. A child that was
told to go was ended by a deploy: its message is run again, alone. One that lost its lease was frozen: by its message
(a call that keeps the interpreter's lock), unless the worker beside it lost its own, to a machine or a database.
Where a worker dies together with its child nobody can tell whose doing it was: the second such loss is final.
"""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from roundelay_worker.embedded.child import guarded
from roundelay_worker.process.identity import EXIT_BROKEN
from roundelay_worker.process.lease import EXIT_LEASE_LOST
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.records import Dispatch
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)

READY: Final = b"roundelay quarantine ready"
"""What a child that can begin writes on a line of its own, with its process's id behind it."""
EXIT_DONE: Final = 76
"""How a child ends whose round is done or given back. Not 0: that is how a tool ends its process, too."""
_SILENT: Final = (None, EXIT_LEASE_LOST)
"""How a child ends that did nothing for so long that others have its message; None: it was killed for it."""
_START: Final = 180.0
"""Seconds that a child may take until it can begin."""

Give = Callable[[], Awaitable[Dispatch | None]]
"""Gives up a message that the worker holds, and says how the child is to take it; None if it is not ours any more."""


class Quarantines:
    """The children of one worker process."""

    def __init__(self, store: Store, lease: float, may_judge: Callable[[], bool]) -> None:
        self._store = store
        self._lease = lease
        self._may_judge = may_judge
        self._children: set[asyncio.subprocess.Process] = set()
        self._leaving = False

    async def run(self, give: Give) -> tuple[Dispatch, ...]:
        """Have a child run what ``give`` gives once the child can begin; return the tasks to be sent when it died."""
        child = await asyncio.create_subprocess_exec(
            *guarded([sys.executable, "-m", "roundelay_worker.recovery.quarantine_child"], signal.SIGKILL),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._children.add(child)
        try:
            process_id = await _ready(child)
            dispatch = await give() if process_id else None
            code = await self._ended(child, process_id, dispatch)
        finally:
            self._children.discard(child)
        return await self._judged(process_id, dispatch, code) if dispatch is not None else ()

    def terminate(self) -> None:
        """Tell all children to give back what they run; whatever ends them from now on is our doing."""
        self._leaving = True
        for child in self._children:
            child.terminate()

    async def _ended(self, child: asyncio.subprocess.Process, process_id: str, dispatch: Dispatch | None) -> int | None:
        """Wait for a child's end; return its exit code, None if it had lost its lease and was killed."""
        line = None if dispatch is None else spelt(dispatch).encode()
        end = asyncio.ensure_future(child.communicate(line))
        while not (await asyncio.wait({end}, timeout=self._lease))[0]:
            if dispatch is not None and await self._is_lost(process_id):
                child.kill()  # frozen, or kept busy in one long call: somebody else has the message
                await end
                return None
        return child.returncode

    async def _is_lost(self, process_id: str) -> bool:
        try:
            return await self._store.is_lost(process_id)
        except StoreUnavailable:
            return False

    async def _judged(self, process_id: str, dispatch: Dispatch, code: int | None) -> tuple[Dispatch, ...]:
        if code == EXIT_DONE:
            return ()
        acquitted = self._leaving or code == EXIT_BROKEN or (code in _SILENT and not self._may_judge())
        extra = {"message_id": dispatch.message_id, "code": code, "by_message": not acquitted}
        log.warning("quarantine_ended", extra=extra)
        ended = await self._store.ended_alone(process_id, dispatch.message_id, convicted=not acquitted)
        return tuple([one.dispatch for one in ended])


async def _ready(child: asyncio.subprocess.Process) -> str:
    """Wait until a child can begin and return its process's id; empty if it ended instead or was too slow."""
    try:
        async with asyncio.timeout(_START):
            while child.stdout is not None and (line := await child.stdout.readline()):
                if line.startswith(READY):
                    return line.removeprefix(READY).strip().decode()
    except TimeoutError:
        child.kill()
    return ""


def spelt(dispatch: Dispatch) -> str:
    """Return a dispatch as the line that a quarantine reads."""
    return json.dumps([dispatch.message_id, dispatch.round, dispatch.dispatch, dispatch.queue])
