"""The chaos soak in its short form: real processes, killed while they work, judged from outside."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]


def test_every_promise_holds_while_workers_and_servers_are_killed():
    soaked = subprocess.run(
        [sys.executable, "-m", "soak", "--short"], cwd=ROOT, capture_output=True, text=True, timeout=220, check=False
    )

    assert soaked.returncode == 0, f"{soaked.stdout}\n{soaked.stderr[-2000:]}"
    assert "Every promise held." in soaked.stdout
