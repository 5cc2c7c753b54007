"""The two Celery tasks: a new message, and a round of one that goes on. They carry ids, never content.

A task says what is to be done; the pool has it done on the event loop.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from celery import Celery, Task
from celery.worker.request import Request
from kombu.serialization import loads

from roundelay.names import ANSWER_TASK, ROUND_TASK
from roundelay_worker.store.records import Dispatch

_ACCEPTED = ("application/json",)


class Unacknowledged(Request):  # type: ignore[misc]
    """A request from a queue without acknowledgements: Kombu's Redis transport would send them all the same."""

    def acknowledge(self) -> None:
        """Note that nothing is owed to the broker."""
        self.acknowledged = True


class UnacknowledgedTask(Task):  # type: ignore[misc]
    """A task of such a queue."""

    Request = Unacknowledged


def answer(message_id: str, dispatch: int = 1) -> Dispatch:
    """Begin a message: its first round."""
    return _checked(Dispatch(message_id, 1, dispatch, "messages"))


def round_(message_id: str, round_number: int, dispatch: int) -> Dispatch:
    """Go on with a message: one more round."""
    return _checked(Dispatch(message_id, round_number, dispatch, "rounds"))


_TASKS: Final[Mapping[str, Callable[..., Dispatch]]] = {ANSWER_TASK: answer, ROUND_TASK: round_}


def add_tasks(app: Celery) -> None:
    """Register the tasks on ``app``."""
    base = Task if app.conf.task_acks_late else UnacknowledgedTask
    for name, task in _TASKS.items():
        app.task(task, name=name, base=base)


def dispatch_of(name: str, _id: str, _request: Any, body: Any, content_type: str, encoding: str) -> Dispatch | None:
    """Return what a task as Celery hands it to its pool asks for; None if it is none of ours, or malformed."""
    task = _TASKS.get(name)
    if task is None:
        return None
    try:
        args, kwargs, _ = loads(body, content_type, encoding, accept=_ACCEPTED) if content_type else body
        return task(*args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, Celery's own path says so
        return None


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


def _checked(dispatch: Dispatch) -> Dispatch:
    if (
        not isinstance(dispatch.message_id, str)
        or type(dispatch.round) is not int
        or type(dispatch.dispatch) is not int
    ):
        raise TypeError("a task names a message, and counts rounds and dispatches")
    return dispatch
