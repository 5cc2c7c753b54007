"""Runs a tool's call within its time and gives exactly one outcome, whatever the tool does.

Three kinds of tool, three ways to overrun:

async     runs as a task of the worker's event loop and is cancelled at its timeout. If it swallows the
          cancellation, its timeout result comes in time all the same, and the task is *loose*.
thread    a sync tool runs in a thread of its own. Python cannot end a thread: at its timeout the result
          comes in time, and the thread is loose.
isolated  a sync tool in a child process, killed at its timeout with everything it started: never loose.

What is loose is counted; when it ends, its late result goes to ``on_late``, and to nobody else.

A tool that burns CPU in a thread shares the interpreter's lock with the event loop: with the default
switch interval the loop waits up to 5 ms for each time it wants to run (``sys.setswitchinterval``), so
it is slowed, not stopped, unless the tool sits in a C call that keeps the lock. Declare such tools
``isolated=True``.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from roundelay_worker.loop.history import Call
from roundelay_worker.tools.context import ProgressGate, ToolContext
from roundelay_worker.tools.declare.declared import Tool
from roundelay_worker.tools.isolation.executor import Isolation, Job
from roundelay_worker.tools.run.abandoned import Conversation, LateHook, LooseCalls
from roundelay_worker.tools.run.arguments import read_arguments, with_context
from roundelay_worker.tools.run.calling import call_async, call_here
from roundelay_worker.tools.run.results import (
    Outcome,
    failure,
    timeout_failure,
    tool_failure,
    unknown_failure,
    unknown_tool_failure,
)
from roundelay_worker.tools.run.threads import Threads, in_thread
from roundelay_worker.tools.run.verifying import UNKNOWN, Verified, verify_async, verify_here

__all__ = ["DEFAULT_RESULT_BYTES", "Conversation", "LateHook", "Outcome", "ToolRunner", "Verified"]

DEFAULT_RESULT_BYTES = 1_048_576
CANCEL_GRACE = 0.25
"""Seconds that a cancelled task gets to clean up before its caller goes on."""


class ToolRunner:
    """Runs calls for one worker process, from one event loop.

    ``on_late(context, result)`` is called on the loop when a loose call ends. ``max_result_bytes`` bounds
    a single result. ``setup`` is ``module:function``, called in each child process before tools are
    imported there. Close it with ``aclose``.
    """

    def __init__(
        self,
        *,
        on_late: LateHook | None = None,
        max_result_bytes: int = DEFAULT_RESULT_BYTES,
        setup: str = "",
    ) -> None:
        self._limit = max_result_bytes
        self._loose = LooseCalls(on_late)
        self._threads = Threads("roundelay-tool")
        self._isolation = Isolation(setup)

    @property
    def loose(self) -> int:
        """How many calls are still at work although their caller has gone."""
        return len(self._loose)

    def loose_writes(self, conversation: Conversation) -> int:
        """Return how many loose writes of ``conversation`` (user_id or '', conversation_id) there are."""
        return self._loose.writes(conversation)

    def is_loose_write(self, call_id: str) -> bool:
        """Say whether this call is a write that goes on although its caller has gone."""
        return self._loose.is_write(call_id)

    async def run(
        self,
        tool: Tool | None,
        call: Call,
        allowed: Sequence[str],
        context: ToolContext,
        timeout: float,  # noqa: ASYNC109 - the timeout is a result here, not an error
    ) -> Outcome:
        """Run one call; ``timeout`` is in seconds. Raises nothing but CancelledError.

        When cancelled, an async tool is cancelled, a child process killed, and a thread let loose.
        """
        if tool is None or tool.name not in allowed:
            return unknown_tool_failure(call.name, allowed)
        arguments = read_arguments(tool, call)
        if isinstance(arguments, Outcome):
            return arguments
        if timeout <= 0:
            return timeout_failure(tool, max(timeout, 0), began=False)
        gate = ProgressGate(context.on_progress)
        try:
            return await self._run(tool, call, arguments, replace(context, on_progress=gate), timeout)
        except Exception as exc:  # noqa: BLE001 - no thread or no process to be had: a result, too
            return tool_failure(tool, exc)
        finally:
            gate.close()

    async def verify(
        self,
        tool: Tool,
        call: Call,
        context: ToolContext,
        timeout: float,  # noqa: ASYNC109 - the timeout is a result here, not an error
    ) -> Verified:
        """Ask the tool's ``verify`` whether a write of unknown outcome took effect; in doubt it is unknown.

        Whatever ``verify`` raises, or an overrun, is unknown. Raises nothing but CancelledError.
        """
        arguments = read_arguments(tool, call)
        if tool.verify is None or isinstance(arguments, Outcome) or timeout <= 0:
            return UNKNOWN
        question = partial(tool.verify.function, **tool.verify.arguments(arguments, context))
        try:
            # Not asyncio.wait_for: before Python 3.12 it drops a cancellation that comes with the result.
            async with asyncio.timeout(timeout):
                if tool.verify.kind == "async":
                    return await verify_async(question, self._limit)
                return await in_thread(self._threads, partial(verify_here, question, self._limit))
        except (TimeoutError, RuntimeError):
            return UNKNOWN

    async def aclose(self) -> None:
        """End the waiting child process and the idle threads; loose threads die with the worker."""
        self._threads.close()
        await self._isolation.aclose()

    async def _run(
        self, tool: Tool, call: Call, arguments: dict[str, Any], context: ToolContext, seconds: float
    ) -> Outcome:
        if tool.kind == "isolated":
            return await self._run_isolated(tool, call, context, seconds)
        full = with_context(tool, arguments, context)
        if tool.kind == "async":
            running: asyncio.Future[Outcome] = asyncio.create_task(call_async(tool, full, self._limit))
        else:
            running = in_thread(self._threads, partial(call_here, tool, full, self._limit))
        return await self._attend(tool, running, context, seconds)

    async def _attend(
        self, tool: Tool, running: asyncio.Future[Outcome], context: ToolContext, seconds: float
    ) -> Outcome:
        """Wait for ``running``; when its time is up or its caller is cancelled, let it go."""
        try:
            await asyncio.wait({running}, timeout=seconds)
            if running.done():
                return running.result()
            await self._let_go(tool, running, context)
        except asyncio.CancelledError:
            await self._let_go(tool, running, context)
            raise
        return timeout_failure(tool, seconds)

    async def _let_go(self, tool: Tool, running: asyncio.Future[Outcome], context: ToolContext) -> None:
        self._loose.add(running, tool, context)
        if isinstance(running, asyncio.Task):
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_GRACE)

    async def _run_isolated(self, tool: Tool, call: Call, context: ToolContext, seconds: float) -> Outcome:
        job = Job(tool.module, tool.name, call.arguments, context, self._limit)
        ended = await self._isolation.run(job, seconds)
        if ended.outcome is not None:
            return ended.outcome
        if ended.overran:
            return timeout_failure(tool, seconds, began=ended.began)
        if tool.effect == "write" and ended.began:
            return unknown_failure("The tool's process died")
        return failure("tool_crashed", "The tool's process died.", "Go on without it, or ask for less at once.")
