"""Errors of Redis and of the network, told as ours: the one place where they are translated."""

import redis.exceptions as theirs

from roundelay.errors import ServiceUnavailable, Unreachable

REDIS_ERRORS = (theirs.RedisError, OSError)
"""What a call to Redis may raise."""


_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[ServiceUnavailable], str], ...] = (
    ((theirs.OutOfMemoryError,), ServiceUnavailable, "Redis is out of memory and stores nothing: raise its maxmemory"),
    (
        (theirs.AuthenticationError, theirs.AuthorizationError, theirs.NoPermissionError),
        ServiceUnavailable,
        "Redis refuses the user or password, or a permission is missing",
    ),
    ((theirs.ReadOnlyError,), ServiceUnavailable, "this Redis is a read-only replica: the URL must name the primary"),
    ((theirs.BusyLoadingError,), Unreachable, "Redis is still loading its data"),
    ((theirs.TimeoutError, TimeoutError), Unreachable, "Redis did not answer in time"),
    ((theirs.ConnectionError, OSError), Unreachable, "Redis cannot be reached"),
)
"""The first that fits counts: some of these are subclasses of later ones."""


def translate(error: BaseException) -> ServiceUnavailable:
    """Return what to raise instead of ``error``; no address, key or text of it is shown."""
    for types, ours, meaning in _MEANINGS:
        if isinstance(error, types):
            return ours(meaning)
    return ServiceUnavailable(f"Redis refuses the command ({_code(error)})")


def _code(error: BaseException) -> str:
    # The first word of a Redis error is its code (MISCONF, NOREPLICAS ...); the rest may quote arguments.
    code = str(error).partition(" ")[0]
    return code if code.isupper() and code.isalpha() else type(error).__name__
