"""The floor: an agent loop in the web process itself; all is lost when it dies."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import uvloop

from bench.system import Count, InProcess
from bench.systems.lines import serve_lines
from bench.tools import SCHEMA, lookup

Messages = list[dict[str, Any]]
Save = Callable[[str, Messages], Awaitable[None]]


class Bare(InProcess):
    """Nothing is saved."""

    name = "bare"
    label = "bare loop"
    note = "aiohttp and orjson on uvloop, in the web process, no state: the floor"
    packages = ("aiohttp", "uvloop")

    def ended(self, ids: list[str], count: Count) -> int:
        """Keep nothing, so nothing can be asked."""
        del count
        return len(ids)


async def save_nothing(name: str, messages: Messages) -> None:
    """Keep no state."""
    del name, messages


async def answer(session: aiohttp.ClientSession, name: str, text: str, save: Save) -> None:
    """Run the loop of one message, saving after each turn and its results."""
    messages: Messages = [{"role": "user", "content": text}]
    while True:
        body = {"model": "mock", "messages": messages, "tools": [SCHEMA]}
        async with session.post("chat/completions", data=orjson.dumps(body)) as reply:
            message = orjson.loads(await reply.read())["choices"][0]["message"]
        messages.append(message)
        for call in message.get("tool_calls") or ():
            result = lookup(**orjson.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        await save(name, messages)
        if not message.get("tool_calls"):
            return


def session() -> aiohttp.ClientSession:
    """Return the one HTTP session of the process."""
    return aiohttp.ClientSession(
        os.environ["BENCH_MODEL_URL"] + "/",
        connector=aiohttp.TCPConnector(limit=0),
        headers={"content-type": "application/json"},
        timeout=aiohttp.ClientTimeout(total=300),
    )


async def main() -> None:
    """Answer the messages on standard input."""
    async with session() as http:
        await serve_lines(lambda name, text: answer(http, name, text, save_nothing))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
