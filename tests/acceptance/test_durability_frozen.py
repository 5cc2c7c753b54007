"""Processes that run no Python any more, and what ends them: their supervisor, their parent, the kernel."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.services import health
from harness.words import call
from harness.workers import HERE

from roundelay_worker.process.heartbeat import heartbeat_file

COMMAND = [sys.executable, "-c", "import sys; from roundelay_worker.cli import main; sys.exit(main())"]
pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


@contextmanager
def supervised(place: Any, processes: int = 1, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``roundelay worker`` until the end of the block, and leave nothing of it alive."""
    command = [*COMMAND, "worker", "--processes", str(processes)]
    with (place.home / "supervisor.log").open("w") as log:
        process = subprocess.Popen(
            command, env={**place.env, **env, "PYTHONPATH": str(HERE)}, stderr=log, stdout=log, text=True
        )
        try:
            place.eventually(lambda: health(place) == (0, "ok"), "it consumes", 20)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            finally:
                process.kill()
                process.wait()


def said(place: Any) -> str:
    return (place.home / "supervisor.log").read_text()


@pytest.mark.parametrize("tool", ["freeze", "end_the_loop"])
def test_a_message_that_ends_each_process_it_is_given_fails_and_its_neighbours_are_answered(deploy, tool):
    place = deploy("sqlite")
    with supervised(place, processes=2):
        deadly = place.ask(call(tool, tag=tool), {"text": "no"}, name=f"deadly-{tool}")
        place.began(tool)
        neighbours = [place.ask(call("look", tag="n"), {"text": "told"}, name=f"beside-{tool}-{n}") for n in range(6)]

        answers = place.settled(*neighbours, deadly, patience=90)

    assert [answer.text for answer in answers[:-1]] == ["told"] * 6
    assert (answers[-1].status, answers[-1].error.code) == ("failed", "worker_lost")


def test_a_frozen_process_does_not_outlive_its_supervisor(deploy):
    place = deploy("sqlite")
    with supervised(place) as supervisor:
        place.ask(call("freeze", tag="outlive"), {"text": "no"}, name="outlive")
        pid = place.began("outlive")
        supervisor.send_signal(signal.SIGKILL)
        place.eventually(lambda: not Path(f"/proc/{pid}/stat").exists(), "the kernel ends it")


def test_the_liveness_probe_tells_a_frozen_process_and_nothing_else(deploy, folder):
    place = deploy("sqlite")
    worker = place.start()

    def live() -> int:
        command = [*COMMAND, "healthz", "--live"]
        return subprocess.run(command, env=place.env, capture_output=True, check=False).returncode

    assert live() == 0
    pid = int(heartbeat_of(place, worker))
    os.kill(pid, signal.SIGSTOP)
    place.eventually(lambda: live() == 1, "it is told")
    os.kill(pid, signal.SIGKILL)
    place.eventually(lambda: live() == 0, "a dead one is none of its business")


def heartbeat_of(place: Any, worker: Any) -> int:
    """Return the process that a worker's tools run in."""
    place.settled(place.ask(call("look", tag="pid"), {"text": "told"}, name="pid"))
    pid = place.began("pid")
    assert heartbeat_file(pid).exists()
    return pid


def test_a_process_that_does_its_work_and_dies_again_and_again_keeps_nobody_waiting(deploy):
    place = deploy("sqlite")
    waited = []
    with supervised(place):
        for n in range(4):
            job = place.ask(call("look", tag=f"dies{n}"), {"text": "told"}, name=f"dies-{n}")
            waited.append(job.wait(timeout=30).text)
            os.kill(place.began(f"dies{n}"), signal.SIGKILL)
    assert waited == ["told"] * 4
    assert "starting it again in 0.5 s" in said(place)
    assert "starting it again in 2.0 s" not in said(place)


def test_a_stop_whose_grace_runs_out_hands_over_says_so_and_exits_with_0(deploy):
    place = deploy("sqlite", ROUNDELAY_SHUTDOWN_GRACE="2")
    with supervised(place) as supervisor:
        jobs = [
            place.ask(call("look_async", tag=f"stop{n}", seconds=30), {"text": "told"}, name=f"stop-{n}")
            for n in range(3)
        ]
        for n in range(3):
            place.began(f"stop{n}")
        supervisor.terminate()
        assert supervisor.wait(timeout=30) == 0
    assert "stopped: 0 messages finished, 3 handed over to other workers" in said(place)
    assert "Traceback" not in said(place)
    assert "NotImplementedError" not in said(place)
    for job in jobs:
        job.cancel()
