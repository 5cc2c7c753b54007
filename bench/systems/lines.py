"""How an in-process system gets its messages here: one line each on standard input."""

import asyncio
import sys
from collections.abc import Awaitable, Callable


async def serve_lines(answer: Callable[[str, str], Awaitable[None]]) -> None:
    """Start ``answer(id, text)`` as a task for each line, until the input ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Future[None]] = set()
    while line := await reader.readline():
        name, text = line.decode().rstrip("\n").split("\t", 1)
        task = asyncio.ensure_future(answer(name, text))
        running.add(task)
        task.add_done_callback(running.discard)
