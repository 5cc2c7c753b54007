"""Threads that grow with the work: one that hangs never makes the others wait."""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, TypeVar

T = TypeVar("T")
Work = Callable[[], None]

KEPT_IDLE: Final = 16


class Threads:
    """Runs each piece of work at once, in an idle thread or else in a new one.

    The executors of the standard library are bounded, so that calls which overran would hold up the ones
    after them, and they are joined at exit. These threads are daemons: a hanging one does not keep the
    worker from ending. What is started must not raise.
    """

    def __init__(self, name: str, kept_idle: int = KEPT_IDLE) -> None:
        self._name = name
        self._kept_idle = kept_idle
        self._lock = Lock()
        self._idle: list[SimpleQueue[Work | None]] = []

    def start(self, work: Work) -> None:
        """Begin ``work`` now; raises RuntimeError if the system gives no more threads."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()
        inbox.put(work)

    def close(self) -> None:
        """Let the idle threads end; those at work end after it."""
        with self._lock:
            self._kept_idle = 0
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _serve(self, inbox: SimpleQueue[Work | None]) -> None:
        while work := inbox.get():
            work()
            del work  # an idle thread keeps nothing alive
            with self._lock:
                if len(self._idle) >= self._kept_idle:
                    return
                self._idle.append(inbox)


def in_thread(threads: Threads, work: Callable[[], T]) -> asyncio.Future[T]:
    """Begin ``work`` with this context's variables; the future is set on the running loop. ``work`` must not raise."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T) -> None:
        if not future.done():
            future.set_result(value)

    def body() -> None:
        value = work()
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            loop.call_soon_threadsafe(settle, value)

    variables = contextvars.copy_context()
    threads.start(lambda: variables.run(body))
    return future
