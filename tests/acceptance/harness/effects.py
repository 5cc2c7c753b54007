"""Tools that change an outside world, and tools that misbehave; loaded by the worker processes under test."""

import asyncio
import ctypes
import os
import signal
import sqlite3
import threading
import time
from functools import cache

import aiohttp

from roundelay_worker import ToolContext, ToolError, tool


def write(tag: str, what: str, key: str = "") -> None:
    """Append a row to the outside table: the world has changed."""
    connection = sqlite3.connect(os.environ["HARNESS_EFFECTS"], timeout=20)
    try:
        with connection:
            row = (tag, key, os.getpid(), what, time.time())
            connection.execute("INSERT INTO effects VALUES (?, ?, ?, ?, ?)", row)
    finally:
        connection.close()


def count(tag: str, what: str) -> int:
    """Return how often something happened under ``tag``."""
    connection = sqlite3.connect(os.environ["HARNESS_EFFECTS"], timeout=20)
    try:
        found = connection.execute("SELECT count(*) FROM effects WHERE tag = ? AND what = ?", (tag, what))
        return int(found.fetchone()[0])
    finally:
        connection.close()


@tool(effect="read", timeout=60)
def look(tag: str, seconds: float = 0.0) -> str:
    """Look at something, for a while."""
    write(tag, "began")
    time.sleep(seconds)
    return f"seen {tag}"


@tool(effect="read", timeout=60)
async def look_async(tag: str, seconds: float = 0.0) -> str:
    """Look at something without a thread."""
    write(tag, "began")
    await asyncio.sleep(seconds)
    return f"seen {tag}"


@tool(timeout=60)
def act(tag: str, context: ToolContext, before: float = 0.0, after: float = 0.0) -> str:
    """Change the world once, with a pause before and after."""
    write(tag, "began", context.idempotency_key)
    time.sleep(before)
    write(tag, "did", context.idempotency_key)
    time.sleep(after)
    return f"done {tag}"


@tool(timeout=60)
async def act_async(tag: str, context: ToolContext, before: float = 0.0, after: float = 0.0) -> str:
    """Change the world once, without a thread."""
    write(tag, "began", context.idempotency_key)
    await asyncio.sleep(before)
    write(tag, "did", context.idempotency_key)
    await asyncio.sleep(after)
    return f"done {tag}"


@tool(idempotent=True, timeout=60)
def act_idempotent(tag: str, context: ToolContext, after: float = 0.0) -> str:
    """Change the world under the key of the call."""
    write(tag, "did", context.idempotency_key)
    write(tag, "began", context.idempotency_key)
    time.sleep(after if count(tag, "began") == 1 else 0)
    return f"done {tag}"


def took_effect(tag: str) -> bool:
    """Say whether the world has changed."""
    return count(tag, "did") > 0


@tool(verify=took_effect, timeout=60)
def act_checked(tag: str, context: ToolContext, before: float = 0.0, after: float = 0.0) -> str:
    """Change the world so that it can be checked; slow the first time only."""
    first = count(tag, "began") == 0
    write(tag, "began", context.idempotency_key)
    time.sleep(before if first else 0)
    write(tag, "did", context.idempotency_key)
    time.sleep(after if first else 0)
    return f"done {tag}"


@tool(isolated=True, timeout=60)
def act_isolated(tag: str, context: ToolContext, before: float = 0.0, after: float = 0.0) -> str:
    """Change the world in a process of its own."""
    write(tag, "began", context.idempotency_key)
    time.sleep(before)
    write(tag, "did", context.idempotency_key)
    time.sleep(after)
    return f"done {tag}"


@tool(effect="read", timeout=60)
def die(tag: str, times: int = 1_000_000) -> str:
    """Take the process down, the first so many times."""
    write(tag, "began")
    if count(tag, "began") <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"alive {tag}"


