"""What grows if it is wrong: with each message of a process, each round, each event that nobody reads."""

from itertools import pairwise
from statistics import median

import pytest
from harness.services import postgres_rows
from harness.waiting import eventually
from harness.words import call, calls

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'roundelay'"


def test_two_hundred_messages_in_one_process_use_the_same_connections(deploy):  # B11, B12, B13
    """Tools with a client of the process's own, and with loops of their own, and failures that are tried again."""
    place = deploy(ROUNDELAY_CONCURRENCY="40")
    worker = place.start()
    web = place.fake.url
    once, twice = call("ask_web", url=web), calls(("ask_web", {"url": web}), ("ask_web_once", {"url": web}))
    shaky = {"error": "server_error", "times": 1, "then": {"text": "told"}}

    def some(first: int):
        steps = [(twice, shaky) if n % 180 == 0 else (once, {"text": "told"}) for n in range(first, first + 20)]
        jobs = [place.ask(*asked, name=f"b11-{n}") for n, asked in enumerate(steps, first)]
        return [job.wait(timeout=60) for job in jobs]

    answers = some(0)
    before = postgres_rows(place.env["ROUNDELAY_DATABASE_URL"], BACKENDS)
    for first in range(20, 200, 20):
        answers += some(first)
    after = postgres_rows(place.env["ROUNDELAY_DATABASE_URL"], BACKENDS)

    assert {answer.status for answer in answers} == {"answered"}
    assert "loop is closed" not in worker.said
    assert [place.fake.count(f"b11-{n}", 1) for n in (0, 20, 180, 199)] == [2, 1, 2, 1]
    assert len(after) <= 10
    assert len(before) > 1, "the lease has a connection of its own"
    assert {row[0] for row in before} <= {row[0] for row in after}
    assert worker.code is None


def test_the_three_hundredth_round_costs_no_more_than_the_first(deploy):  # D33, H1
    place = deploy(ROUNDELAY_BUILTIN_TOOLS="calculator")
    place.start()
    rounds = 300
    steps = [call("calculator", expression=f"{n} + 1") for n in range(rounds)]
    url = place.env["ROUNDELAY_DATABASE_URL"]

    def written() -> int:
        return int(postgres_rows(url, "SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])

    job = place.ask(*steps, {"text": "at last"}, name="d33", max_rounds=400)
    marks = [written()]
    for n in range(60, rounds + 1, 60):
        place.fake.wait(lambda n=n: place.fake.count("d33") >= n, 60)
        marks.append(written())
    (answer,) = place.settled(job, patience=90)

    at = [turn.created_at for turn in place.show(job.message_id).turns]
    took = [median(after - before for before, after in pairwise(at[n : n + 60])) for n in (0, rounds - 60)]
    bytes_written = [after - before for before, after in pairwise(marks)]
    assert (answer.text, answer.rounds) == ("at last", rounds)
    assert took[1] < 4 * took[0] + 0.02, "the request grows with each round, and what else is done does not"
    assert bytes_written[-1] < 1.5 * bytes_written[0]


def test_nothing_depends_on_events_and_nobody_keeps_them(deploy):  # H5, H8
    """With events that nobody reads (Flower is stopped), and without any."""
    loud, quiet = deploy("sqlite"), deploy("sqlite")
    loud.worker(words=("-E",)).ready()
    quiet.start()

    def answered(place, count: int):
        jobs = [place.ask(call("look", tag="h5"), {"text": "told"}, name=f"h5-{n}") for n in range(count)]
        return jobs, place.settled(*jobs)

    def others() -> dict[str, int]:
        ours = loud.prefix.partition("-")[0]
        return {key: loud.redis.memory_usage(key) for key in loud.redis.scan_iter("*") if not key.startswith(ours)}

    answered(loud, 10)
    before = others()
    jobs, answers = answered(loud, 100)
    assert others() == before
    mute_jobs, mute = answered(quiet, 10)
    assert {answer.status for answer in (*answers, *mute)} == {"answered"}
    states = [(job.state().status, job.state().turn) for job in (jobs[0], mute_jobs[0])]
    assert states[0] == states[1]


def test_a_tool_or_a_model_that_is_gone_when_its_message_begins_is_told_with_a_reason(deploy):  # D18
    place = deploy("sqlite")
    with_tools = place.start()
    begun = place.ask(call("look", tag="d18", seconds=1), call("look", tag="d18"), {"text": "went on"}, name="begun")
    place.began("d18")
    with_tools.kill()
    tool = place.ask({"text": "no"}, name="no-tool", tools=["look"])
    model = place.ask({"text": "no"}, name="no-model", model="anthropic:gone")
    place.start(ROUNDELAY_TOOL_MODULES="")

    answers = place.settled(begun, tool, model)

    assert answers[0].text == "went on"  # what has begun goes on, its call answered with an error
    assert [answer.status for answer in answers[1:]] == ["failed"] * 2
    assert [answer.error.code for answer in answers[1:]] == ["unknown_tool", "credentials"]
    assert "look" in answers[1].error.message
    assert "ANTHROPIC_API_KEY" in answers[2].error.message


def test_a_storm_of_refusals_stays_bounded_and_so_does_what_runs_at_once(deploy):  # G17
    place = deploy("sqlite", ROUNDELAY_CONCURRENCY="6", ROUNDELAY_MODEL_ATTEMPTS="3")
    place.start()
    place.start()
    limited = [place.ask({"error": "rate_limited", "retry_after": 0.3}, name=f"g17-{n}") for n in range(12)]
    slow = [place.ask({"text": "slow", "delay": 0.2}, name=f"g17-slow{n}") for n in range(30)]
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, place.fake.open)
        return all(job.state().status == "answered" for job in slow[-2:])

    eventually(done, "the slow ones end")
    answers = place.settled(*limited, *slow)

    assert 1 <= most <= 12
    assert {(answer.status, answer.error and answer.error.code) for answer in answers[:12]} == {
        ("failed", "rate_limited")
    }
    assert [place.fake.count(f"g17-{n}") for n in range(12)] == [3] * 12
    assert {answer.text for answer in answers[12:]} == {"slow"}
