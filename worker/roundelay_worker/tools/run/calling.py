"""Calls a tool's function and turns whatever it does into an outcome."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from roundelay_worker.tools.declare.declared import Tool
from roundelay_worker.tools.run.results import Outcome, success, tool_failure

RAISED: Final = (Exception, SystemExit, BaseExceptionGroup)
"""What a tool on the event loop may raise without stopping the loop; KeyboardInterrupt stays the operator's."""


def call_here(tool: Tool, arguments: Mapping[str, Any], limit: int) -> Outcome:
    """Call a sync tool in this thread; never raises."""
    try:
        return success(tool.function(**arguments), limit)
    except BaseException as exc:  # noqa: BLE001 - a thread of ours has nobody else to tell
        return tool_failure(tool, exc)


async def call_async(tool: Tool, arguments: Mapping[str, Any], limit: int) -> Outcome:
    """Await an async tool; raises CancelledError only if this task was cancelled, not because the tool says so."""
    try:
        return success(await tool.function(**arguments), limit)
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return tool_failure(tool, exc)
    except RAISED as exc:
        return tool_failure(tool, exc)
