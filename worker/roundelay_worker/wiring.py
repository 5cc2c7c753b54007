"""The one place where things are built: a worker process, its parts and its threads."""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final, TypeVar

import redis.asyncio as aioredis
import uvloop

from roundelay.names import alive_key
from roundelay_worker.delivery.outbox import Outbox, WrongDatabase
from roundelay_worker.delivery.publisher import Publisher
from roundelay_worker.engine.advance import Advance
from roundelay_worker.engine.call_ids import CallId
from roundelay_worker.engine.inbox import Acceptor
from roundelay_worker.engine.perform import Bounds, Performer
from roundelay_worker.engine.session import RoundEnd, Told
from roundelay_worker.engine.sessions import Sessions
from roundelay_worker.engine.setup import Resolver, offers
from roundelay_worker.loop.history import Result
from roundelay_worker.process.clock import Clock
from roundelay_worker.process.heartbeat import Heartbeat
from roundelay_worker.process.identity import EXIT_BROKEN, EXIT_LOOP_ENDED, new_process_id
from roundelay_worker.process.lease import EXIT_LEASE_LOST, LeaseKeeper
from roundelay_worker.process.redis import connect_redis, note_eviction
from roundelay_worker.providers.catalogue import Models, usable_providers
from roundelay_worker.recovery.control import Control
from roundelay_worker.recovery.quarantine import Quarantines
from roundelay_worker.recovery.watchdog import Watchdog
from roundelay_worker.settings import Settings, SettingsError, make_database_folder
from roundelay_worker.store.errors import StoreError, StoreUnavailable
from roundelay_worker.store.records import Dispatch, Publication, Queue
from roundelay_worker.store.store import Store
from roundelay_worker.tools.context import ToolContext
from roundelay_worker.tools.loading import UNUSABLE, load_tools
from roundelay_worker.tools.run.runner import ToolRunner

log = logging.getLogger(__name__)
T = TypeVar("T")

_DUE_AT_ONCE: Final = 50
_DEAF: Final = 10.0
"""Seconds that a worker may fail to consume from a broker that answers."""
EXIT_DEAF: Final = 71
EXIT_LOOSE: Final = 73
EXIT_STUCK: Final = 72
_STUCK: Final = 15.0
"""Seconds by which a step may outlive its own deadline."""
_FROZEN: Final = 3.0
"""Seconds without a look at the steps after which they first get the chance to end that they did not have."""
_CANCELLED_WITHIN: Final = 1.0
_WEDGED: Final = 5
"""Lease lengths without a turn of the event loop after which the process is given up."""

Send = Callable[[tuple[Dispatch, ...]], Awaitable[None]]
QueueLength = Callable[[Queue], Awaitable[int | None]]


