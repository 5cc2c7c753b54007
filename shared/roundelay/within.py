"""Bounded calls: a caller never waits longer than it said, whatever a resolver, a handshake or a socket does.

The call runs in a thread of its own, which ends with the call (its sockets have timeouts). A name look-up
that hangs for half a minute cannot be bounded in any other way.
"""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TypeVar

from roundelay.errors import Unreachable

T = TypeVar("T")


def start(call: Callable[[], T]) -> Future[T]:
    """Run ``call`` in a thread, in the caller's context (tracing goes on there)."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            future.set_exception(error)

    threading.Thread(target=run, name="roundelay-call", daemon=True).start()
    return future


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what ``call`` returns, or raise ``Unreachable`` after ``seconds``."""
    future = start(call)
    try:
        return future.result(seconds)
    except NotYet:
        if future.done():
            raise
        raise Unreachable("Redis did not answer in time") from None
