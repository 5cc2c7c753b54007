import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sample_tools
import uvloop
from running import CONTEXT, declared, error_of, is_alive, run_once, run_with, until, wait_until_dead

from roundelay_worker.tools.run.runner import ToolRunner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def family_in(journal: Path) -> list[int]:
    return [int(line) for line in journal.read_text().split() if line != "ready"]


def is_ready(journal: Path) -> bool:
    return journal.exists() and "ready" in journal.read_text().split()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_call_runs_in_another_process_with_set_up_context_and_progress(loop_factory):
    shown: list[str] = []

    async def scenario():
        runner = ToolRunner(setup="sample_tools:prepare")
        context = replace(CONTEXT, on_progress=shown.append)
        outcomes = [await run_with(runner, sample_tools.isolated_echo, context=context, text=t) for t in ("é", "two")]
        await runner.aclose()
        return outcomes

    with asyncio.Runner(loop_factory=loop_factory) as loop:
        first, second = (json.loads(outcome.result.text) for outcome in loop.run(scenario()))
    assert (first["text"], first["user"], first["context"]) == ("é", "u1", {"plan": "gold"})
    assert first["deadline"] == "2031-05-01T12:00:00Z"
    assert first["prepared"] == ["prepared"]
    assert len({first["pid"], second["pid"], os.getpid()}) == 3
    assert shown == ["working on é", "working on two"]


def test_it_inherits_no_key_and_no_address_of_ours(monkeypatch):
    secret = (
        "OPENAI_API_KEY",
        "GOOGLE_API_KEY",
        "ROUNDELAY_CHAT_API_KEY",
        "ROUNDELAY_DATABASE_URL",
        "ROUNDELAY_REDIS_URL",
    )
    for name in (*secret, "SHOP_URL"):
        monkeypatch.setenv(name, "x")
    seen = json.loads(run_once(sample_tools.isolated_environment).result.text)
    assert "SHOP_URL" in seen
    assert not set(secret) & set(seen)


def test_errors_come_back_as_from_any_tool():
    assert error_of(run_once(sample_tools.isolated_refuse))["code"] == "no_order"
    outcome = run_once(sample_tools.isolated_explode)
    assert error_of(outcome)["message"] == "The tool failed with ValueError."
    assert "secret" not in outcome.result.text


def test_a_set_up_that_fails_is_told_by_its_class_name():
    async def scenario(setup):
        runner = ToolRunner(setup=setup)
        try:
            return await run_with(runner, sample_tools.isolated_echo, text="x")
        finally:
            await runner.aclose()

    outcome = asyncio.run(scenario("sample_tools:fail_to_prepare"))
    assert "RuntimeError" in error_of(outcome)["message"]
    assert "secret" not in outcome.result.text
    assert "SetupNotFound" in error_of(asyncio.run(scenario("sample_tools:nothing")))["message"]


def test_a_process_that_dies_in_a_write_leaves_its_outcome_unknown_and_a_read_an_error():
    write, read = run_once(sample_tools.isolated_write_dies), run_once(sample_tools.isolated_read_dies)
    assert (write.code, write.uncertain) == ("outcome_unknown", True)
    assert (read.code, read.uncertain) == ("tool_crashed", False)


def test_a_timeout_before_the_tool_has_begun_is_certain():
    outcome = run_once(sample_tools.isolated_write_dies, seconds=0.001)
    assert (outcome.code, outcome.uncertain) == ("timed_out", False)


def test_at_its_timeout_a_tool_dies_with_everything_it_started(tmp_path):
    journals = {how: tmp_path / how for how in ("hang", "spin")}

    async def scenario():
        runner = ToolRunner()
        running = [
            asyncio.create_task(run_with(runner, sample_tools.isolated_family, 5, journal=str(journal), how=how))
            for how, journal in journals.items()
        ]
        await until(lambda: all(map(is_ready, journals.values())))
        family = [pid for journal in journals.values() for pid in family_in(journal)]
        alive = [is_alive(pid) for pid in family]
        outcomes = await asyncio.gather(*running)
        dead = [not is_alive(pid) for pid in family]
        await runner.aclose()
        return alive, outcomes, dead

    alive, outcomes, dead = asyncio.run(scenario())
    assert alive == dead == [True] * 12
    assert [(o.code, o.uncertain) for o in outcomes] == [("outcome_unknown", True)] * 2


@pytest.mark.parametrize(("how", "code"), [("return", ""), ("die", "outcome_unknown")])
def test_what_a_tool_started_ends_with_it_however_it_ends(tmp_path, how, code):
    journal = tmp_path / "journal"
    outcome = run_once(sample_tools.isolated_family, journal=str(journal), how=how)
    assert outcome.code == code
    family = family_in(journal)
    assert len(family) == 6
    assert not any(map(is_alive, family))


