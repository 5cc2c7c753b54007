"""The thread that keeps a process's lease, and what it takes for a wedged event loop."""

import subprocess
import sys

from roundelay_worker.process.lease import EXIT_WEDGED

FROZEN = """
import time
from roundelay_worker.process.lease import LeaseKeeper

keeper = LeaseKeeper(connect=None, lease=6, wedged=30, lost=None)
thawed = time.monotonic() + 100
keeper._end_if_wedged(thawed)
print("alive", flush=True)
for turn in range(1, 20):
    print(2 * turn, flush=True)
    keeper._end_if_wedged(thawed + 2 * turn)
"""


def test_a_process_that_was_frozen_is_not_taken_for_one_whose_loop_hangs():  # D12, rule 4
    ended = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, text=True, timeout=30, check=False)

    assert ended.returncode == EXIT_WEDGED
    assert ended.stdout.split()[0] == "alive"
    assert ended.stdout.split()[-1] == "32"
