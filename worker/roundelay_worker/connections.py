"""Connections to Redis that notice within seconds when nobody is there any more."""

import socket
from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

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
