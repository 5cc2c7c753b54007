"""A SETUP function under which the worker's wall clock is ``HARNESS_SKEW`` seconds wrong."""

import os
import time


def setup() -> None:
    """Shift what ``time.time`` says, in this worker process."""
    right, skew = time.time, float(os.environ["HARNESS_SKEW"])
    time.time = lambda: right() + skew
