"""The tools of the soak: each notes in a journal of its own that it took effect, in the moment in which it does.

``token`` is different in every call that a script asks for, so that the journal alone tells what was done twice.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any, Final

from roundelay_worker import ToolContext, ToolError, tool
from soak.journal import append, read

VARIABLE: Final = "SOAK_EFFECTS"
WRITES: Final = frozenset({"write_async", "write_sync", "write_isolated", "write_overrun", "write_verified"})
"""Writes that must not be done twice."""
IDEMPOTENT: Final = frozenset({"write_again_async", "write_again_sync", "write_again_isolated"})
READS: Final = frozenset({"read_async", "read_sync", "read_isolated", "read_failing"})


def _journal() -> Path:
    return Path(os.environ[VARIABLE])


def _note(context: ToolContext, name: str, token: str) -> str:
    row: dict[str, Any] = {
        "token": token,
        "tool": name,
        "call": context.call_id,
        "key": context.idempotency_key,
        "message": context.message_id,
        "pid": os.getpid(),
        "at": time.time(),
    }
    append(_journal(), row)
    return f"{token} done"


async def _noted(context: ToolContext, name: str, token: str, seconds: float) -> str:
    await asyncio.sleep(seconds / 2)
    done = await asyncio.to_thread(_note, context, name, token)
    await asyncio.sleep(seconds / 2)
    return done


def _noted_here(context: ToolContext, name: str, token: str, seconds: float) -> str:
    time.sleep(seconds / 2)
    done = _note(context, name, token)
    time.sleep(seconds / 2)
    return done


@tool(effect="read")
async def read_async(token: str, seconds: float, context: ToolContext) -> str:
    """Look something up."""
    return await _noted(context, "read_async", token, seconds)


@tool(effect="read")
def read_sync(token: str, seconds: float, context: ToolContext) -> str:
    """Look something up in a thread."""
    return _noted_here(context, "read_sync", token, seconds)


@tool(effect="read", isolated=True)
def read_isolated(token: str, seconds: float, context: ToolContext) -> str:
    """Look something up in a process of its own."""
    return _noted_here(context, "read_isolated", token, seconds)


@tool(effect="read")
async def read_failing(token: str, seconds: float) -> str:
    """Look something up that is not there."""
    await asyncio.sleep(seconds)
    raise ToolError(f"{token} is not there")


@tool
async def write_async(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down."""
    return await _noted(context, "write_async", token, seconds)


@tool
def write_sync(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down in a thread."""
    return _noted_here(context, "write_sync", token, seconds)


@tool(isolated=True)
def write_isolated(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down in a process of its own."""
    return _noted_here(context, "write_isolated", token, seconds)


@tool(timeout=0.5)
def write_overrun(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down, most likely too late."""
    return _noted_here(context, "write_overrun", token, seconds)


def _was_written(token: str, context: ToolContext) -> bool | None:
    """Say whether the write took effect; while it may still be on its way, nobody knows."""
    return True if any(row["token"] == token and row["call"] == context.call_id for row in read(_journal())) else None


@tool(verify=_was_written)
def write_verified(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down that can be looked up again."""
    return _noted_here(context, "write_verified", token, seconds)


@tool(idempotent=True)
async def write_again_async(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down under its key."""
    return await _noted(context, "write_again_async", token, seconds)


@tool(idempotent=True)
def write_again_sync(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down under its key in a thread."""
    return _noted_here(context, "write_again_sync", token, seconds)


@tool(idempotent=True, isolated=True)
def write_again_isolated(token: str, seconds: float, context: ToolContext) -> str:
    """Write something down under its key in a process of its own."""
    return _noted_here(context, "write_again_isolated", token, seconds)
