"""With every worker down, what is past its deadline is still answered by beat."""

import subprocess
import sys

import pytest
from harness.words import call

COMMAND = [sys.executable, "-c", "import sys; from roundelay_worker.cli import main; sys.exit(main())", "beat"]
pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_an_overdue_message_is_ended_although_no_worker_is_left(deploy, database):
    place = deploy(database)
    worker = place.start()
    job = place.ask(call("look", tag="beat", seconds=30), {"text": "no"}, name="beat", message_timeout=3)
    place.began("beat")
    worker.kill()
    with subprocess.Popen(COMMAND, env=place.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as beat:
        try:
            answer = job.wait(timeout=60)
        finally:
            beat.terminate()
    assert answer.status == "timed_out"
    assert answer.text
