"""Ends messages that are past their deadline where no worker is left to do it: what ``roundelay beat`` does besides.

A person who waits for an answer gets one although every worker is down. Only what is long overdue is ended: a worker
that lives has done it by then.
"""

import asyncio
import logging
import threading
from typing import Final

from roundelay_worker.delivery.outbox import Outbox
from roundelay_worker.delivery.publisher import Publisher
from roundelay_worker.engine.ending import Ender
from roundelay_worker.engine.saving import Saver
from roundelay_worker.loop.events import TimePassed
from roundelay_worker.process.clock import Clock
from roundelay_worker.process.identity import new_process_id
from roundelay_worker.process.redis import connect_redis
from roundelay_worker.recovery.guarded import Guarded
from roundelay_worker.settings import Settings
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)

_EVERY: Final = 5.0
_GRACE: Final = 15.0
"""Seconds after a deadline in which workers end a message themselves."""
_AT_ONCE: Final = 100


def end_overdue_for_good(settings: Settings) -> None:
    """Begin, in a thread of its own, to end what is overdue until the process ends."""
    threading.Thread(target=lambda: asyncio.run(_run(settings)), name="roundelay-overdue", daemon=True).start()


async def _run(settings: Settings) -> None:
    while True:
        try:
            await _watch(settings)
        except Exception as exc:  # noqa: BLE001 - a server that is away comes back
            log.warning("overdue_not_watched", extra={"error": type(exc).__name__})
        await asyncio.sleep(_EVERY)


async def _watch(settings: Settings) -> None:
    redis, store = connect_redis(settings.redis_url), await Store.open(settings.database_url)
    try:
        clock = Clock(await store.now())
        publisher = Publisher(redis, settings.prefix, settings.answer_ttl, _none, store.mark_published, now=clock.now)
        await Outbox(redis, settings.prefix, store, publisher, settings.answer_ttl).check_redis()
        ender = Ender(store, Saver(store, publisher, new_process_id()), clock)
        net = Guarded("overdue")
        while True:
            clock.seen(await store.now())
            overdue = await store.overdue(_GRACE, _AT_ONCE + net.aside)
            await net.each(overdue, str, lambda message_id: _end(ender, message_id, clock.now()))
            await publisher.drain()
            await asyncio.sleep(_EVERY)
    finally:
        await redis.aclose()
        await store.close()


async def _end(ender: Ender, message_id: str, now: float) -> None:
    """End one; the tasks of what waited for it are sent again by the first worker that lives."""
    await ender.end_unowned(message_id, TimePassed(now))
    log.warning("ended_without_a_worker", extra={"message_id": message_id})


async def _none(_message_id: str) -> None:
    """Find nothing to publish again: workers rebuild what Redis lost."""
