"""One line an event: its name, then its ids. No user text and no secret is ever bound to one."""

import logging
from typing import Final

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}
_CHATTY: Final = ("celery.app.trace", "celery.worker.strategy", "alembic")
"""Loggers that say a line or two for each task; what they say stands in Flower and in ``roundelay show``."""


class EventFormatter(logging.Formatter):
    """``time level event key=value …``; a traceback follows where there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line with what was bound to it."""
        bound = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        words = " ".join(f"{name}={value}" for name, value in sorted(bound.items()))
        head, newline, rest = super().format(record).partition("\n")
        return f"{head} {words}{newline}{rest}" if words else f"{head}{newline}{rest}"


def configure(level: str) -> None:
    """Send the log of this process to its standard error, from ``level`` up."""
    handler = logging.StreamHandler()
    handler.setFormatter(EventFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level != "DEBUG":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
