"""Which measures there are, how each wants its system started, and whom each concerns."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.measures.idle import growth, idle, rest
from bench.measures.load import crowd, load, queue
from bench.measures.stream import stream
from bench.stage import Setting, Stage
from bench.system import System

BUSY = Setting()
ALONE = Setting(processes=1)
WATCHED = Setting(watched=True)
HELD = 0.25
"""Of a core: so little that one process and two leave the rest of the machine room."""
WATCHABLE = ("roundelay",)
STREAMING = ("roundelay",)
PAIR = ("celery-chain", "roundelay")


def anyone(kind: type[System]) -> bool:
    """Every system takes part."""
    del kind
    return True


def queued(kind: type[System]) -> bool:
    """Only systems with a queue of their own."""
    return kind.has_queue


def watchable(kind: type[System]) -> bool:
    """Only ours: Flower beside it or not."""
    return kind.name in WATCHABLE


def compared(kind: type[System]) -> bool:
    """Only ours and the chain that people write: slow systems take minutes on a quarter of a core."""
    return kind.name in PAIR


def streaming(kind: type[System]) -> bool:
    """Only systems whose text reaches a reader in another process as it comes."""
    return kind.name in STREAMING


@dataclass(frozen=True)
class Measure:
    """A measure on a stage; ``suffix`` sets its numbers apart from those of the same function elsewhere."""

    name: str
    run: Callable[[Stage], dict[str, float]]
    setting: Setting = BUSY
    concerns: Callable[[type[System]], bool] = anyone
    suffix: str = ""
    once: bool = False


MEASURES = (
    Measure("idle", idle),
    Measure("rest", rest),
    Measure("load", load),
    Measure("growth", growth),
    Measure("stream", stream, concerns=streaming),
    Measure("one-process", load, ALONE, suffix="_one_process"),
    Measure("held-one", load, Setting(processes=1, share=HELD), compared, "_held_one"),
    Measure("held-two", load, Setting(processes=2, share=HELD), compared, "_held_two"),
    Measure("flower", load, WATCHED, watchable, "_flower"),
    Measure("crowd", crowd, once=True),
    Measure("queue", queue, concerns=queued, once=True),
)
"""In the order in which they run on one stage; those of one setting share a stage."""
