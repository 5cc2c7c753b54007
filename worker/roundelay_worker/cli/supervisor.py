"""Keeps a crew running until it is told to stop, and passes on how."""

import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from roundelay_worker.cli.crew import LAST_WORDS, LONGEST_DELAY, Crew

_STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_AFTER_STOP: Final = 0.2
_HANDING_OVER: Final = 5.0
"""Seconds after the grace time in which children hand over what they could not finish."""


class _Inbox:
    """The signals that came, and a file that becomes readable with each."""

    def __init__(self, readable: socket.socket) -> None:
        self._readable = readable
        self._came: list[signal.Signals] = []

    def take(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(signal.Signals(number))

    def wait(self, timeout: float) -> list[signal.Signals]:
        """Return the stop signals that came; at once if there are any, or when a child ended."""
        if not self._came and select.select([self._readable], [], [], timeout)[0]:
            self._readable.recv(4096)
        came, self._came = self._came, []
        return [number for number in came if number in _STOPS]


@contextmanager
def _listening() -> Iterator[_Inbox]:
    readable, writable = socket.socketpair()
    with readable, writable:
        writable.setblocking(False)  # the name of the parameter is positional there
        inbox = _Inbox(readable)
        wakeup = signal.set_wakeup_fd(writable.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, inbox.take) for number in (*_STOPS, signal.SIGCHLD)}
        try:
            yield inbox
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, action in before.items():
                signal.signal(number, action)


def supervise(crew: Crew, grace: float, watch: Callable[[], float] = lambda: LONGEST_DELAY) -> int:
    """Keep the crew running until SIGTERM, Ctrl-C or SIGQUIT; return 0 if it ended in order, 1 if by force.

    ``watch`` is called between other duties and returns the seconds until it wants to be called again. What it
    raises, or a crew that is unfit, ends the children and goes to the caller.

    The first SIGTERM or Ctrl-C lets children finish what they are at for ``grace`` seconds, and hand over the rest;
    the second, or a SIGQUIT, ends them hard. What they had not finished is taken over by others: it is stored.
    """
    with _listening() as inbox:
        came = _stops(crew, inbox, watch)
        is_hard = signal.SIGQUIT in came or len(came) > 1
        if not is_hard:
            crew.signal(signal.SIGTERM)
            if _gone(crew, inbox, grace + _HANDING_OVER):
                crew.tell_deeds()
                return 0
        crew.stop(0)
        return 1


def _stops(crew: Crew, inbox: _Inbox, watch: Callable[[], float]) -> list[signal.Signals]:
    """Tend the crew until stop signals come, and return them."""
    try:
        while not (came := inbox.wait(min(crew.tend(), watch()))):
            pass
    except BaseException:
        crew.stop(LAST_WORDS)
        raise
    return came


def _gone(crew: Crew, inbox: _Inbox, grace: float) -> bool:
    """Return whether every child ended in time, with nobody asking for more haste."""
    deadline = time.monotonic() + grace
    while not crew.all_gone and time.monotonic() < deadline:
        if inbox.wait(_AFTER_STOP):
            return False
        crew.end_frozen()
    return crew.all_gone
