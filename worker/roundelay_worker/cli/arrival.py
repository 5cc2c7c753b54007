"""Whether what ``roundelay up`` started has come up: it has once one of its workers says that it takes work."""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from redis.exceptions import RedisError

from roundelay.names import alive_key
from roundelay_worker.cli.connecting import connect_redis
from roundelay_worker.embedded.child import EmbeddedError
from roundelay_worker.settings import Settings

PATIENCE: Final = 90.0
"""Seconds for the first worker; several times what one needs on a small machine under load."""
LOOK_EVERY: Final = 0.2


class Arrival:
    """Called between other duties: looks whether a child takes work, greets once, gives up after ``patience``."""

    def __init__(
        self, is_up: Callable[[], bool], greet: Callable[[], None], where: object, patience: float = PATIENCE
    ) -> None:
        self._is_up = is_up
        self._greet = greet
        self._where = where
        self._due_at = time.monotonic() + patience
        self._is_over = False

    def __call__(self) -> float:
        """Return the seconds until the next look; raise EmbeddedError if no worker came up in time."""
        if not self._is_over and self._is_up():
            self._is_over = True
            self._greet()
        if self._is_over:
            return float("inf")
        if time.monotonic() > self._due_at:
            raise EmbeddedError(f"no worker process took work in time; their logs in {self._where} say why")
        return LOOK_EVERY


def consumes(settings: Settings, pids: Mapping[str, int]) -> bool:
    """Say whether one of these processes of this machine tells that it takes work."""
    keys = {alive_key(settings.prefix, f"{socket.gethostname()}-{pid}-*") for pid in pids.values()}
    try:
        with connect_redis(settings) as connection:
            found = [key for own in keys for key in connection.scan_iter(own, count=1000)]
            return "consuming" in map(connection.get, found)
    except (RedisError, OSError):
        return False