def test_a_cancelled_call_is_dead_when_the_cancellation_returns(tmp_path):
    journal = tmp_path / "journal"

    async def scenario():
        runner = ToolRunner()
        running = asyncio.create_task(
            run_with(runner, sample_tools.isolated_family, 60, journal=str(journal), how="hang")
        )
        await until(lambda: is_ready(journal))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        alive = [is_alive(pid) for pid in family_in(journal)]
        await runner.aclose()
        return alive, runner.loose

    assert asyncio.run(scenario()) == ([False] * 6, 0)


def test_a_second_cancel_does_not_cut_the_killing_short(tmp_path):
    journal = tmp_path / "journal"

    async def scenario():
        runner = ToolRunner()
        running = asyncio.create_task(
            run_with(runner, sample_tools.isolated_family, 60, journal=str(journal), how="hang")
        )
        await until(lambda: is_ready(journal))
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await runner.aclose()
        return [is_alive(pid) for pid in family_in(journal)]

    assert asyncio.run(scenario()) == [False] * 6


def test_a_guardian_that_does_not_answer_is_killed_and_the_tool_with_it(tmp_path):
    journal = tmp_path / "journal"

    async def scenario():
        runner = ToolRunner()
        running = asyncio.create_task(
            run_with(runner, sample_tools.isolated_family, 60, journal=str(journal), how="hang")
        )
        await until(lambda: is_ready(journal))
        tool_pid = family_in(journal)[0]
        os.kill(parent_of(tool_pid), signal.SIGSTOP)
        begun = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not is_alive(tool_pid))
        await runner.aclose()
        return time.monotonic() - begun

    try:
        assert 2 <= asyncio.run(scenario()) < 10
    finally:
        for orphan in filter(is_alive, family_in(journal)):
            os.kill(orphan, signal.SIGKILL)


def test_without_an_interpreter_the_call_is_an_error_result(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    outcome = run_once(sample_tools.isolated_refuse)
    assert error_of(outcome)["message"] == "The tool failed with FileNotFoundError."


WORKER = """
import asyncio, sys, threading
sys.path.insert(0, sys.argv[1])
import sample_tools
from running import run_with
from roundelay_worker.tools.run.runner import ToolRunner

async def main():
    await run_with(ToolRunner(), sample_tools.isolated_family, 60, journal=sys.argv[2], how="hang")

threading.Thread(target=asyncio.run, args=(main(),)).start()
"""


@pytest.fixture
def worker(tmp_path):
    journal = tmp_path / "journal"
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(Path(__file__).parent), str(journal)])
    try:
        asyncio.run(until(lambda: is_ready(journal)))
        yield process, journal
    finally:
        process.kill()
        process.wait()


def test_when_the_worker_is_killed_its_isolated_tools_die_with_all_they_started(worker):
    process, journal = worker
    family = family_in(journal)
    assert all(map(is_alive, family))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_dead(family)
    assert not any(map(is_alive, family))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_when_the_guardian_is_killed_the_tool_dies_at_once(worker):
    _, journal = worker
    tool_pid = family_in(journal)[0]
    guardian = parent_of(tool_pid)
    os.kill(guardian, signal.SIGKILL)
    wait_until_dead([guardian, tool_pid])
    assert not is_alive(tool_pid)
    for orphan in family_in(journal)[1:]:
        os.kill(orphan, signal.SIGKILL)


def test_a_polite_signal_to_guardian_and_tool_leaves_the_decision_to_the_worker(worker):
    process, journal = worker
    tool_pid = family_in(journal)[0]
    for pid in (parent_of(tool_pid), tool_pid):
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.2)
    assert is_alive(tool_pid)
    process.kill()
    process.wait()
    wait_until_dead(family_in(journal))


def test_a_waiting_child_that_died_is_replaced(tmp_path):
    async def scenario():
        runner = ToolRunner()
        await run_with(runner, sample_tools.isolated_refuse)
        await until(lambda: runner._isolation._spare is not None)
        spare = runner._isolation._spare.process
        spare.kill()
        await until(lambda: spare.poll() is not None)
        outcome = await run_with(runner, sample_tools.isolated_refuse)
        await runner.aclose()
        return outcome

    assert asyncio.run(scenario()).code == "no_order"


def test_closing_ends_the_waiting_child():
    async def scenario():
        runner = ToolRunner()
        await run_with(runner, sample_tools.isolated_refuse)
        await until(lambda: runner._isolation._spare is not None)
        spare = runner._isolation._spare.process
        await runner.aclose()
        return spare.poll()

    assert asyncio.run(scenario()) == 0


def test_calls_run_side_by_side():
    async def scenario():
        runner = ToolRunner()
        outcomes = await asyncio.gather(*(run_with(runner, sample_tools.isolated_echo, text=str(n)) for n in range(3)))
        await runner.aclose()
        return outcomes

    assert [json.loads(o.result.text)["text"] for o in asyncio.run(scenario())] == ["0", "1", "2"]


def test_an_isolated_tool_stays_callable_here():
    assert declared(sample_tools.isolated_echo).isolated
    assert sample_tools.isolated_echo("x", CONTEXT)["pid"] == os.getpid()
