"""One round of one message, alone in a process that may die of it: ``python -m roundelay_worker.quarantine``."""

import os
import signal
import sys
from typing import Any

from roundelay_worker.app import Sender, celery_app
from roundelay_worker.settings import Settings
from roundelay_worker.wiring import Runtime


def main(message_id: str, dispatch: int) -> None:
    """Run one round and send what follows."""
    settings = Settings.from_env(os.environ)
    sender = Sender(celery_app(settings), settings)
    runtime = Runtime(settings, sender.send_later, sender.queue_length, quarantine=True)
    runtime.start()

    def hand_back(*_: Any) -> None:
        runtime.drain(0)

    signal.signal(signal.SIGTERM, hand_back)
    sender.send(runtime.run(message_id, dispatch))
    runtime.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
