"""What the database knows to be unpublished, and what Redis has forgotten."""

import logging
from typing import Final

import redis.asyncio as aioredis

from roundelay.names import FILLED, database_key, filled_key
from roundelay_worker.delivery.publisher import Publisher, publishing
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)

_QUIET: Final = 2.5
"""Seconds after a save before its updates count as forgotten by whoever saved them."""
_AT_ONCE: Final = 500
_REMEMBERED: Final = 30 * 86_400
"""Seconds that Redis keeps whose prefix it is, from the last sweep on."""

_FILLING: Final = 60
"""Seconds after which a process that was to fill Redis counts as lost."""


class WrongDatabase(Exception):
    """This prefix of this Redis belongs to another database."""


class Outbox:
    """Publishes what a crash kept from being published, and fills a Redis that lost its memory."""

    def __init__(self, redis: aioredis.Redis, prefix: str, store: Store, publisher: Publisher, ttl: float) -> None:
        self._redis = redis
        self._prefix = prefix
        self._store = store
        self._publisher = publisher
        self._ttl = ttl

    async def catch_up(self) -> None:
        """Publish what was saved some time ago and is not known to be published."""
        for publication in await self._store.unpublished(_QUIET, _AT_ONCE):
            self._publisher.publish(publishing(publication))

    async def check_redis(self) -> None:
        """Claim this prefix for our database, and rebuild it if Redis has forgotten us."""
        await self._claim()
        key = filled_key(self._prefix)
        if await self._redis.set(key, "filling", nx=True, ex=_FILLING):
            await self._rebuild_all()
            await self._redis.set(key, FILLED, ex=_REMEMBERED)
        elif _text(await self._redis.get(key)) == FILLED:
            await self._redis.expire(key, _REMEMBERED)

    async def _claim(self) -> None:
        database_id = await self._store.database_id()
        key = database_key(self._prefix)
        if await self._redis.set(key, database_id, nx=True, ex=_REMEMBERED):
            return
        if _text(await self._redis.getex(key, ex=_REMEMBERED)) not in {database_id, None}:
            raise WrongDatabase(
                f"The prefix {self._prefix} of this Redis belongs to another database: "
                "set ROUNDELAY_DATABASE_URL to that one, or ROUNDELAY_PREFIX to another prefix."
            )

    async def _rebuild_all(self) -> None:
        """Make again what readers may still ask for: live messages, and answers that have not expired."""
        since = await self._store.now() - self._ttl
        rebuilt, after_id = 0, ""
        while live := await self._store.live_messages(_AT_ONCE, after_id=after_id):
            after_id = live[-1].message_id
            rebuilt += sum([await self._publisher.restore(publication) for publication in live])
        while recent := await self._store.recent_answers(since, _AT_ONCE, after_id=after_id):
            since, after_id = recent[-1].ended_at, recent[-1].message_id
            rebuilt += sum([await self._publisher.restore(publication) for publication in recent])
        if rebuilt:
            log.warning("redis_rebuilt", extra={"messages": rebuilt})

    async def restore(self, message_id: str) -> None:
        """Make one message's stream and answer again, if the database has it."""
        await self._publisher.rebuild(message_id)


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
