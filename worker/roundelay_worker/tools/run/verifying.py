"""Reads what a ``verify`` function says about a write of unknown outcome."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from roundelay_worker.loop.history import Result
from roundelay_worker.tools.run.calling import is_cancelled
from roundelay_worker.tools.run.rendering import render
from roundelay_worker.tools.run.results import clean
from roundelay_worker.tools.run.truncation import shorten

DONE_TEXT: Final = "The call took effect; what it returned was lost."


@dataclass(frozen=True, slots=True)
class Verified:
    """What ``verify`` found out; ``result`` is set for ``done``."""

    state: Literal["done", "not_done", "unknown"]
    result: Result | None = None


UNKNOWN: Final = Verified("unknown")


def verify_here(question: Callable[[], Any], limit: int) -> Verified:
    """Ask a sync ``verify`` in this thread; never raises."""
    try:
        return _read(question(), limit)
    except BaseException:  # noqa: BLE001 - a check that fails tells nothing
        return UNKNOWN


async def verify_async(question: Callable[[], Awaitable[Any]], limit: int) -> Verified:
    """Ask an async ``verify``; raises nothing but CancelledError."""
    try:
        return _read(await question(), limit)
    except BaseException as exc:
        if is_cancelled(exc):
            raise
        return UNKNOWN


def _read(said: object, limit: int) -> Verified:
    if said is None:
        return UNKNOWN
    if said is False:
        return Verified("not_done")
    text = DONE_TEXT if said is True else render(said).text
    return Verified("done", Result(shorten(clean(text), limit)))
