"""The pool of a worker: Celery's threads pool, whose slots are coroutines of the process's event loop.

A round waits for a model most of its time. A thread that waits beside it costs a hundred kilobytes and two changes
of thread a round; a coroutine costs neither. So Celery's consumer reads a task and begins its round on the loop, and
one thread sends what follows and tells Celery that the task has ended. Kombu blocks, so none of that is the loop's.

A task that cannot be read runs in a thread as Celery would have it, and fails there with a reason. Celery's signals
about a task (``task_prerun`` and the like) are not sent: their receivers may block, as Django's do.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.thread import TaskPool

from roundelay_worker.engine.session import RoundEnd
from roundelay_worker.store.records import Dispatch
from roundelay_worker.taskqueue.outcomes import outcome_of
from roundelay_worker.taskqueue.tasks import dispatch_of, task_of
from roundelay_worker.wiring import Runtime

log = logging.getLogger(__name__)

Send = Callable[[tuple[Dispatch, ...], str], tuple[Dispatch, ...]]
"""Sends tasks for the task of this id; returns those that could not be sent."""
Ended = Callable[[tuple[int, Any, float]], Any]
"""Celery's callback of a task: whether it failed, its result or error, its seconds."""


class Rounds:
    """The rounds that this process has under way, each for a task that Celery wants to hear the end of."""

    def __init__(self, runtime: Runtime, send: Send) -> None:
        self._runtime = runtime
        self._send = send
        self._sending = ThreadPoolExecutor(1, "roundelay-sending")
        self._under_way = 0
        self._fewer = threading.Condition()
        self._room: tuple[int, Callable[[], None]] = (0, lambda: None)

    def when_there_is_room(self, limit: int, call: Callable[[], None]) -> None:
        """Have ``call`` called, from any thread, when a task ends while ``limit`` or more were under way."""
        self._room = (limit, call)

    def begin(self, dispatch: Dispatch, ended: Ended) -> None:
        """Begin the round of a task, from any thread; ``ended`` is called when what follows from it is sent."""
        with self._fewer:
            self._under_way += 1
        self._runtime.spawn(self._round(dispatch, ended, time.monotonic()))

    def finish(self) -> None:
        """Wait until no round is under way; none must be begun any more."""
        with self._fewer:
            self._fewer.wait_for(lambda: not self._under_way)
        self._sending.shutdown()

    async def _round(self, dispatch: Dispatch, ended: Ended, began: float) -> None:
        try:
            end = await self._runtime.round(dispatch)
        except BaseException as exc:  # a cancelled round has ended as well
            log.exception("round_broke", extra={"message_id": dispatch.message_id})
            self._sending.submit(self._end, ended, (1, ExceptionInfo(), time.monotonic() - began))
            if not isinstance(exc, Exception):
                raise
        else:
            self._sending.submit(self._hand_on, dispatch, end, ended, began)

    def _hand_on(self, dispatch: Dispatch, end: RoundEnd, ended: Ended, began: float) -> None:
        unsent = self._send(end.dispatches, task_of(dispatch)[2])
        mine = next((one for one in unsent if one.queue == "rounds" and one.message_id == dispatch.message_id), None)
        if mine and not self._runtime.draining:
            # The broker is away or full: a message that is under way goes on here.
            self._runtime.spawn(self._round(mine, ended, began))
            return
        self._end(ended, outcome_of(end.told, time.monotonic() - began))

    def _end(self, ended: Ended, outcome: tuple[int, Any, float]) -> None:
        try:
            ended(outcome)
        except Exception:
            log.exception("task_end_not_told")
        finally:
            limit, call = self._room
            with self._fewer:
                was_full = self._under_way >= limit
                self._under_way -= 1
                self._fewer.notify_all()
            if was_full:
                call()


def pool_of(rounds: Rounds) -> type[TaskPool]:
    """Return the pool class that Celery is to make the worker's pool of."""

    class RoundsPool(TaskPool):  # type: ignore[misc]
        """Begins rounds; what is not a round runs in a thread."""

        def on_apply(
            self,
            target: Callable[..., Any],
            args: Any = None,
            kwargs: Any = None,
            callback: Any = None,
            accept_callback: Any = None,
            **options: Any,
        ) -> Any:
            dispatch = dispatch_of(*args)
            if dispatch is None:
                return super().on_apply(target, args, kwargs, callback, accept_callback, **options)
            accept_callback(os.getpid(), time.monotonic())
            rounds.begin(dispatch, callback)
            return None

        def terminate_job(self, pid: int, signal: Any = None) -> None:
            """Let a round go on: it is handed over when the grace time ends, and none can be stopped from here."""

        def on_stop(self) -> None:
            rounds.finish()
            super().on_stop()

    return RoundsPool
