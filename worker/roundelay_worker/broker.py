"""How the worker's Celery app reaches its broker: steadily when it is away, and never waiting for a silent one."""

from typing import Any, Final

from celery.app.amqp import AMQP
from kombu.connection import Connection

from roundelay_worker.connections import keepalive

_STEADY: Final = {"interval_start": 1, "interval_step": 1, "interval_max": 2}
"""Seconds between attempts. Kombu's own pauses grow to half a minute, in which nothing is consumed."""
_NO_SECOND_TRY: Final = {"max_retries": 0}
"""For who sends: it knows what to do without a broker, and Kombu would hold its thread for six seconds."""


class _SteadyConnection(Connection):
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
