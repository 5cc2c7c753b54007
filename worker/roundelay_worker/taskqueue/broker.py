"""How the worker's Celery app reaches its broker: steadily when it is away, and never waiting for a silent one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from celery.app.amqp import AMQP

from roundelay_worker.process.redis import keepalive
from roundelay_worker.taskqueue.tolerant import TolerantConnection

_STEADY: Final = {"interval_start": 1, "interval_step": 1, "interval_max": 2}
"""Seconds between attempts. Kombu's own pauses grow to half a minute, in which nothing is consumed."""
_NO_SECOND_TRY: Final = {"max_retries": 0}
"""For who sends: it knows what to do without a broker, and Kombu would hold its thread for six seconds."""
_LONG_WAIT: Final = 1.0
_REST: Final = 3.0
"""Seconds that nothing is sent after a wait in vain; rounds go on where they are, the rest is sent again later."""


class _SteadyConnection(TolerantConnection):
    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect, however long it takes, and within seconds once the broker is back."""
        return super().ensure_connection(*args, **{**_STEADY, **options})  # type: ignore[no-untyped-call]


class SteadyAMQP(AMQP):  # type: ignore[misc]
    """Celery's AMQP with such connections."""

    Connection = _SteadyConnection


def is_redis(broker_url: str) -> bool:
    """Say whether a broker is Redis, or speaks as it does."""
    return broker_url.startswith(("redis", "rediss", "unix", "sentinel"))


def transport_options(broker_url: str) -> dict[str, Any]:
    """Return Kombu's options: who consumes notices within some ten seconds that nobody is there any more."""
    if not is_redis(broker_url):
        return {**_NO_SECOND_TRY}
    # The order of the queues is their priority: continued rounds before new messages.
    return {
        **_NO_SECOND_TRY,
        "queue_order_strategy": "priority",
        "socket_keepalive": True,
        "socket_keepalive_options": keepalive(),
        "socket_connect_timeout": 3,
        "socket_timeout": 3,
        "health_check_interval": 3,
    }


class Silence:
    """Whether the broker was silent just now: who sends tasks need not wait for it to be so again."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def lasts(self) -> bool:
        """Whether to do without the broker for now."""
        return time.monotonic() < self._until

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note it if the body fails after a wait; one that is refused at once may be tried again at once."""
        began = time.monotonic()
        try:
            yield
        except Exception:
            if time.monotonic() - began > _LONG_WAIT:
                self._until = time.monotonic() + _REST
            raise
