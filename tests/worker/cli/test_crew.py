"""Child processes: kept running, ended warmly or hard, never left behind."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from roundelay_worker.cli.crew import FIRST_DELAY, LONGEST_DELAY, SETTLED, Crew, CrewUnfit, Job, Patience
from roundelay_worker.embedded.child import until

pytestmark = pytest.mark.processes

IDLE = "import time; time.sleep(60)"
POLITE = """
import signal, sys, time
from pathlib import Path
def leave(*_):
    Path(sys.argv[1]).write_text("left warmly")
    sys.exit()
signal.signal(signal.SIGTERM, leave)
Path(sys.argv[1]).write_text("ready")
time.sleep(60)
"""
DEAF = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGQUIT, signal.SIG_IGN)
Path(sys.argv[1]).write_text("ready")
time.sleep(60)
"""
SUPERVISOR = """
import os, sys
from roundelay_worker.cli.crew import Crew, Job
from roundelay_worker.cli.supervisor import supervise
grace, script, *words = sys.argv[1:]
job = Job("child", [sys.executable, "-c", script, *words], dict(os.environ))
crew = Crew([job], lambda line: print(line, flush=True), last_words=0.2)
crew.tend()
print(crew.pids["child"], flush=True)
sys.exit(supervise(crew, float(grace)))
"""


def job(script: str, *words: str) -> Job:
    return Job("child", [sys.executable, "-c", textwrap.dedent(script), *words], dict(os.environ))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def said(file: Path, word: str) -> Callable[[], bool]:
    return lambda: file.exists() and file.read_text() == word


@contextmanager
def supervisor(grace: float, script: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-c", SUPERVISOR, str(grace), script, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_the_delay_doubles_with_each_death_in_a_row_up_to_a_bound():
    patience, delays = Patience(), []
    for _ in range(9):
        patience = patience.after_death(now=100, lived=1)
        delays.append(patience.due_at - 100)

    assert delays[:3] == [FIRST_DELAY, FIRST_DELAY * 2, FIRST_DELAY * 4]
    assert delays[-1] == LONGEST_DELAY


def test_a_death_after_a_settled_life_counts_as_the_first():
    tired = Patience(deaths=7)

    assert tired.after_death(now=0, lived=SETTLED).due_at == FIRST_DELAY


def test_a_child_that_dies_is_started_again_and_its_death_told():
    told: list[str] = []
    crew = Crew([job("raise SystemExit(3)")], told.append)
    crew.tend()
    assert until(lambda: crew.all_gone, 20)

    wait = crew.tend()
    again = until(lambda: crew.tend() >= 0 and len(told) > 1, 20)
    crew.stop(0)

    assert 0 < wait <= FIRST_DELAY
    assert again
    assert told == [
        "child ended (exit code 3); starting it again in 0.5 s",
        "child ended (exit code 3); starting it again in 1.0 s",
    ]


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("raise SystemExit('roundelay: its module is missing')", "(exit code 1: its module is missing)"),
        ("raise SystemExit(3)", "(exit code 3, see {log})"),
    ],
)
def test_the_reason_of_a_child_that_writes_to_a_log_is_told_or_where_to_look(tmp_path: Path, ending: str, told: str):
    log, said_of_it = tmp_path / "child.log", list[str]()
    crew = Crew([replace(job(f"print('starting')\n{ending}"), log=log)], said_of_it.append)
    crew.tend()
    assert until(lambda: crew.all_gone, 20)

    crew.tend()
    crew.stop(0)

    assert told.format(log=log) in said_of_it[0]


def test_a_crew_none_of_whose_needed_children_can_ever_start_is_given_up():
    hopeless = replace(job("raise SystemExit(78)"), is_needed=True)
    crew = Crew([hopeless, replace(hopeless, name="other"), job(IDLE)], list[str]().append)

    with pytest.raises(CrewUnfit, match=r"cannot start \(exit code 78\)"):
        until(lambda: crew.tend() < 0, 20)
    crew.stop(0)


def test_a_crew_with_a_needed_child_that_lives_goes_on():
    needed = replace(job(IDLE), name="alive", is_needed=True)
    told: list[str] = []
    crew = Crew([replace(job("raise SystemExit(78)"), is_needed=True), needed], told.append)

    assert until(lambda: crew.tend() >= 0 and len(told) > 1, 20)
    assert "alive" in crew.pids
    crew.stop(0)


def test_a_crew_that_is_given_up_leaves_no_child(tmp_path: Path):
    file = tmp_path / "said"
    watch = (
        "crew.tend()\nfrom pathlib import Path\n"
        "def watch():\n"
        "    if Path(words[0]).exists(): raise SystemExit(9)\n"
        "    return 0.1\n"
    )
    script = SUPERVISOR.replace("crew.tend()\n", watch).replace("float(grace))", "float(grace), watch)")
    command = [sys.executable, "-c", script, "20", POLITE, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())

        assert process.wait(20) == 9
        assert not alive(child)
        assert file.read_text() == "left warmly"


def test_a_child_is_let_finish_within_the_grace_time(tmp_path: Path):
    file = tmp_path / "said"
    crew = Crew([job(POLITE, str(file))], print)
    crew.tend()
    assert until(said(file, "ready"), 5)

    crew.stop(grace=10)

    assert file.read_text() == "left warmly"
    assert crew.pids == {}


def test_a_child_that_hears_nothing_is_ended_by_force(tmp_path: Path):
    file = tmp_path / "said"
    crew = Crew([job(DEAF, str(file))], print, last_words=0.2)
    crew.tend()
    pid = crew.pids["child"]
    assert until(said(file, "ready"), 5)

    crew.stop(grace=0)

    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_stop_signal_lets_children_finish(tmp_path: Path, number: signal.Signals):
    file = tmp_path / "said"
    with supervisor(20, POLITE, str(file)) as (process, _):
        assert until(said(file, "ready"), 5)
        process.send_signal(number)

        assert process.wait(10) == 0
        assert file.read_text() == "left warmly"


def test_a_second_stop_signal_ends_them_at_once(tmp_path: Path):
    file = tmp_path / "said"
    with supervisor(60, DEAF, str(file)) as (process, child):
        assert until(said(file, "ready"), 5)
        process.send_signal(signal.SIGTERM)
        assert not until(lambda: process.poll() is not None, 0.5)
        process.send_signal(signal.SIGTERM)

        assert process.wait(10) == 1
        assert not alive(child)


def test_the_end_of_the_grace_time_is_a_hard_end(tmp_path: Path):
    file = tmp_path / "said"
    with supervisor(0.5, DEAF, str(file)) as (process, child):
        assert until(said(file, "ready"), 5)
        process.send_signal(signal.SIGTERM)

        assert process.wait(10) == 1
        assert not alive(child)


def test_a_killed_supervisor_takes_its_children_with_it():
    with supervisor(20, IDLE) as (process, child):
        process.kill()
        process.wait()

        assert until(lambda: not alive(child), 5)


def test_a_killed_child_is_back_within_a_second():
    with supervisor(20, IDLE) as (process, child):
        os.kill(child, signal.SIGKILL)

        assert process.stdout is not None
        assert "killed by SIGKILL" in process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert until(lambda: children.read_text().split() not in ([], [str(child)]), 3)
