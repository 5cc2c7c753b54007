"""The two Celery tasks: a new message, and a round of one that goes on. They carry ids, never content."""

from collections.abc import Callable
from typing import Any

from celery import Celery, Task
from celery.worker.request import Request

from roundelay.names import ANSWER_TASK, ROUND_TASK
from roundelay_worker.store.records import Dispatch
from roundelay_worker.wiring import Runtime

Send = Callable[[tuple[Dispatch, ...], str], tuple[Dispatch, ...]]
"""Sends tasks for the task of this id; returns those that could not be sent."""


class Unacknowledged(Request):  # type: ignore[misc]
    """A request from a queue without acknowledgements: Kombu's Redis transport would send them all the same."""

    def acknowledge(self) -> None:
        """Note that nothing is owed to the broker."""
        self.acknowledged = True


class UnacknowledgedTask(Task):  # type: ignore[misc]
    """A task of such a queue."""

    Request = Unacknowledged


def add_tasks(app: Celery, runtime: Runtime, send: Send) -> None:
    """Register the tasks on ``app``; each does one round in ``runtime`` and sends what follows."""
    base = Task if app.conf.task_acks_late else UnacknowledgedTask

    def work(task_id: str, dispatch: Dispatch) -> None:
        if runtime.draining:
            send((dispatch,), task_id)  # for a worker that stays
            return
        new = dispatch.queue == "messages"
        unsent = send(runtime.run(dispatch.message_id, dispatch.dispatch, new=new), task_id)
        while begun := [one for one in unsent if one.queue == "rounds"]:
            # The broker is away or full: a message that is under way goes on here.
            unsent = send(runtime.run(begun[0].message_id, begun[0].dispatch), task_id)

    @app.task(name=ANSWER_TASK, bind=True, base=base)  # type: ignore[untyped-decorator]
    def answer(task: Any, message_id: str, dispatch: int = 1) -> None:
        """Begin a message: its first round."""
        work(task.request.id, Dispatch(message_id, 1, dispatch, "messages"))

    @app.task(name=ROUND_TASK, bind=True, base=base)  # type: ignore[untyped-decorator]
    def round_(task: Any, message_id: str, round_number: int, dispatch: int) -> None:
        """Go on with a message: one more round."""
        work(task.request.id, Dispatch(message_id, round_number, dispatch, "rounds"))


def task_of(dispatch: Dispatch) -> tuple[str, list[Any], str]:
    """Return name, arguments and id of the task that a dispatch is sent as."""
    message_id = dispatch.message_id
    if dispatch.queue == "messages":
        task_id = message_id if dispatch.dispatch == 1 else f"{message_id}.0.{dispatch.dispatch}"
        return ANSWER_TASK, [message_id, dispatch.dispatch], task_id
    return (
        ROUND_TASK,
        [message_id, dispatch.round, dispatch.dispatch],
        f"{message_id}.{dispatch.round}.{dispatch.dispatch}",
    )
