"""Connections of commands that only look: they give up soon."""

from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from roundelay_worker.settings import Settings

PATIENCE: Final = 3.0
"""Seconds."""


def connect_redis(settings: Settings) -> redis.Redis:
    """Return a connection that gives up soon."""
    return redis.Redis.from_url(
        settings.redis_url,
        socket_connect_timeout=PATIENCE,
        socket_timeout=PATIENCE,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )
