"""Roundelay itself: ``roundelay worker`` as a user starts it, fed through ``roundelay.Client``."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import redis

from bench.model import free_port
from bench.script import Conversation
from bench.system import ROOT, Count, Place, System
from roundelay import AsyncClient, Client, names

ARRIVALS = 20
"""Submits under way at once, before all those readers follow at once."""

COMMAND = str(Path(sys.executable).with_name("roundelay"))


class Roundelay(System):
    """This project."""

    name = "roundelay"
    label = "Roundelay"
    note = "`roundelay worker --processes 2 --concurrency 500`, replies streamed, updates and answer on Redis"
    packages = ("roundelay", "celery", "redis", "asyncpg", "sqlmodel", "aiohttp")
    client_import = "import roundelay"

    def __init__(self, place: Place) -> None:
        self.ids: dict[str, str] = {}
        super().__init__(place)
        self.client = Client(redis_url=place.redis_url)

    def environment(self) -> dict[str, str]:
        """Return Roundelay's settings; all else is default."""
        return {
            "ROUNDELAY_REDIS_URL": self.place.redis_url,
            "ROUNDELAY_DATABASE_URL": self.place.database_url,
            "ROUNDELAY_MODEL": "chat:mock",
            "ROUNDELAY_CHAT_BASE_URL": self.place.model_url,
            "ROUNDELAY_CHAT_API_KEY": "mock",
            "ROUNDELAY_CONCURRENCY": str(self.place.concurrency),
            "ROUNDELAY_TOOL_MODULES": "bench.systems.ours_tools",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }

    def commands(self) -> list[list[str]]:
        """Return the worker; watched: Celery's own command with task events on, and Flower."""
        size = ["--concurrency", str(self.place.concurrency)]
        if not self.place.watched:
            return [[COMMAND, "worker", "--processes", str(self.place.processes), *size]]
        program = [sys.executable, "-m", "celery", "-A", "roundelay_worker.app", "worker", "--task-events"]
        quiet = ["--pool", "threads", *size, "--without-gossip", "--without-mingle"]
        workers = [[*program, "--hostname", f"bench-{n}@%h", *quiet] for n in range(self.place.processes)]
        return [*workers, [COMMAND, "flower", "--port", str(free_port())]]

    def worker_roots(self) -> int:
        """Count the workers, not Flower."""
        return self.place.processes if self.place.watched else 1

    def submit(self, conversation: Conversation) -> None:
        """Submit the message in a conversation of its own, with the one tool that all systems have."""
        rounds = max(conversation.script.rounds, 1)
        job = self.client.submit(
            conversation.text, conversation_id=conversation.id, tools=["lookup"], max_rounds=rounds
        )
        self.ids[conversation.id] = job.message_id

    async def first_words(self, conversations: Sequence[Conversation]) -> dict[str, float]:
        """Follow each message from one client process, as a web server with that many readers does."""
        arriving = asyncio.Semaphore(ARRIVALS)
        async with AsyncClient(redis_url=self.place.redis_url) as client:

            async def one(conversation: Conversation) -> tuple[str, float]:
                async with arriving:
                    job = await client.submit(conversation.text, conversation_id=conversation.id, tools=["lookup"])
                seen = 0.0
                async for update in job.follow():
                    if not seen and update.kind == "text_delta":
                        seen = monotonic()
                return conversation.id, seen

            return dict(await asyncio.gather(*map(one, conversations)))

    def ended(self, ids: list[str], count: Count) -> int:
        """Return for how many the final answer lies on Redis, where the web app finds it."""
        del count
        with redis.Redis.from_url(self.place.redis_url) as client, client.pipeline(transaction=False) as pipe:
            for name in ids:
                pipe.exists(names.answer_key(names.DEFAULT_PREFIX, self.ids[name]))
            return sum(pipe.execute())
