"""Bounded calls: a caller never waits longer than it said, whatever a resolver, a handshake or a socket does.

The call runs in a thread beside the caller's. A name look-up that hangs for half a minute cannot be bounded in any
other way. A thread whose call has ended serves the next one: to start one costs as much as the call.
"""

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from roundelay.errors import Unreachable

T = TypeVar("T")


_IDLE: Final = 5.0
"""Seconds that a thread waits for another call before it ends."""

_Call = tuple[contextvars.Context, Callable[[], Any], "Future[Any]"]
_idle: Final[deque[SimpleQueue[_Call]]] = deque()
"""What threads that have nothing to do wait at, the last to become so first."""
os.register_at_fork(after_in_child=_idle.clear)


def start(call: Callable[[], T]) -> Future[T]:
    """Run ``call`` in a thread, in the caller's context (tracing goes on there)."""
    future: Future[T] = Future()
    wanted = (contextvars.copy_context(), call, future)
    try:
        _idle.pop().put(wanted)
    except IndexError:
        threading.Thread(target=_serve, args=(wanted,), name="roundelay-call", daemon=True).start()
    return future


def _serve(wanted: _Call | None) -> None:
    calls: SimpleQueue[_Call] = SimpleQueue()
    while wanted is not None:
        _make(calls, *wanted)
        del wanted  # nothing of it is kept while there is nothing to do
        wanted = _next(calls)


def _make(
    calls: SimpleQueue[_Call], context: contextvars.Context, call: Callable[[], Any], future: Future[Any]
) -> None:
    """Make a call, be there for another, and only then tell the caller, whose next call is to come here."""
    try:
        tell = partial(future.set_result, context.run(call))
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
        tell = partial(future.set_exception, error)
    _idle.append(calls)
    tell()


def _next(calls: SimpleQueue[_Call]) -> _Call | None:
    """Return the next call, or None after 5 s idle, once no caller can hand us one."""
    try:
        return calls.get(timeout=_IDLE)
    except Empty:
        try:
            _idle.remove(calls)
        except ValueError:  # somebody has just taken us
            return calls.get()
        return None


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """Return what ``call`` returns, or raise ``Unreachable`` after ``seconds``."""
    future = start(call)
    try:
        return future.result(seconds)
    except NotYet:
        if future.done():
            raise
        raise Unreachable("Redis did not answer in time") from None
