"""The worker's app with a consumer that never comes back once it has lost its broker."""

import time
from typing import Any

from celery import bootsteps

from roundelay_worker import wiring
from roundelay_worker.app import app

wiring._DEAF = 1.0  # type: ignore[misc]


class Deaf(bootsteps.StartStopStep):
    """Starts once."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def __init__(self, parent: Any, **_: Any) -> None:
        self.starts = 0

    def start(self, parent: Any) -> None:
        self.starts += 1
        if self.starts > 1:
            time.sleep(600)


app.steps["consumer"].add(Deaf)
