"""How long a web process takes to be able to submit."""

import subprocess
import sys
from statistics import median
from time import monotonic

from bench.system import System


def run(statement: str) -> float:
    """Return the seconds that a fresh interpreter takes for a statement."""
    started = monotonic()
    subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True)
    return monotonic() - started


def imports(kind: type[System], repeats: int = 7) -> dict[str, float]:
    """Return the time of the client's import beyond that of an empty program, in ms."""
    assert kind.client_import is not None
    run(kind.client_import)
    pairs = [(run(kind.client_import), run("pass")) for _ in range(repeats)]
    return {"import_ms": 1e3 * median(loaded - empty for loaded, empty in pairs)}
