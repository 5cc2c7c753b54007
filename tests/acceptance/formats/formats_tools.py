"""Tools that the scripted models of these tests call."""

import asyncio
from threading import Lock

from roundelay_worker import ToolContext, ToolError, tool

WRITTEN: list[str] = []
LOCK = Lock()


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
async def weather(city: str) -> dict[str, str]:
    """Tell the weather of a city."""
    await asyncio.sleep(0.03 if city == "Lisbon" else 0)
    return {"city": city, "sky": "clear"}


@tool(effect="read")
def broken(reason: str = "") -> str:
    """Never work."""
    raise ToolError(f"the device is off{reason}")


@tool
def note(text: str, context: ToolContext) -> str:
    """Write a note, once."""
    with LOCK:
        WRITTEN.append(context.idempotency_key)
    return f"noted: {text}"


@tool(effect="read")
def fill(size: int) -> str:
    """Return so many characters."""
    return "x" * size


@tool(effect="read", timeout=60)
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} s"
