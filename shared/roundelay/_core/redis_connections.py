"""redis-py as both runners use it: options of the pools, raw replies, and its errors translated into ours."""

import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import redis.exceptions as theirs

from roundelay._core.follow import BLOCK_SECONDS
from roundelay._core.redis_commands import as_text
from roundelay._core.wait import Notice
from roundelay.errors import ServiceUnavailable, Unreachable, UnreadableRecord

CONNECT_SECONDS: Final = 1.5
SOCKET_SECONDS: Final = 2.0
POOL: Final = 32
WAKE_SECONDS: Final = 1.0
"""A reader that is not woken looks by itself before long."""

SECOND_TRIES: Final = 1
"""A pooled connection may be stale after Redis restarted; every question may be put twice."""

OURS: Final = frozenset({"protocol", "decode_responses", "encoding", "max_connections", "timeout", "retry_on_timeout"})
"""What a URL's query must not decide: the shape of replies, and the bounds of a call."""

_SOCKET: Final[dict[str, Any]] = {"protocol": 2, "socket_connect_timeout": CONNECT_SECONDS}

_CALLS: Final = _SOCKET | {"max_connections": POOL, "timeout": SOCKET_SECONDS, "socket_timeout": SOCKET_SECONDS}
"""The pool of connections for questions."""

_READS: Final = _SOCKET | {"socket_timeout": BLOCK_SECONDS + SOCKET_SECONDS}
"""The connections of the two readers, which block on purpose."""


def call_options(url: str) -> dict[str, Any]:
    """Return the options of the pool for questions."""
    return _CALLS | _keepalive(url)


def read_options(url: str) -> dict[str, Any]:
    """Return the options of the pool for the two readers."""
    return _READS | _keepalive(url)


def _keepalive(url: str) -> dict[str, Any]:
    return {} if url.startswith("unix:") else {"socket_keepalive": True}


def without_our_options(url: str) -> str:
    """Return ``url`` without what we decide ourselves; the query of a URL would beat the options of a pool."""
    base, mark, query = url.partition("?")
    rest = [(name, value) for name, value in parse_qsl(query) if not _is_ours(name)]
    return base + (mark + urlencode(rest) if rest else "")


def _is_ours(name: str) -> bool:
    return name in OURS or name.startswith("socket_")


def raw(client: Any) -> Any:
    """Return ``client`` with replies as they come: redis-py's shapes of them change with its version."""
    client.response_callbacks.clear()
    return client


def read_notice(message: dict[str, Any] | None) -> Notice | None:
    """Read what redis-py's PubSub returned."""
    if message is None:
        return None
    body, channel = message.get("data"), message.get("channel") or b""
    return Notice(message["type"], as_text(channel), body if isinstance(body, bytes) else b"")


REDIS_ERRORS = (theirs.RedisError, OSError, ValueError, TypeError, LookupError, AttributeError)
"""What a call to Redis may raise; the last four where what comes is no reply at all."""

RECONNECTING: Final = (theirs.ConnectionError, theirs.TimeoutError, theirs.ReadOnlyError, theirs.MasterDownError)
"""Errors after which a call is made once more, on a new connection: after a failover another server answers there."""


_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[ServiceUnavailable], str], ...] = (
    ((theirs.OutOfMemoryError,), ServiceUnavailable, "Redis is out of memory and stores nothing: raise its maxmemory"),
    (
        (theirs.AuthenticationError, theirs.AuthorizationError, theirs.NoPermissionError),
        ServiceUnavailable,
        "Redis refuses the user or password, or a permission is missing",
    ),
    (
        (theirs.ReadOnlyError,),
        Unreachable,
        "this Redis is a read-only replica: it fails over, or the URL must name the primary",
    ),
    ((theirs.MasterDownError,), Unreachable, "this Redis is a replica that has lost its primary"),
    ((theirs.TryAgainError, theirs.ClusterDownError), Unreachable, "Redis cannot serve this for now"),
    ((theirs.BusyLoadingError,), Unreachable, "Redis is still loading its data"),
    ((theirs.TimeoutError, TimeoutError), Unreachable, "Redis did not answer in time"),
    ((theirs.ConnectionError, OSError), Unreachable, "Redis cannot be reached"),
)
"""The first that fits counts: some of these are subclasses of later ones."""


_PASSING: Final = re.compile(
    r"(?:^|[ -])(READONLY|MASTERDOWN|BUSY|UNBLOCKED|LOADING|TRYAGAIN|CLUSTERDOWN|NOREPLICAS)\b"
)
"""Refusals that end by themselves. Before Redis 7 a script's error had its code in the middle."""


def translate(error: BaseException) -> ServiceUnavailable | UnreadableRecord:
    """Return what to raise instead of ``error``; no address, key or text of it is shown."""
    for types, ours, meaning in _MEANINGS:
        if isinstance(error, types):
            return ours(meaning)
    if isinstance(error, theirs.RedisError):
        if "WRONGTYPE" in str(error):
            return UnreadableRecord("Redis holds something of another kind under a name of this message")
        if passing := _PASSING.search(str(error)):
            return Unreachable(f"Redis refuses the command for now ({passing[1]})")
        return ServiceUnavailable(f"Redis refuses the command ({_code(error)})")
    return Unreachable(f"Redis said something that is no reply ({type(error).__name__})")


def _code(error: BaseException) -> str:
    # The first word of a Redis error is its code (MISCONF, NOREPLICAS ...); the rest may quote arguments.
    code = str(error).partition(" ")[0]
    return code if code.isupper() and code.isalpha() else type(error).__name__
