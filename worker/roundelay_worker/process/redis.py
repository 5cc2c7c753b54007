"""Connections to Redis that notice within seconds when nobody is there any more."""

import logging
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from roundelay.names import ID_PATTERN

log = logging.getLogger(__name__)

_SILENCE = {"TCP_KEEPIDLE": 4, "TCP_KEEPALIVE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
"""Seconds, and milliseconds for the last; each system knows some of these."""


def keepalive() -> dict[int, int]:
    """Return socket options under which a silent peer is noticed within some ten seconds."""
    return {getattr(socket, name): value for name, value in _SILENCE.items() if hasattr(socket, name)}


def connect_redis(url: str) -> aioredis.Redis:
    """Return a client of our own use: eight connections for commands and one that listens, short waits."""
    pool = aioredis.BlockingConnectionPool.from_url(
        url,
        max_connections=9,
        timeout=5,
        socket_connect_timeout=3,
        socket_timeout=5,
        health_check_interval=0,
        retry=Retry(NoBackoff(), 1),
        **_watched(url),
    )
    return aioredis.Redis.from_pool(pool)


def _watched(url: str) -> dict[str, Any]:
    """Return what only a connection over a network takes."""
    return {} if url.startswith("unix:") else {"socket_keepalive": True, "socket_keepalive_options": keepalive()}


async def note_eviction(client: aioredis.Redis) -> None:
    """Log an error if this Redis would rather forget what it was told than refuse what is new."""
    with suppress(ResponseError):  # a user that may not ask
        policy = (await client.info("memory")).get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            log.error("redis_evicts", extra={"maxmemory_policy": policy})


def id_of(value: bytes | str) -> str | None:
    """Return the id that this is, None if it is none: what lies in Redis may have been written by anybody."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text if re.fullmatch(ID_PATTERN, text) else None


async def ids_in(redis: aioredis.Redis, key: str, members: Sequence[bytes | str]) -> list[str]:
    """Return the ids among the members of a sorted set, and remove from it what is none."""
    strangers = [member for member in members if id_of(member) is None]
    if strangers:
        log.warning("strangers_removed", extra={"key": key, "count": len(strangers)})
        await redis.zrem(key, *strangers)
    return [found for member in members if (found := id_of(member)) is not None]
