"""CPU and memory of worker processes, from /proc."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep

import psutil


@dataclass(frozen=True)
class Memory:
    """Resident and proportional size in bytes; pages shared by two processes count once in ``pss``."""

    rss: int
    pss: int


class Workers:
    """The worker processes of one system, their children included."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.roots = [psutil.Process(pid) for pid in pids]

    def _each(self) -> Iterator[psutil.Process]:
        for root in self.roots:
            with suppress(psutil.NoSuchProcess):
                yield root
                yield from root.children(recursive=True)

    def cpu_seconds(self) -> float:
        """Return the CPU time that they have used, those children included that have ended."""
        total = 0.0
        for process in self._each():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def memory(self) -> Memory:
        """Return what they hold now."""
        rss = pss = 0
        for process in self._each():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                full = process.memory_full_info()
                rss += full.rss
                pss += full.pss
        return Memory(rss, pss)

    def settle(self, timeout: float = 15) -> None:
        """Return once they have been nearly idle for half a second, at the latest after ``timeout``."""
        until = monotonic() + timeout
        before = self.cpu_seconds()
        while monotonic() < until:
            busy = False
            for _ in range(5):
                sleep(0.1)
                busy = busy or self._wants_cpu()
            now = self.cpu_seconds()
            if now - before < 0.06 and not busy:
                return
            before = now

    def _wants_cpu(self) -> bool:
        """On a busy machine a process that starts up may get no CPU for a while: it is not idle, it waits its turn."""
        waiting = {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
        with suppress(psutil.NoSuchProcess):
            return any(process.status() in waiting for process in self._each())
        return False

    def pids(self) -> list[int]:
        """Return the processes that run now."""
        return [process.pid for process in self._each()]

    def kill(self) -> None:
        """Kill them all."""
        for process in list(self._each()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
