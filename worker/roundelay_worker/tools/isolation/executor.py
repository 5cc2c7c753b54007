"""Runs isolated tools: one child process a call, killed with everything it started when its call ends.

Not anyio's ``to_process``: it kills its one process and leaves what that started, and its processes carry
one caller's state to the next. ``subprocess`` starts a fresh interpreter (vfork and exec, safe in a worker
with many threads; nothing is forked from it), under the guardian of ``guardian.py``.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from roundelay_worker.tools.context import ToolContext
from roundelay_worker.tools.isolation.child import write_context
from roundelay_worker.tools.isolation.frames import Frame
from roundelay_worker.tools.isolation.guarded import Ended, GuardedChild


@dataclass(frozen=True, slots=True)
class Job:
    """What a child process is asked to do: call ``name`` of ``module`` with the JSON text ``arguments``."""

    module: str
    name: str
    arguments: str
    context: ToolContext
    limit: int

    @property
    def frame(self) -> Frame:
        """The job as it is sent."""
        asked = {"module": self.module, "name": self.name, "arguments": self.arguments, "limit": self.limit}
        return {"kind": "job", **asked, "context": write_context(self.context)}


class Isolation:
    """Starts a child for each job, and keeps one waiting, already set up, once there has been a first.

    Measured on two cores, Python 3.11: a call takes 0.5 s in a cold child and 25 to 40 ms in the waiting one
    (1.3 s, and 65 to 400 ms, with ten other processes at work). The imports take the time: pydantic 0.15 s,
    then the tool's own module.
    """

    def __init__(self, setup: str) -> None:
        self._setup = setup
        self._spare: GuardedChild | None = None
        self._closed = False
        self._starting: set[asyncio.Task[None]] = set()

    async def run(self, job: Job, seconds: float) -> Ended:
        """Do ``job`` in a process that is dead, with all it started, when this returns or raises."""
        child = await self._take(job.module)
        ended = Ended()
        try:
            async with asyncio.timeout(seconds):
                await child.converse(job.frame, ended, job.context.progress)
        except TimeoutError:
            ended.overran = True
        finally:
            await _in_any_case(child.end(ended))
            self._begin_spare(job.module)
        return ended

    async def aclose(self) -> None:
        """End the waiting child, and keep none any more."""
        self._closed = True
        await asyncio.gather(*self._starting)
        spare, self._spare = self._spare, None
        if spare is not None:
            await spare.end(Ended())

    async def _take(self, module: str) -> GuardedChild:
        spare, self._spare = self._spare, None
        if spare is not None and spare.alive:
            return spare
        if spare is not None:
            await spare.end(Ended())
        return await self._start(module)

    def _begin_spare(self, module: str) -> None:
        """Start the next child while the result of this one is already on its way."""
        starting = asyncio.get_running_loop().create_task(self._keep_spare(module))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def _keep_spare(self, module: str) -> None:
        if self._spare is not None or self._closed:
            return
        spare = await self._start(module)
        if self._spare is None and not self._closed:
            self._spare = spare
        else:
            await spare.end(Ended())

    async def _start(self, module: str) -> GuardedChild:
        return await GuardedChild.start({"kind": "prepare", "setup": self._setup, "modules": [module]})


async def _in_any_case(work: Coroutine[None, None, None]) -> None:
    """Await ``work`` to its end, also while this task is being cancelled."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
