"""One round of one message, alone in a process that may die of it (``python -m`` runs this module).

It starts first, and says so on its standard output; only then is the message given up by the worker that claimed it,
and named on the standard input. A start may take long, and what nobody owns meanwhile would be sent to somebody else.
"""

import json
import os
import signal
import sys
from typing import Any, Final

from roundelay_worker.process import logs
from roundelay_worker.recovery.quarantine import EXIT_DONE, READY
from roundelay_worker.settings import Settings
from roundelay_worker.store.records import Dispatch
from roundelay_worker.taskqueue.app import Sender, celery_app
from roundelay_worker.wiring import Runtime, UnfitToStart

_STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""What a supervisor or a terminal sends to all processes of a worker: none of it is the message's doing."""


def main() -> None:
    """Run the round that is named, and send what follows; ends the process."""
    settings = Settings.from_env(os.environ)
    logs.configure(settings.log_level)
    sender = Sender(celery_app(settings), settings)
    runtime = Runtime(settings, sender.send_later, sender.queue_length, quarantine=True)
    try:
        runtime.start()
    except UnfitToStart as exc:
        sys.exit(f"roundelay: {exc}")

    def hand_back(*_: Any) -> None:
        runtime.drain(0)

    for number in _STOPS:
        signal.signal(number, hand_back)
    dispatch = _named(runtime.process_id)
    if dispatch is not None:
        sender.send(runtime.run(dispatch).dispatches)
    runtime.stop()
    os._exit(EXIT_DONE)  # at once: threads that a tool left behind would be waited for


def _named(process_id: str) -> Dispatch | None:
    """Say that all is ready, and return what is to be run; None if the worker has nothing or is gone."""
    sys.stdout.write(f"\n{READY.decode()} {process_id}\n")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what tools print is nobody's to read
    line = sys.stdin.readline()
    return Dispatch(*json.loads(line)) if line else None


if __name__ == "__main__":
    main()
