"""Short forms that the tests of tools share."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from roundelay_worker import ToolContext
from roundelay_worker.loop.history import Call
from roundelay_worker.tools.declare.declared import Tool, tool_of
from roundelay_worker.tools.run.runner import Outcome, ToolRunner

CONTEXT = ToolContext("m1", "c1", "u1", "m1.1.0", "key-1", datetime(2031, 5, 1, 12, tzinfo=UTC), {"plan": "gold"})


def declared(function: object) -> Tool:
    found = tool_of(function)
    assert found is not None
    return found


def call_of(function: object, **arguments: Any) -> Call:
    return Call(declared(function).name, json.dumps(arguments))


async def run_with(
    runner: ToolRunner, function: object, seconds: float = 20, context: ToolContext = CONTEXT, **arguments: Any
) -> Outcome:
    tool = declared(function)
    return await runner.run(tool, call_of(function, **arguments), [tool.name], context, seconds)


def run_once(function: object, seconds: float = 20, **arguments: Any) -> Outcome:
    async def once() -> Outcome:
        runner = ToolRunner()
        try:
            return await run_with(runner, function, seconds, **arguments)
        finally:
            await runner.aclose()

    return asyncio.run(once())


def error_of(outcome: Outcome) -> dict[str, str]:
    assert outcome.result.is_error
    error = json.loads(outcome.result.text)["error"]
    assert set(error) == {"code", "message", "recovery"}
    assert error["code"] == outcome.code
    return error


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is awaited happens in other processes
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that is dead and not yet collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_until_dead(pids: list[int], seconds: float = 20) -> None:
    ends_at = time.monotonic() + seconds
    while any(map(is_alive, pids)):
        assert time.monotonic() < ends_at, f"still alive: {[pid for pid in pids if is_alive(pid)]}"
        time.sleep(0.01)
