"""``python -m roundelay_worker.testing.fake_llm --port N``: the fake as a process; it prints its URL and serves."""

import argparse
import signal
import sys
from threading import Event

from roundelay_worker.testing.fake_llm.fake import FakeLLM
from roundelay_worker.testing.fake_llm.refusal import Rules


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m roundelay_worker.testing.fake_llm", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--key", help="the only key that is valid; '' asks for none; default: any but invalid ones")
    parser.add_argument("--lenient", action="store_true", help="skip the checks")
    asked = parser.parse_args()
    over = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    rules = Rules(key=asked.key)
    with FakeLLM(host=asked.host, port=asked.port, rules=rules, strict=not asked.lenient) as fake:
        sys.stdout.write(f"{fake.url}\n")
        sys.stdout.flush()
        over.wait()


if __name__ == "__main__":
    main()
