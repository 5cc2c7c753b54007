"""The worker's app on a host of another name, as each new container has: ``HARNESS_HOST``."""

import os
import socket

socket.gethostname = lambda: os.environ["HARNESS_HOST"]

from roundelay_worker.taskqueue.app import app  # noqa: E402 - the name is read when it is loaded

__all__ = ["app"]
