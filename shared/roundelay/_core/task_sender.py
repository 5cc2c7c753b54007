"""The sender of a process, built at its first task, and what is said when a task could not be sent."""

import logging
import threading
from importlib import import_module
from typing import Protocol, cast

from roundelay.names import messages_queue
from roundelay.settings import Settings

logger = logging.getLogger("roundelay")


class _Sender(Protocol):
    def send(self, message_id: str) -> None: ...

    def close(self) -> None: ...


class TaskSender:
    """Sends tasks; thread-safe. Nothing is imported or connected before the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sender: _Sender | None = None

    def send(self, message_id: str) -> None:
        """Send the task of this message."""
        self._open().send(message_id)

    def close(self) -> None:
        """Close what was opened."""
        if self._sender is not None:
            self._sender.close()

    def _open(self) -> _Sender:
        with self._lock:
            if self._sender is None:
                sending = import_module(
                    "roundelay._core.celery_sender"
                )  # celery: half a second, and only a submit needs it
                sender = sending.CelerySender(self._settings.broker_url, messages_queue(self._settings.prefix))
                self._sender = cast("_Sender", sender)
            return self._sender


def note_unsent(message_id: str, error: BaseException) -> None:
    """Log that a stored message has no task; the watchdog finds it."""
    logger.warning("task_not_sent", extra={"message_id": message_id, "error": type(error).__name__})
