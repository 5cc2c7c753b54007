"""A journal that outlives whoever writes it: one line a row, appended by one ``write``.

Not a database: a process that is stopped (SIGSTOP) or killed in the middle of a row would hold its lock or lose the
row, and the truth about the others would depend on it. A row is in the file once ``write`` has returned, or it is not.
"""

import json
import os
from pathlib import Path
from typing import Any


def append(file: Path, row: dict[str, Any]) -> None:
    """Append a row."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(row).encode() + b"\n")
    finally:
        os.close(descriptor)


def read(file: Path) -> list[dict[str, Any]]:
    """Return all rows, oldest first."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]