@tool(timeout=60)
def witness(tag: str, context: ToolContext) -> str:
    """Note how the database, a SQLite file, has the write that is running now."""
    path = os.environ["ROUNDELAY_DATABASE_URL"].removeprefix("sqlite:///")
    connection = sqlite3.connect(path, timeout=20)
    try:
        query = "SELECT status FROM roundelay_calls WHERE message_id = ? AND effect = 'write'"
        found = [status for (status,) in connection.execute(query, (context.message_id,))]
    finally:
        connection.close()
    write(tag, f"saw {found}")
    return f"seen {tag}"


@tool(effect="read", timeout=60)
async def linger(tag: str, times: int) -> str:
    """Take long, the first so many times."""
    write(tag, "began")
    await asyncio.sleep(60 if count(tag, "began") <= times else 0)
    return f"seen {tag}"


@tool(effect="read", timeout=60)
async def leave(tag: str) -> str:
    """Linger once, then end the process as if all were well."""
    write(tag, "began")
    if count(tag, "began") == 1:
        await asyncio.sleep(60)
    os._exit(0)


@tool(effect="read", timeout=1)
async def stubborn(tag: str, seconds: float) -> str:
    """Go on although it is cancelled."""
    write(tag, "began")
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            await asyncio.sleep(ends - time.monotonic())
        except asyncio.CancelledError:
            continue
    write(tag, "did")
    return f"late {tag}"


@tool(effect="read", timeout=1)
def overrun(tag: str, seconds: float) -> str:
    """Sleep in a thread beyond its timeout."""
    write(tag, "began")
    time.sleep(seconds)
    return f"late {tag}"


@tool(timeout=1)
def overrun_write(tag: str, seconds: float) -> str:
    """Change the world long after its timeout."""
    write(tag, "began")
    time.sleep(seconds)
    write(tag, "did")
    return f"late {tag}"


@tool(effect="read", timeout=60)
def burn(tag: str, seconds: float) -> str:
    """Keep a thread of the interpreter busy."""
    write(tag, "began")
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(1000))
    write(tag, "did")
    return f"burnt {tag}"


@tool(effect="read", timeout=60)
async def block(tag: str, seconds: float) -> str:
    """Keep the event loop itself from turning, the first time only."""
    write(tag, "began")
    if count(tag, "began") == 1:
        time.sleep(seconds)  # noqa: ASYNC251 - the fault that is wanted
    return f"free {tag}"


@tool(effect="read")
def fail(tag: str) -> str:
    """Raise."""
    raise ToolError(f"no {tag}")


@tool(effect="read")
def threads(tag: str) -> int:
    """Return how many threads this process has."""
    return threading.active_count()


@tool(effect="read", timeout=10)
async def ask_web(url: str) -> int:
    """Ask a web server through a client that lives as long as the process."""
    async with web_client().get(url) as reply:
        return reply.status


@cache
def web_client() -> aiohttp.ClientSession:
    """Return the client of this process, made on the loop that the tools run on."""
    return aiohttp.ClientSession()


@tool(effect="read", timeout=10)
def ask_web_once(url: str) -> int:
    """Ask a web server through a client and an event loop of this call alone."""
    return asyncio.run(_asked(url))


async def _asked(url: str) -> int:
    async with aiohttp.ClientSession() as client, client.get(url) as reply:
        return reply.status


@tool(effect="read", timeout=5)
def freeze(tag: str, seconds: int = 100_000) -> str:
    """Hold the interpreter's lock in a C call: no thread of this process runs meanwhile."""
    write(tag, "began")
    ctypes.PyDLL(None).sleep(seconds)
    return "thawed"


@tool(effect="read", timeout=5)
async def end_the_loop(tag: str) -> str:
    """Raise what no event loop survives, from a callback of its own."""
    write(tag, "began")

    def leave() -> None:
        raise SystemExit(3)

    asyncio.get_running_loop().call_soon(leave)
    await asyncio.sleep(2)
    return "still here"
