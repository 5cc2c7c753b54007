"""The benchmark's side of the mock model: start it, wait on it, read what it saw."""

import socket
import subprocess
import sys
from dataclasses import dataclass
from http.client import HTTPConnection
from time import monotonic, sleep
from typing import Self

import orjson


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Call:
    """One request as the mock saw it; times are ``time.monotonic()`` in seconds."""

    turn: int
    arrived: float
    first_text: float
    answered: float


class StillRunning(TimeoutError):
    """The conversations did not end in time."""


class Model:
    """The mock model, in a process of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.server = subprocess.Popen([sys.executable, "-m", "bench.mock_server", str(self.port)])
        self._await_server()

    def _await_server(self) -> None:
        until = monotonic() + 10
        while monotonic() < until:
            try:
                self._get("/counts", 1)
            except OSError:
                sleep(0.02)
            else:
                return
        raise StillRunning("the mock model did not start")

    def _get(self, target: str, timeout: float) -> dict[str, object]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", target)
            reply: dict[str, object] = orjson.loads(connection.getresponse().read())
        finally:
            connection.close()
        return reply

    def reset(self) -> None:
        """Forget all that was seen."""
        self._get("/reset", 10)

    def counts(self) -> tuple[int, int]:
        """Return the numbers of calls answered and of conversations finished since the last reset."""
        counts = self._get("/counts", 10)
        return int(str(counts["calls"])), int(str(counts["finished"]))

    def wait(self, finished: int, timeout: float) -> None:
        """Return once that many conversations have finished; else raise StillRunning."""
        try:
            self._get(f"/wait/{finished}", timeout)
        except TimeoutError as exc:
            calls, done = self.counts()
            raise StillRunning(
                f"{done} of {finished} conversations finished in {timeout:.0f} s, {calls} calls"
            ) from exc

    def records(self) -> dict[str, list[Call]]:
        """Return the calls of each conversation in the order of their answers."""
        raw = self._get("/records", 60)
        return {name: [Call(*call) for call in calls] for name, calls in raw.items()}  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the process."""
        self.server.kill()
        self.server.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
