"""The database's clock, read without asking the database each time."""

import time


def ticking() -> float:
    """Return a clock that goes on through a suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Seconds since the epoch by the database's clock, as last seen, carried on by this machine's ticks."""

    def __init__(self, now: float) -> None:
        self._offset = now - ticking()

    def now(self) -> float:
        """Return the database's time, as well as it is known here."""
        return self._offset + ticking()

    def seen(self, now: float) -> None:
        """Take note of a time that the database has just told."""
        self._offset = now - ticking()
