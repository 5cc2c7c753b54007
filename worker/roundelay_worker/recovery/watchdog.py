"""The sweeps that make every promise hold without luck: each finds what a crash or a lost task left behind.

Every worker process runs one watchdog outside the pool; in each period one of them sweeps, by a conditional
update. All sweeps are conditional updates themselves, so two at once harm nobody. ``own`` sweeps concern the
process itself and run in each.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from redis.exceptions import RedisError

from roundelay_worker.delivery.outbox import Outbox
from roundelay_worker.engine.ending import Ender
from roundelay_worker.engine.inbox import Acceptor
from roundelay_worker.engine.sessions import Sessions
from roundelay_worker.loop.events import Condemned, Event, TimePassed
from roundelay_worker.loop.state import Failure
from roundelay_worker.process.clock import Clock
from roundelay_worker.process.identity import has_ended
from roundelay_worker.recovery.control import Control
from roundelay_worker.recovery.guarded import Guarded
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.records import Dispatch, Queue
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)

_AT_ONCE: Final = 500
_NOT_YET_ACCEPTED: Final = 1.0
"""Seconds that an inbox record waits for its own task before the watchdog accepts it."""
_OVERTAKEN: Final = 5.0
"""Seconds: a task sent this much before another that was taken from the same queue was lost."""
_EMPTY: Final = 3.0
"""Seconds: a task sent this long ago that is not in the empty queue was lost."""
_GRACE: Final = 5.0
"""Seconds that the owner of an overdue message has to end it itself."""
_PRUNE_EVERY: Final = 3600.0
_UNBLOCK_EVERY: Final = 60.0

Send = Callable[[tuple[Dispatch, ...]], Awaitable[None]]
QueueLength = Callable[[Queue], Awaitable[int | None]]


class Watchdog:
    """Sweeps every ``period`` seconds until cancelled."""

    def __init__(
        self,
        store: Store,
        acceptor: Acceptor,
        ender: Ender,
        outbox: Outbox,
        control: Control,
        sessions: Sessions,
        clock: Clock,
        send: Send,
        queue_length: QueueLength,
        process_id: str,
        period: float,
        retention: float,
        may_judge: Callable[[], bool],
    ) -> None:
        self._store = store
        self._acceptor = acceptor
        self._ender = ender
        self._outbox = outbox
        self._control = control
        self._sessions = sessions
        self._clock = clock
        self._send = send
        self._queue_length = queue_length
        self._process_id = process_id
        self._period = period
        self._retention = retention
        self._may_judge = may_judge
        self._guarded = {name: Guarded(name) for name in ("inbox", "to_end", "overdue", "expired")}
        self._pruned = time.monotonic()
        self._unblocked = 0.0

    async def run(self) -> None:
        """Sweep until cancelled; a sweep that fails is tried again in the next period."""
        while True:
            await asyncio.sleep(self._period)
            await self._try(self._own)
            try:
                mine = await self._store.take_sweep(self._process_id, self._period)
            except StoreUnavailable:
                continue
            if mine:
                for sweep in self._sweeps():
                    await self._try(sweep)

    def _sweeps(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self._lost,
            self._orphans,
            self._inbox,
            self._due,
            self._unblock,
            self._cancels,
            self._to_end,
            self._overdue,
            self._expired,
            self._stale_tasks,
            self._outbox.catch_up,
            self._prune,
        )

    async def _try(self, sweep: Callable[[], Awaitable[None]]) -> None:
        try:
            await sweep()
        except (StoreUnavailable, RedisError, OSError, TimeoutError) as exc:
            log.warning("sweep_failed", extra={"sweep": sweep.__name__, "error": type(exc).__name__})
        except Exception:  # one broken sweep must not stop the others, nor the next period
            log.exception("sweep_broke", extra={"sweep": sweep.__name__})

    async def _own(self) -> None:
        released = await self._store.release_own(self._process_id, self._sessions.held())
        await self._send(tuple(one.dispatch for one in released))

    async def _lost(self) -> None:
        if not self._may_judge():
            return
        lost = await self._store.release_lost(_AT_ONCE)
        for owner in {one.owner for one in lost}:
            if has_ended(owner):
                await self._store.mark_dead(owner)
        for one in lost:
            extra = {"message_id": one.dispatch.message_id, "owner": one.owner, "losses": one.losses}
            log.warning("message_recovered", extra=extra)
        await self._send(tuple(one.dispatch for one in lost))

    async def _inbox(self) -> None:
        await self._outbox.check_redis()
        inbox = self._guarded["inbox"]
        overdue = await self._acceptor.overdue(_NOT_YET_ACCEPTED, _AT_ONCE + inbox.aside)
        await inbox.each(overdue, str, self._enter)
        await self._acceptor.take_outbox(_AT_ONCE)

    async def _enter(self, message_id: str) -> None:
        if (await self._acceptor.accept(message_id)).found == "missing":
            await self._acceptor.forget(message_id)

    async def _orphans(self) -> None:
        """Take up what is neither ended, ready, due nor held by a process that the database knows."""
        for one in await self._store.release_orphans(_AT_ONCE):
            log.warning("orphan_recovered", extra={"message_id": one.message_id})
            await self._send((one,))

    async def _due(self) -> None:
        await self._send(await self._store.due(_AT_ONCE))

    async def _unblock(self) -> None:
        """Look for parked messages behind nothing: a net that should catch nothing, and reads all that is parked."""
        if time.monotonic() - self._unblocked < _UNBLOCK_EVERY:
            return
        self._unblocked = time.monotonic()
        await self._send(await self._store.unblock(_AT_ONCE))

    async def _cancels(self) -> None:
        await self._control.catch_up()

    async def _to_end(self) -> None:
        net = self._guarded["to_end"]
        await net.each(await self._store.to_end(_AT_ONCE + net.aside), str, self._end)

    async def _overdue(self) -> None:
        net = self._guarded["overdue"]
        overdue = await self._store.overdue(_GRACE, _AT_ONCE + net.aside)
        await net.each(overdue, str, lambda message_id: self._end(message_id, TimePassed(self._clock.now())))

    async def _expired(self) -> None:
        net = self._guarded["expired"]
        failure = Failure("queue_timeout", "The message waited longer than queue_timeout for a worker.")
        expired = await self._store.expired_in_queue(_AT_ONCE + net.aside)
        await net.each(expired, str, lambda message_id: self._end(message_id, Condemned(failure, self._clock.now())))

    async def _end(self, message_id: str, event: Event | None = None) -> None:
        await self._send(await self._ender.end_unowned(message_id, event))

    async def _stale_tasks(self) -> None:
        """Send again what was lost on its way: tasks overtaken by later ones, or missing from an empty queue."""
        for queue in ("rounds", "messages"):
            before = await self._lost_before(queue)
            if before is not None:
                again = await self._store.redispatch(queue, before, _AT_ONCE)
                if again:
                    log.warning("tasks_sent_again", extra={"queue": queue, "count": len(again)})
                await self._send(again)

    async def _lost_before(self, queue: Queue) -> float | None:
        watermark = await self._store.watermark(queue)
        times = [] if watermark is None else [watermark - _OVERTAKEN]
        if await self._queue_length(queue) == 0:
            times.append(self._clock.now() - _EMPTY)
        return max(times, default=None)

    async def _prune(self) -> None:
        if time.monotonic() - self._pruned < _PRUNE_EVERY:
            return
        pruned = await self._store.prune(self._clock.now() - self._retention, _AT_ONCE)
        if pruned < _AT_ONCE:  # else there is more, for the next sweep
            self._pruned = time.monotonic()
        log.info("pruned", extra={"messages": pruned})
