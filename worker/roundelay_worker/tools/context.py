"""What a tool is told about the call it serves, and how it tells of failure and progress."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from time import monotonic

from pydantic import JsonValue

_LOG = logging.getLogger(__name__)


class ToolError(Exception):
    """A failure that the model may read: ``message`` reaches it, with an optional ``code`` and ``recovery``.

    Raise it for what the model can mend or should tell the user. Any other exception reaches the model
    as its class name alone.
    """

    def __init__(self, message: str, *, code: str = "tool_error", recovery: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.recovery = recovery


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call that a tool serves.

    ``user_id`` is '' for none. ``idempotency_key`` is the same over all attempts at this call.
    ``deadline`` is an aware datetime. ``context`` is what the web app passed to ``submit``.
    """

    message_id: str
    conversation_id: str
    user_id: str
    call_id: str
    idempotency_key: str
    deadline: datetime
    context: JsonValue = field(default=None, hash=False, repr=False)
    on_progress: Callable[[str], None] | None = field(default=None, repr=False, compare=False)

    def progress(self, text: str) -> None:
        """Show ``text`` to the reader while the tool works; may be called from any thread, never raises or waits.

        Texts are cut at 500 characters; beyond ten at once and five a second they are dropped.
        """
        if self.on_progress is not None:
            self.on_progress(text)


class ProgressGate:
    """Stands before a progress hook: bounds length and rate, and is silent once its call has ended.

    The hook is called in the tool's own thread, so it must be thread-safe; if it raises, that is logged.
    """

    LONGEST = 500
    BURST = 10.0
    PER_SECOND = 5.0

    def __init__(self, hook: Callable[[str], None] | None, clock: Callable[[], float] = monotonic) -> None:
        self._hook = hook
        self._clock = clock
        self._lock = Lock()
        self._tokens = self.BURST
        self._filled_at = clock()

    def __call__(self, text: str) -> None:
        """Pass ``text`` on, or drop it."""
        hook = self._hook
        if hook is None or not self._admits():
            return
        try:
            hook(str(text)[: self.LONGEST])
        except Exception as exc:  # noqa: BLE001 - whatever the hook does, the tool goes on
            _LOG.warning("progress_hook_failed error=%s", type(exc).__name__)

    def close(self) -> None:
        """Let nothing through any more."""
        self._hook = None

    def _admits(self) -> bool:
        with self._lock:
            now = self._clock()
            self._tokens = min(self.BURST, self._tokens + (now - self._filled_at) * self.PER_SECOND)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
