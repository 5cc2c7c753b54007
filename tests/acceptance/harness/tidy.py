"""A SETUP function under which the watchdog prunes each second, not each hour."""

from roundelay_worker.recovery import watchdog


def setup() -> None:
    """Shorten the pause, in this worker process."""
    watchdog._PRUNE_EVERY = 1.0  # type: ignore[misc]
