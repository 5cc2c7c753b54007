"""Hints from clients to every worker process: cancel this, restore that.

A hint may be lost; what was asked is also in a set that the watchdog reads. The process that runs a message
ends it at once; the others give it a moment, and then end the message by force: its owner may be dead.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import redis.asyncio as aioredis
from redis.exceptions import RedisError

from roundelay.names import cancels_key, control_channel
from roundelay_worker.delivery.outbox import Outbox
from roundelay_worker.engine.ending import Ender
from roundelay_worker.engine.inbox import Acceptor
from roundelay_worker.engine.sessions import Sessions
from roundelay_worker.process.redis import id_of, ids_in
from roundelay_worker.store.ending import Cancelled
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.records import Dispatch
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)

_OWNER_FIRST: Final = 0.35
"""Seconds that a message's owner has to end it, before another process does."""
_RECONNECT: Final = 0.5
_COMPLAIN_EVERY: Final = 5.0
"""Seconds between two lines in the log about a Redis that is away."""
_SILENCE: Final = 3.0
"""Seconds without a word after which Redis is pinged; after as many again the connection is given up."""
_AT_ONCE: Final = 200
_BESIDE: Final = 20
"""Cancellations that are acted on at once: most of the time of each is the moment that its owner has."""


class Control:
    """Listens to hints, and acts on them outside the pool."""

    def __init__(
        self,
        redis: aioredis.Redis,
        prefix: str,
        store: Store,
        sessions: Sessions,
        outbox: Outbox,
        acceptor: Acceptor,
        ender: Ender,
        send: Callable[[tuple[Dispatch, ...]], Awaitable[None]],
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._store = store
        self._sessions = sessions
        self._outbox = outbox
        self._acceptor = acceptor
        self._ender = ender
        self._send = send
        self._tasks: set[asyncio.Task[None]] = set()
        self._verbs = {b"cancel": self.cancel, b"restore": self._restore}
        self._passed = 0
        self._complained = -_COMPLAIN_EVERY

    async def run(self) -> None:
        """Listen until cancelled, through restarts of Redis."""
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.subscribe(control_channel(self._prefix))
                    await self._listen(pubsub)
            except (RedisError, OSError) as exc:
                self._complain(exc)
            await asyncio.sleep(_RECONNECT)

    def _complain(self, exc: Exception) -> None:
        if time.monotonic() - self._complained > _COMPLAIN_EVERY:
            log.warning("control_disconnected", extra={"error": type(exc).__name__})
            self._complained = time.monotonic()

    async def _listen(self, pubsub: Any) -> None:
        """Act on hints until the connection breaks, or does not even answer a ping."""
        pinged = False
        while True:
            item = await pubsub.get_message(timeout=_SILENCE)
            if item is None and pinged:
                raise ConnectionError
            if pinged := item is None:
                await pubsub.ping()
            elif item["type"] == "message":
                self._begin(item["data"])

    def _begin(self, hint: bytes) -> None:
        verb, _, subject = hint.partition(b" ")
        work, message_id = self._verbs.get(verb), id_of(subject)
        if work is None or message_id is None:
            log.info("control_unknown", extra={"bytes": len(hint)})
            return
        task = asyncio.ensure_future(self._guarded(work, message_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[[str], Awaitable[None]], message_id: str) -> None:
        try:
            await work(message_id)
        except (StoreUnavailable, RedisError, OSError) as exc:
            log.warning("control_failed", extra={"error": type(exc).__name__, "message_id": message_id})
        except Exception:  # a hint that breaks us must not stop the listener
            log.exception("control_broke", extra={"message_id": message_id})

    async def cancel(self, message_id: str) -> None:
        """End a message as cancelled, wherever it is."""
        standing = await self._standing(message_id)
        if standing == "missing":
            return  # a transaction that is not committed, or a newer client's: the request stays until it comes
        if standing == "ended":
            await self._redis.zrem(cancels_key(self._prefix), message_id)
            return
        if self._sessions.stop(message_id, "cancelled"):
            return
        if standing == "owned":
            await asyncio.sleep(_OWNER_FIRST)
            if self._sessions.stop(message_id, "cancelled"):  # claimed here when the hint came, not yet at work
                return
        await self._send(await self._ender.end_unowned(message_id))

    async def _standing(self, message_id: str) -> Cancelled:
        standing = await self._store.request_cancel(message_id)
        if standing != "missing":
            return standing
        if (await self._acceptor.accept(message_id)).found == "missing":
            await self._acceptor.take_outbox(_AT_ONCE)
        return await self._store.request_cancel(message_id)

    async def catch_up(self) -> None:
        """Act on cancellations whose hint was lost: the next few, and after the last the first again."""
        last = self._passed + _AT_ONCE - 1
        key = cancels_key(self._prefix)
        found = cast("list[bytes | str]", await self._redis.zrange(key, self._passed, last))
        room = asyncio.Semaphore(_BESIDE)

        async def act(message_id: str) -> None:
            async with room:
                await self._guarded(self.cancel, message_id)

        await asyncio.gather(*(act(message_id) for message_id in await ids_in(self._redis, key, found)))
        self._passed = self._passed + _AT_ONCE if len(found) == _AT_ONCE else 0

    async def _restore(self, message_id: str) -> None:
        await self._outbox.restore(message_id)