class UnfitToStart(Exception):
    """This worker must not start; the text says what to mend, ``for_good`` that no later start will go better."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good


class Runtime:
    """A worker process: one event loop in a thread of its own, and all that lives on it.

    Task threads call ``run`` and wait; everything else happens on the loop. ``start`` raises what makes a worker
    unfit to start: another database, a store that cannot be reached, tools that cannot be imported.
    """

    def __init__(self, settings: Settings, send: Send, queue_length: QueueLength, *, quarantine: bool = False) -> None:
        self.settings = settings
        self.process_id = new_process_id()
        self._send = send
        self._queue_length = queue_length
        self._quarantine = quarantine
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="roundelay-loop", daemon=True)
        self._background: list[asyncio.Task[None]] = []
        self._errands: set[asyncio.Task[None]] = set()
        self._exit_code = 0
        self._draining = False
        self._stopping = False
        self._consuming = False
        self._heartbeat = Heartbeat()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            if not self._stopping:  # a callback raised what no loop survives; without it nothing here works
                log.critical("event_loop_ended", extra={"worker": self.process_id})
                os._exit(EXIT_LOOP_ENDED)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and wait for it, from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self) -> None:
        """Open, register and begin; returns when the process may take messages."""
        try:
            self._registry = load_tools(self.settings.setup, self.settings.tool_modules, self.settings.builtin_tools)
            make_database_folder(self.settings)
            self._thread.start()
            self.call(self._open())
        except (*UNUSABLE, SettingsError) as exc:
            raise UnfitToStart(str(exc), for_good=True) from exc
        except WrongDatabase as exc:
            raise UnfitToStart(str(exc)) from exc
        except StoreError as exc:
            raise UnfitToStart(f"The database cannot be used ({exc}): check ROUNDELAY_DATABASE_URL.") from exc
        except (aioredis.RedisError, OSError) as exc:
            raise UnfitToStart(f"Redis cannot be used ({type(exc).__name__}): check ROUNDELAY_REDIS_URL.") from exc

    async def _open(self) -> None:
        settings = self.settings
        self._redis = connect_redis(settings.redis_url)
        await note_eviction(self._redis)
        self._store = await Store.open(settings.database_url)
        await self._store.migrate()
        offered = offers(self._registry.names(), usable_providers(settings))
        await self._store.register(self.process_id, socket.gethostname(), os.getpid(), settings.lease, offers=offered)
        self._build(Clock(await self._store.now()))
        self._lease.start()
        self._heartbeat.start()
        self._begin(self._lease.beat(), self._publisher.run(), self._show_alive(), self._watch_steps())
        await self._outbox.check_redis()
        if not self._quarantine:
            self._begin(self._watchdog.run(), self._control.run(), self._guard())

    def _begin(self, *works: Coroutine[Any, Any, None]) -> None:
        for work in works:
            part = asyncio.ensure_future(work)
            part.add_done_callback(_end_without)
            self._background.append(part)

    def _build(self, clock: Clock) -> None:
        settings, store = self.settings, self._store
        self._publisher = Publisher(
            self._redis,
            settings.prefix,
            settings.answer_ttl,
            self._fetch,
            store.mark_published,
            self._may_publish,
            clock.now,
        )
        self._outbox = Outbox(self._redis, settings.prefix, store, self._publisher, settings.answer_ttl)
        self._acceptor = Acceptor(self._redis, settings.prefix, store, self._publisher, clock, settings.queue_timeout)
        self.sessions = Sessions(4 * settings.concurrency, self._wake)
        self._lease = LeaseKeeper(
            lambda: store.lease(self.process_id, settings.lease),
            settings.lease,
            _WEDGED * settings.lease,
            self._lease_lost,
        )
        self._quarantines = Quarantines(store, settings.lease, self._lease.may_judge)
        self._advance = self._build_advance(clock)
        self._control = Control(
            self._redis,
            settings.prefix,
            store,
            self.sessions,
            self._outbox,
            self._acceptor,
            self._advance.ender,
            self._send,
        )
        self._watchdog = self._build_watchdog(clock)

    def _build_advance(self, clock: Clock) -> Advance:
        settings = self.settings
        self.runner = ToolRunner(on_late=self._late, setup=settings.setup or "")
        self._models = Models(settings)
        bounds = Bounds(settings.connect_timeout, settings.idle_timeout, settings.turn_timeout, settings.tool_timeout)
        return Advance(
            store=self._store,
            acceptor=self._acceptor,
            performer=Performer(self._registry, self.runner, self._publisher, clock, bounds, self._loosened),
            publisher=self._publisher,
            resolver=Resolver(settings, self._registry, self._store, self._models.provider),
            sessions=self.sessions,
            clock=clock,
            process_id=self.process_id,
            isolate=None if self._quarantine else self._quarantines.run,
        )

    def _build_watchdog(self, clock: Clock) -> Watchdog:
        return Watchdog(
            self._store,
            self._acceptor,
            self._advance.ender,
            self._outbox,
            self._control,
            self.sessions,
            clock,
            self._send,
            self._queue_length,
            self.process_id,
            self.settings.sweep,
            self.settings.retention,
            self._lease.may_judge,
        )

    def run(self, dispatch: Dispatch) -> RoundEnd:
        """Do the round that a task asks for, from a thread."""
        return self.call(self.round(dispatch))

    async def round(self, dispatch: Dispatch) -> RoundEnd:
        """Do the round that a task asks for, or leave it to a worker that stays.

        A round that the database was lost to sends none: the watchdog gives the message to somebody again.
        """
        if self._draining:
            return RoundEnd((dispatch,), Told("retrying", "worker_stops"))
        new = dispatch.queue == "messages"
        try:
            return self._counted(await self._advance.run(dispatch.message_id, dispatch.dispatch, new=new))
        except StoreUnavailable as exc:
            log.warning("round_left", extra={"message_id": dispatch.message_id, "error": str(exc)})
            return RoundEnd((), Told("retrying", "database_lost"))

    def _counted(self, end: RoundEnd) -> RoundEnd:
        self._heartbeat.count_round()
        deeds = self._heartbeat.deeds
        if self._draining and end.told is not None:
            on_the_way = end.told.state in ("going_on", "retrying")
            deeds.handed_over += on_the_way
            deeds.finished += not on_the_way
        return end

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have ``work`` run on the loop, from any thread."""
        self._loop.call_soon_threadsafe(self._spawn, work)

    @property
    def draining(self) -> bool:
        """Whether this process takes nothing new."""
        return self._draining

    @property
    def may_claim(self) -> bool:
        """Whether this process has its lease, without which it can begin nothing."""
        return self._lease.held()

    def drain(self, grace: float) -> None:
        """Take nothing new; after ``grace`` seconds hand over what still runs."""
        self._draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, grace, self._stop_sessions)

    def consuming(self, yes: bool) -> None:
        """Note whether the worker consumes from the broker."""
        self._consuming = yes

    def _stop_sessions(self) -> None:
        self.sessions.stop_all("drained")
        self._quarantines.terminate()

    def stop(self) -> None:
        """End the lease, publish what is queued, close everything."""
        self.call(self._close())
        self._stopping = True
        self._heartbeat.stop()
        deeds = self._heartbeat.deeds
        log.info("worker_stopped", extra={"finished": deeds.finished, "handed_over": deeds.handed_over})
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if self._exit_code:
            os._exit(self._exit_code)

    async def _close(self) -> None:
        beat, *parts = self._background
        await _cancelled(parts)
        await self._publisher.drain()
        await asyncio.to_thread(self._lease.stop)
        await _cancelled([beat])  # the last: without it the lease's thread takes a slow end for a wedged loop
        try:
            await self._store.retire(self.process_id)
        except StoreUnavailable:
            log.warning("lease_left_to_run_out", extra={"worker": self.process_id})
        await self.runner.aclose()
        await self._models.aclose()
        await self._redis.aclose()
        await self._store.close()

    def _may_publish(self) -> bool:
        return self._lease.held()

    def _lease_lost(self) -> None:
        # Someone else may already go on with what this process holds; nothing here may act any more.
        log.critical("lease_lost", extra={"worker": self.process_id})
        os._exit(EXIT_LEASE_LOST)

    async def _show_alive(self) -> None:
        """Let readers and probes see that this worker lives, and whether it consumes."""
        key = alive_key(self.settings.prefix, self.process_id)
        while True:
            try:
                await self._redis.set(key, self._condition(), px=int(self.settings.lease * 1000))
            except (aioredis.RedisError, OSError):
                log.debug("alive_not_shown")
            await asyncio.sleep(self.settings.lease / 3)

    async def _guard(self) -> None:
        """End a process that has become useless: deaf to a broker that is there, or full of loose threads."""
        deaf_since = None
        while True:
            await asyncio.sleep(1)
            deaf = not self._consuming and not self._draining and await self._broker_answers()
            deaf_since = (deaf_since or time.monotonic()) if deaf else None
            if deaf_since is not None and time.monotonic() - deaf_since > _DEAF:
                log.critical("not_consuming", extra={"worker": self.process_id})
                os._exit(EXIT_DEAF)
            if self.runner.loose > self.settings.max_loose and not self._draining:
                log.critical("too_many_loose_calls", extra={"loose": self.runner.loose})
                self._exit_code = EXIT_LOOSE
                os.kill(os.getpid(), signal.SIGTERM)
                self._loop.call_later(self.settings.shutdown_grace + _DEAF, os._exit, EXIT_LOOSE)

    async def _watch_steps(self) -> None:
        """End a process in which a step outlives its own deadline, though the process was not frozen meanwhile."""
        while True:
            looked = time.monotonic()
            await asyncio.sleep(1)
            if time.monotonic() - looked < _FROZEN:
                self._end_if_stuck()

    def _end_if_stuck(self) -> None:
        now = time.monotonic()
        for session in self.sessions:
            if session.step_deadline is not None and now - session.step_deadline > _STUCK:
                log.critical("step_outlived_its_deadline", extra={"message_id": session.message_id})
                os._exit(EXIT_STUCK)

    async def _broker_answers(self) -> bool:
        return await self._queue_length("rounds") is not None

    def _condition(self) -> str:
        if self._draining:
            return "draining"
        return "consuming" if self._consuming and self.may_claim else "not_consuming"

    def _wake(self, message_id: str, pause: float) -> None:
        self._loop.call_later(pause, lambda: self._spawn(self._dispatch_due(message_id)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _dispatch_due(self, message_id: str) -> None:
        try:
            await self._send(await self._store.due(_DUE_AT_ONCE))
        except Exception as exc:  # noqa: BLE001 - the watchdog finds it in its next sweep
            log.warning("due_not_sent", extra={"error": type(exc).__name__, "message_id": message_id})

    async def _fetch(self, message_id: str) -> Publication | None:
        return await self._store.publication(message_id, 0)

    def _late(self, context: ToolContext, result: Result) -> None:
        place = CallId.parse(context.call_id)
        text = None if result.is_error else result.text
        self._spawn(self._store.record_late(place.message_id, place.round, place.position, self.process_id, text))

    async def _loosened(self, context: ToolContext) -> None:
        place = CallId.parse(context.call_id)
        try:
            await self._store.mark_loose(place.message_id, place.round, place.position, self.process_id)
        except StoreUnavailable:
            # This process holds back the conversation's writes all the same; another one might not.
            log.warning("loose_write_not_noted", extra={"message_id": place.message_id})


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: a client may take a cancellation for a connection that broke, and go on."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCELLED_WITHIN)


def _end_without(part: asyncio.Task[None]) -> None:
    """End a process that has lost one of its parts: it lives, and does not do its work."""
    if not part.cancelled() and part.exception() is not None:
        log.critical("part_broke", exc_info=part.exception())
        os._exit(EXIT_BROKEN)
