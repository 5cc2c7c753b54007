"""Sends Celery tasks. Imported at the first submit only: celery takes longer to import than all the rest."""

from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from kombu.connection import Connection
from kombu.pools import ProducerPool

from roundelay._core.celery_app import isolated_app
from roundelay.names import ANSWER_TASK

POOL: Final = 8
CONNECT_SECONDS: Final = 1.5
SOCKET_SECONDS: Final = 2.0
ONE_RETRY: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
"""A pooled connection may be stale after the broker restarted; once more is enough, the watchdog does the rest."""


def transport_options(broker_url: str) -> dict[str, Any]:
    """Return what bounds every wait on this broker's sockets."""
    if urlsplit(broker_url).scheme.startswith("redis"):
        return {"socket_timeout": SOCKET_SECONDS, "socket_connect_timeout": CONNECT_SECONDS, "retry_on_timeout": False}
    return {"read_timeout": SOCKET_SECONDS, "write_timeout": SOCKET_SECONDS, "confirm_publish": True}


class CelerySender:
    """Sends the task of a new message to one queue, through pooled producers; thread-safe."""

    def __init__(self, broker_url: str, queue: str) -> None:
        self._queue = queue
        self._app = isolated_app(broker_url, set_as_current=False)
        connect: Any = Connection
        connection = connect(
            broker_url, connect_timeout=CONNECT_SECONDS, transport_options=transport_options(broker_url)
        )
        self._connections = connection.Pool(limit=POOL)
        pool: Any = ProducerPool
        self._producers = pool(self._connections, limit=POOL, Producer=self._app.amqp.Producer)

    def send(self, message_id: str) -> None:
        """Send the task of this message, whose id is the message's."""
        with self._producers.acquire(block=True, timeout=SOCKET_SECONDS) as producer:
            self._app.send_task(
                ANSWER_TASK,
                args=[message_id],
                task_id=message_id,
                root_id=message_id,  # not that of a task of the web app which submits
                add_to_parent=False,
                queue=self._queue,
                producer=producer,
                ignore_result=True,
                retry=True,
                retry_policy=ONE_RETRY,
            )

    def close(self) -> None:
        """Close every connection."""
        with suppress(Exception):
            self._producers.force_close_all()
            self._connections.force_close_all()
