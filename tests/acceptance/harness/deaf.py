"""The worker's app with a consumer that never comes back once it has lost its broker."""

import time
from itertools import count
from typing import Any

from celery.worker.consumer.tasks import Tasks

from roundelay_worker import wiring
from roundelay_worker.taskqueue.app import app

__all__ = ["app"]

wiring._DEAF = 1.0  # type: ignore[misc]
STARTS = count(1)


def _once(start: Any) -> Any:
    def started(self: Tasks, consumer: Any) -> None:
        if next(STARTS) > 1:
            time.sleep(600)
        start(self, consumer)

    return started


Tasks.start = _once(Tasks.start)
