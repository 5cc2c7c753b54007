"""Conditions with a bound, generous because a test machine may be loaded."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 45.0
"""Seconds that anything may take on a loaded machine; what is quick is asserted apart."""


def eventually(look: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Return the first truthy value of ``look``; fail with ``what`` if there is none in time."""
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what}"
        time.sleep(0.02)
