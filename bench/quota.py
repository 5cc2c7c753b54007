"""Shares of a core for processes, through the kernel's control groups where this user may write them (version 1 or 2).

On few cores the model, PostgreSQL and Valkey take what a second worker process would need. Processes that are held to a
share of a core leave room, so that what one and two of them do can be compared.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from os import getpid
from pathlib import Path

PERIOD = 20_000
"""Microseconds: short, so that a process that is held back is not held back long."""
ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
NUMBERS = count()


class Quotas:
    """Groups of this run, one a process; ``close`` after the processes have ended."""

    def __init__(self) -> None:
        self.groups: list[Path] = []

    def hold(self, pids: Sequence[int], cores: float) -> None:
        """Give each process, with what it starts from now on, at most ``cores`` of a core; raise OSError if refused."""
        for pid in pids:
            group = (
                next(root for root in ROOTS if (root / "cgroup.procs").exists()) / f"bench-{getpid()}-{next(NUMBERS)}"
            )
            group.mkdir()
            self.groups.append(group)
            quota = int(PERIOD * cores)
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {PERIOD}")
            (group / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Remove the groups."""
        for group in self.groups:
            with suppress(OSError):
                group.rmdir()
