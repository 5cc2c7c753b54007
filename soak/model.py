"""``python -m soak.model JOURNAL``: the strict fake as a process, which notes every request in a journal of its own."""

import re
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Final

from roundelay_worker.testing.fake_llm import FakeLLM, Recorded
from soak.journal import append

KEEP: Final = 20_000
EVERY: Final = 0.2
_NAME: Final = re.compile(rb'name\\": \\"(soak-\d{6})\\"')


def main(journal: Path) -> None:
    """Serve until SIGTERM."""
    over = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with FakeLLM(keep=KEEP) as fake:
        sys.stdout.write(f"{fake.url}\n")
        sys.stdout.flush()
        seen = 0
        while not over.wait(EVERY):
            seen = _note_new(fake, journal, seen)
        _note_new(fake, journal, seen)


def _note_new(fake: FakeLLM, journal: Path, seen: int) -> int:
    for request in fake.requests[-min(fake.total - seen, KEEP) :] if fake.total > seen else ():
        if request.number > seen:
            append(journal, _row(request))
            seen = request.number
    return seen


def _row(request: Recorded) -> dict[str, object]:
    users = [found.decode() for found in _NAME.findall(request.raw)]
    return {
        "number": request.number,
        "at": request.at,
        "name": request.name,
        "step": request.step,
        "attempt": request.attempt,
        "refused": request.refused,
        "users": users,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
