"""A SETUP function that kills its process at the k-th point of a message's life, once.

``HARNESS_CRASH=k`` counts the points over all processes of a deployment: after each statement of the store that
changes something, and before each task is sent. It wraps the store's own methods, in the worker process only.
"""

import functools
import os
import signal
import threading
from pathlib import Path
from typing import Any

from roundelay_worker.store.store import Store
from roundelay_worker.taskqueue.app import Sender

CHANGING = ("accept", "claim", "save")
LOCK = threading.Lock()


def setup() -> None:
    """Put a point after everything that changes the database, and before each task that is sent."""
    for name in CHANGING:
        setattr(Store, name, _pointed(getattr(Store, name)))
    Sender.send = _before_sending(Sender.send)  # type: ignore[method-assign]


def _pointed(method: Any) -> Any:
    @functools.wraps(method)
    async def wrapped(self: Store, *args: Any, **named: Any) -> Any:
        result = await method(self, *args, **named)
        point()
        return result

    return wrapped


def _before_sending(method: Any) -> Any:
    @functools.wraps(method)
    def wrapped(self: Sender, dispatches: Any, *args: Any) -> Any:
        if dispatches:
            point()
        return method(self, dispatches, *args)

    return wrapped


def point() -> None:
    """Count one point; die at the one that is named."""
    file = Path(os.environ["HARNESS_EFFECTS"]).with_name("points")
    with LOCK:
        reached = int(file.read_text() or 0) + 1 if file.exists() else 1
        file.write_text(str(reached))
    if reached == int(os.environ["HARNESS_CRASH"]):
        os.kill(os.getpid(), signal.SIGKILL)
