"""The Celery app of a worker: ``celery -A roundelay_worker.app worker``.

Celery moves ids between processes and shows them in Flower; what a message needs to survive is in the
database. A task that is lost is found and sent again by the watchdog, one that comes twice is refused by
its number. So on Redis tasks are taken without acknowledgements: Kombu's cost a fifth of a worker's CPU
(two pipelines and two new clients a task), and gave back after an hour what the watchdog gives back after
seconds. Then nothing may be taken that cannot run at once (``worker_disable_prefetch``). On other brokers,
which push what is not acknowledged without a bound, tasks are acknowledged late.
"""

import asyncio
import logging
import os
import sys
from typing import Any

from celery import Celery, signals
from kombu import Queue as CeleryQueue

from roundelay._core.celery_app import isolated_app
from roundelay.names import messages_queue, rounds_queue
from roundelay_worker.process import logs
from roundelay_worker.recovery.overdue import end_overdue_for_good
from roundelay_worker.settings import EXIT_UNFIT, SUPERVISED, Settings, SettingsError, unknown_names
from roundelay_worker.store.records import Dispatch, Queue
from roundelay_worker.taskqueue.broker import Silence, SteadyAMQP, is_redis, transport_options
from roundelay_worker.taskqueue.consumer import consuming_step
from roundelay_worker.taskqueue.rounds import Rounds, pool_of
from roundelay_worker.taskqueue.tasks import add_tasks, task_of
from roundelay_worker.wiring import Runtime, UnfitToStart

log = logging.getLogger(__name__)

_ANSWERS_WITHIN = 5.0
"""Seconds for a broker to tell a queue's length; the sweeps must not wait for one that hangs."""


def celery_app(settings: Settings) -> Celery:
    """Return the Celery app, configured for the broker of ``settings``; it knows no task yet."""
    app = isolated_app(settings.broker_url, amqp=SteadyAMQP)
    on_redis = is_redis(settings.broker_url)
    names = (rounds_queue(settings.prefix), messages_queue(settings.prefix))
    app.conf.update(
        task_queues=[CeleryQueue(name, no_ack=on_redis) for name in names],
        task_default_queue=messages_queue(settings.prefix),
        task_ignore_result=True,
        task_acks_late=not on_redis,
        task_reject_on_worker_lost=False,
        worker_pool="threads",
        worker_concurrency=settings.concurrency,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=on_redis,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=transport_options(settings.broker_url),
        broker_heartbeat=10,
        broker_channel_error_retry=True,
    )
    return app


class Sender:
    """Sends tasks through the app's pooled producers, each with its root and parent."""

    def __init__(self, app: Celery, settings: Settings) -> None:
        self._app = app
        self._silence = Silence()
        self._queues: dict[Queue, str] = {
            "messages": messages_queue(settings.prefix),
            "rounds": rounds_queue(settings.prefix),
        }

    def send(self, dispatches: tuple[Dispatch, ...], parent_id: str | None = None) -> tuple[Dispatch, ...]:
        """Send tasks now; return those that could not be sent, which the watchdog finds if nobody else does."""
        return tuple([dispatch for dispatch in dispatches if not self._sent(dispatch, parent_id)])

    def _sent(self, dispatch: Dispatch, parent_id: str | None) -> bool:
        name, args, task_id = task_of(dispatch)
        root = dispatch.message_id
        if self._silence.lasts:
            return False
        try:
            with self._silence.noted():
                self._app.send_task(
                    name,
                    args=args,
                    task_id=task_id,
                    queue=self._queues[dispatch.queue],
                    root_id=root,
                    parent_id=parent_id or (None if task_id == root else root),
                    retry=False,
                )
        except Exception as exc:  # noqa: BLE001 - every transport has errors of its own
            log.warning("task_not_sent", extra={"message_id": root, "error": type(exc).__name__})
            return False
        return True

    async def send_later(self, dispatches: tuple[Dispatch, ...]) -> None:
        """Send tasks from the event loop without blocking it."""
        if dispatches:
            await asyncio.to_thread(self.send, dispatches)

    async def queue_length(self, queue: Queue) -> int | None:
        """Return how many tasks wait in a queue, None if the broker does not say."""
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN):
                return await asyncio.to_thread(self._length, self._queues[queue])
        except TimeoutError:
            return None

    def _length(self, name: str) -> int | None:
        try:
            with self._app.pool.acquire(block=True, timeout=5) as connection:
                return int(connection.default_channel.queue_declare(name, passive=True).message_count)
        except self._app.connection_for_read().channel_errors:
            return 0
        except Exception as exc:  # noqa: BLE001 - every transport has errors of its own
            log.warning("queue_length_unknown", extra={"error": type(exc).__name__})
            return None


def build_worker(settings: Settings) -> Celery:
    """Return a Celery app whose workers run messages; the runtime begins when a worker does."""
    app = celery_app(settings)
    sender = Sender(app, settings)
    runtime = Runtime(settings, sender.send_later, sender.queue_length)
    add_tasks(app)
    _follow_worker(app, runtime, Rounds(runtime, sender.send))
    return app


def _follow_worker(app: Celery, runtime: Runtime, rounds: Rounds) -> None:
    def begin(sender: Any, **_: Any) -> None:
        _check_pool(sender)
        sender.pool_cls = pool_of(rounds)
        if SUPERVISED not in os.environ:
            for sentence in unknown_names(os.environ):
                sys.stderr.write(f"roundelay: {sentence}\n")
        log_our_way()  # what is said while it starts is said before Celery asks for its log
        try:
            runtime.start()
        except UnfitToStart as exc:
            sys.stderr.write(f"roundelay: {exc}\n")
            sys.exit(EXIT_UNFIT if exc.for_good else 1)
        except Exception:  # Celery would log it and start a worker that can do nothing
            log.exception("worker_unfit")
            sys.exit("roundelay: the worker cannot start; the lines above say why")

    def drain(**_: Any) -> None:
        runtime.drain(runtime.settings.shutdown_grace)

    def stop(**_: Any) -> None:
        runtime.stop()

    def log_our_way(**_: Any) -> None:
        logs.configure(runtime.settings.log_level)

    def end_overdue(**_: Any) -> None:
        end_overdue_for_good(runtime.settings)

    signals.setup_logging.connect(log_our_way, weak=False)
    signals.beat_init.connect(end_overdue, weak=False)
    signals.worker_init.connect(begin, weak=False)
    signals.worker_shutting_down.connect(drain, weak=False)
    signals.worker_shutdown.connect(stop, weak=False)
    app.steps["consumer"].add(consuming_step(runtime, rounds))


def _check_pool(worker: Any) -> None:
    pool = worker.pool_cls if isinstance(worker.pool_cls, str) else worker.pool_cls.__module__
    if "thread" not in pool:
        name = pool.rpartition(".")[2]
        sys.exit(
            f"roundelay: the {name} pool cannot run Roundelay: its event loop, time limits and cancellation need "
            "the threads pool. Start the worker with -P threads."
        )


def _build() -> Celery:
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as exc:
        sys.stderr.write(f"roundelay: {exc}\n")
        sys.exit(EXIT_UNFIT)
    return build_worker(settings)


app = _build()
