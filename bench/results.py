"""Numbers of a run, kept as JSON so that the page can be made again without measuring again."""

import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import orjson
import psutil

from bench.system import System


def cpu_model() -> str:
    """Return what the processor calls itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def commit() -> str:
    """Return the short id of the commit that was measured."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def package_versions(kinds: Iterable[type[System]]) -> dict[str, str]:
    """Return the versions of the packages that the systems name."""
    found: dict[str, str] = {}
    for package in sorted({package for kind in kinds for package in kind.packages}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


@dataclass
class Results:
    """Values by system and number, one for each repetition, and what they were measured on."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, system: str, numbers: Mapping[str, float], suffix: str = "") -> None:
        """Keep the numbers of one repetition."""
        mine = self.values.setdefault(system, defaultdict(list))
        for name, value in numbers.items():
            mine.setdefault(name + suffix, []).append(value)

    def fail(self, system: str, measure: str, reason: BaseException) -> None:
        """Keep why a measure gave no number."""
        text = f"{measure}: {type(reason).__name__}: {reason}"
        self.failures.setdefault(system, []).append(text.splitlines()[0][:200])

    def median(self, system: str, name: str) -> float | None:
        """Return the median of the repetitions, None if there is none."""
        values = self.values.get(system, {}).get(name)
        return median(values) if values else None

    def describe(self, kinds: Iterable[type[System]], servers: Mapping[str, str], repeats: int) -> None:
        """Note machine, date, command and versions."""
        self.facts = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": commit(),
            "command": " ".join(["python -m bench", *sys.argv[1:]]),
            "cores": str(psutil.cpu_count()),
            "processor": cpu_model(),
            "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
            "system": f"{platform.system()} {platform.release().partition('-')[0]}",
            "repetitions": str(repeats),
            "load": f"{os.getloadavg()[0]:.1f}",
        }
        self.versions = {"Python": platform.python_version(), **servers, **package_versions(kinds)}

    def save(self, path: Path) -> None:
        """Write the results."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(self, option=orjson.OPT_INDENT_2))

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read the results of an earlier run."""
        return cls(**orjson.loads(path.read_bytes()))
