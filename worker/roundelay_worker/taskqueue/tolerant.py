"""Kombu's Redis transport, for a server that fails over and a queue that anybody may write to.

A reply of the server that says that it cannot serve now (``READONLY`` and ``UNBLOCKED`` of a failover, ``LOADING``,
``MASTERDOWN``, ``NOPERM``) ends a connection, not the worker: Celery connects again until it can. And what lies in a
queue is data: an item that is no task is named in the log and left out.
"""

import logging
from functools import cache
from queue import Empty
from typing import Any

from kombu.connection import Connection
from kombu.transport import redis as kombu_redis
from redis.exceptions import RedisError, ResponseError

log = logging.getLogger(__name__)


class _Tolerant:
    """What is added to a channel of Kombu's."""

    def _brpop_read(self, **options: Any) -> Any:
        return self._tolerantly(super()._brpop_read, self, **options)  # type: ignore[misc]

    def _receive(self) -> Any:
        return self._tolerantly(super()._receive, self)  # type: ignore[misc]

    @staticmethod
    def _tolerantly(read: Any, channel: Any, **options: Any) -> Any:
        try:
            return read(**options)
        except ResponseError as exc:
            log.warning("broker_refuses", extra={"error": _first_word(exc)})
            channel.client.connection.disconnect()
            raise ConnectionError(f"The broker refuses to serve: {_first_word(exc)}") from None
        except (Empty, RedisError, OSError):
            raise
        except Exception as exc:  # noqa: BLE001 - there is no end to what an item may be
            log.warning("queue_item_unreadable", extra={"error": type(exc).__name__})
            return True


def _first_word(exc: ResponseError) -> str:
    """Return the kind of a server's refusal; the rest of it may quote what was sent."""
    return str(exc).partition(" ")[0][:40] or type(exc).__name__


@cache
def tolerant(transport: type) -> type:
    """Return a transport of Kombu's that is so, if it is one of those for Redis; any other as it is."""
    if not issubclass(transport, kombu_redis.Transport):
        return transport
    channel = type(f"Tolerant{transport.Channel.__name__}", (_Tolerant, transport.Channel), {})
    return type(f"Tolerant{transport.__name__}", (transport,), {"Channel": channel})


class TolerantConnection(Connection):
    """A connection over such a transport."""

    def get_transport_cls(self) -> Any:
        """Return the class of the transport."""
        return tolerant(super().get_transport_cls())  # type: ignore[no-untyped-call]
