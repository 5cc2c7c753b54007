"""What both shells need to know of redis-py: options of the pools, and how replies and notices look."""

from typing import Any, Final

from roundelay.feeds import BLOCK_SECONDS
from roundelay.looks import as_text
from roundelay.tickets import Notice

CONNECT_SECONDS: Final = 1.5
SOCKET_SECONDS: Final = 2.0
POOL: Final = 32
WAKE_SECONDS: Final = 1.0
"""A reader that is not woken looks by itself before long."""

SECOND_TRIES: Final = 1
"""A pooled connection may be stale after Redis restarted; every question may be put twice."""

CALL_OPTIONS: Final[dict[str, Any]] = {
    "max_connections": POOL,
    "timeout": SOCKET_SECONDS,
    "socket_connect_timeout": CONNECT_SECONDS,
    "socket_timeout": SOCKET_SECONDS,
    "socket_keepalive": True,
}

READER_OPTIONS: Final[dict[str, Any]] = {"socket_connect_timeout": CONNECT_SECONDS, "socket_keepalive": True}

_SHAPE: Final[dict[str, Any]] = {"protocol": 2, "decode_responses": False}


def open_calls(redis_class: Any, pool: Any) -> Any:
    """Return a client for questions."""
    return _raw(redis_class, pool, _SHAPE)


def open_reads(redis_class: Any, pool: Any) -> Any:
    """Return a client for the readers, which block on purpose: no shorter timeout of the URL may end that."""
    return _raw(redis_class, pool, _SHAPE | {"socket_timeout": BLOCK_SECONDS + SOCKET_SECONDS})


def _raw(redis_class: Any, pool: Any, fixed: dict[str, Any]) -> Any:
    pool.connection_kwargs.update(fixed)
    client = redis_class(connection_pool=pool)
    client.response_callbacks.clear()  # redis-py's shapes of replies change with its version and the protocol
    return client


def read_notice(message: dict[str, Any] | None) -> Notice | None:
    """Read what redis-py's PubSub returned."""
    if message is None:
        return None
    body, channel = message.get("data"), message.get("channel") or b""
    return Notice(message["type"], as_text(channel), body if isinstance(body, bytes) else b"")
