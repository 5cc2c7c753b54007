"""Calls a tool's function and turns whatever it does into an outcome."""

import asyncio
from collections.abc import Mapping
from typing import Any

from roundelay_worker.tools.declare.declared import Tool
from roundelay_worker.tools.run.results import Outcome, success, tool_failure


def call_here(tool: Tool, arguments: Mapping[str, Any], limit: int) -> Outcome:
    """Call a sync tool in this thread; never raises."""
    try:
        value = tool.function(**arguments)
    except BaseException as exc:  # noqa: BLE001 - a thread of ours has nobody else to tell
        return tool_failure(tool, exc)
    return success(tool, value, limit, arguments)


async def call_async(tool: Tool, arguments: Mapping[str, Any], limit: int) -> Outcome:
    """Await an async tool; raises CancelledError only if this task was cancelled, not because the tool says so.

    Everything else that a tool raises is a failed call, as in a thread: GeneratorExit, pyo3's PanicException or a
    KeyboardInterrupt of its own would otherwise end the round without a trace, or the loop. The operator's Ctrl-C
    reaches the main thread, which runs no tool.
    """
    try:
        value = await tool.function(**arguments)
    except BaseException as exc:
        if is_cancelled(exc):
            raise
        return tool_failure(tool, exc)
    return success(tool, value, limit, arguments)


def is_cancelled(exc: BaseException) -> bool:
    """Return whether ``exc`` is the cancellation of the current task, rather than one that awaited code made up."""
    task = asyncio.current_task()
    return isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling() > 0
