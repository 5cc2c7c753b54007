"""A bare subscriber: every answer that was published while it was connected."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import redis


@dataclass(frozen=True, slots=True)
class Heard:
    """One publication."""

    at: float
    message_id: str
    body: bytes


class Listener(threading.Thread):
    """Listens to all answers of a prefix until told to stop, through all restarts of the server."""

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(name="listener", daemon=True)
        self._url = url
        self._pattern = f"{prefix}:answer:*"
        self._over = threading.Event()
        self.heard: list[Heard] = []

    def stop(self) -> None:
        """Stop listening."""
        self._over.set()
        self.join(10)

    def run(self) -> None:
        """Listen."""
        while not self._over.wait(0.1):
            with suppress(redis.RedisError, OSError), redis.Redis.from_url(self._url, socket_timeout=5) as client:
                self._listen(client.pubsub(ignore_subscribe_messages=True))

    def _listen(self, pubsub: redis.client.PubSub) -> None:
        pubsub.psubscribe(self._pattern)
        while not self._over.is_set():
            notice = pubsub.get_message(timeout=0.5)
            if notice is not None and notice["type"] == "pmessage":
                message_id = notice["channel"].decode().rpartition(":")[2]
                self.heard.append(Heard(time.time(), message_id, notice["data"]))
