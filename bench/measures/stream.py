"""Two hundred readers at once: from the model's first word to the reader's, through a system and without one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Protocol, runtime_checkable

import aiohttp

from bench.measures.numbers import percentile
from bench.script import Conversation, Script
from bench.stage import Stage

ANSWER = Script(rounds=0, think_ms=5_000, pieces=40, piece_ms=50)
"""The think time lets every reader be there before the first word."""


@runtime_checkable
class Streaming(Protocol):
    """A system whose readers, in another process, see text as it comes."""

    async def first_words(self, conversations: Sequence[Conversation]) -> dict[str, float]:
        """Submit all, follow all to the end, and return when each reader saw its first text."""


def stream(stage: Stage, conversations: int = 200) -> dict[str, float]:
    """Return the delay of the first text at the reader, through the system and straight from the model."""
    assert isinstance(stage.system, Streaming)
    through = delays(stage, stage.conversations(conversations, ANSWER), stage.system.first_words)
    straight = delays(stage, stage.conversations(conversations, ANSWER), lambda each: direct(stage.model.url, each))
    return {
        "first_text_p50_ms": percentile(through, 50),
        "first_text_p95_ms": percentile(through, 95),
        "direct_p50_ms": percentile(straight, 50),
    }


def delays(
    stage: Stage,
    conversations: Sequence[Conversation],
    read: Callable[[Sequence[Conversation]], Awaitable[dict[str, float]]],
) -> list[float]:
    """Return the milliseconds from the model's first word to each reader's."""
    stage.model.reset()

    async def bounded() -> dict[str, float]:
        async with asyncio.timeout(120):
            return await read(conversations)

    seen = asyncio.run(bounded())
    records = stage.model.records()
    return [1e3 * (at - records[name][-1].first_text) for name, at in seen.items()]


async def direct(url: str, conversations: Sequence[Conversation]) -> dict[str, float]:
    """Read the streams straight from the model."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(conversation: Conversation) -> tuple[str, float]:
            body = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": conversation.text}]}
            seen = 0.0
            async with session.post(f"{url}/chat/completions", json=body) as reply:
                async for line in reply.content:
                    if not seen and b'"content":"You' in line:
                        seen = monotonic()
            return conversation.id, seen

        return dict(await asyncio.gather(*map(one, conversations)))
