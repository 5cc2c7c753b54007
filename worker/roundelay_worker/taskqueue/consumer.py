"""How Celery's consumer takes tasks for a worker: only what it can begin, and at once when there is room again."""

import os
from contextlib import suppress
from typing import Any

from celery import bootsteps

from roundelay_worker.taskqueue.rounds import Rounds
from roundelay_worker.wiring import Runtime

_EVENTS_EVERY = 0.25
"""Seconds that an event for Flower may wait for others."""
_UNWATCHED = 2.0
"""Seconds between two looks whether anybody wants events of tasks."""
_EVENTS_AT_ONCE = 100


def consuming_step(runtime: Runtime, rounds: Rounds) -> type:
    """Return the step to be added to Celery's consumer; it begins again with every reconnect."""
    bell = _Bell()

    class Consuming(bootsteps.StartStopStep):  # type: ignore[misc]
        """Tells the runtime whether this worker consumes."""

        requires = ("celery.worker.consumer.tasks:Tasks",)

        def start(self, parent: Any) -> None:
            _gather_events(parent)
            _take_only_what_can_be_claimed(parent, runtime)
            if parent.hub is not None:
                parent.hub.add_reader(bell.heard_at, bell.hear)
                rounds.when_there_is_room(parent.pool.num_processes, bell.ring)
            runtime.consuming(True)

        def stop(self, parent: Any) -> None:  # noqa: ARG002 - Celery's signature
            runtime.consuming(False)

    return Consuming


class _Bell:
    """Wakes a consumer that waits for its sockets: it asks whether there is room only when something happens."""

    def __init__(self) -> None:
        self.heard_at, self._rope = os.pipe()
        os.set_blocking(self.heard_at, False)
        os.set_blocking(self._rope, False)

    def ring(self) -> None:
        with suppress(BlockingIOError):  # it has not been heard yet
            os.write(self._rope, b"!")

    def hear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.heard_at, 4096)


def _gather_events(consumer: Any) -> None:
    """Have the events of tasks, if anybody wants them, sent some at a time and not each by itself."""
    dispatcher = consumer.event_dispatcher
    if dispatcher is None:
        return

    def flush() -> None:
        if consumer.event_dispatcher is dispatcher:
            watched = dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups)
            consumer.timer.call_after(_EVENTS_EVERY if watched else _UNWATCHED, flush)
            dispatcher.flush()

    dispatcher.on_send_buffered = None
    dispatcher.buffer_limit = _EVENTS_AT_ONCE
    flush()


def _take_only_what_can_be_claimed(consumer: Any, runtime: Runtime) -> None:
    """Leave the queues on Redis to others while this process has no lease; it could not begin what it takes."""
    qos: Any = getattr(consumer.task_consumer.channel, "qos", None)  # only a transport that polls has one
    if has_room := getattr(qos, "can_consume", None):
        qos.can_consume = lambda: runtime.may_claim and has_room()
