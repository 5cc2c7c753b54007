"""Time: tools that overrun, models that stall or drip, deadlines that hold, work longer than a lease."""

import time

import pytest
from harness.waiting import eventually
from harness.words import call, calls

from roundelay.names import messages_queue
from roundelay_worker.wiring import EXIT_STUCK

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


def took(answer) -> float:
    return (answer.finished_at - answer.started_at).total_seconds()


def test_every_wait_has_its_end(deploy):  # B1, B3, B14, B16, S69, S70, S71, S84
    """Tools and models misbehave side by side in one process, under short limits."""
    place = deploy(
        ROUNDELAY_IDLE_TIMEOUT="2", ROUNDELAY_TURN_TIMEOUT="6", ROUNDELAY_MODEL_ATTEMPTS="2", ROUNDELAY_ANSWER_TTL="60"
    )
    place.start()
    told = {"text": "told"}
    jobs = {
        "thread": place.ask(call("overrun", tag="t-thread", seconds=20), told, name="t-thread"),
        "stubborn": place.ask(call("stubborn", tag="t-stubborn", seconds=20), told, name="t-stubborn"),
        "many": place.ask(
            calls(*[("overrun", {"tag": f"t{n}", "seconds": 5}) for n in range(20)]), told, name="t-many"
        ),
        "silent": place.ask({"stall": 30, "times": 1, "text": "x", "then": told}, name="t-silent"),
        "mute": place.ask({"stall": 30, "text": "x"}, name="t-mute"),
        "dripping": place.ask({"text": "word " * 200, "drip": 0.3}, name="t-drip"),
        "repeating": place.ask({"repeat_piece": 400, "piece": "", "every": 0.1, "text": "x"}, name="t-repeat"),
        "thinking": place.ask({"text": "word " * 30, "pace": 0.13}, name="t-think"),
    }

    answers = dict(zip(jobs, place.settled(*jobs.values()), strict=True))

    assert {name: answer.status for name, answer in answers.items()} == {
        **dict.fromkeys(jobs, "answered"),
        **dict.fromkeys(("mute", "dripping", "repeating"), "failed"),
    }
    for name in ("thread", "stubborn", "many"):
        shown = [made for turn in place.show(jobs[name].message_id).turns for made in turn.calls]
        assert all(made.is_error and "time" in (made.result or "") for made in shown), name
    assert took(answers["thread"]) < 8
    assert took(answers["stubborn"]) < 8
    assert place.fake.count("t-silent") == 2
    assert [place.fake.count(f"t-{name}") for name in ("mute", "drip", "repeat")] == [2] * 3
    assert {answers[name].error.code for name in ("mute", "dripping", "repeating")} <= {
        "model_stalled",
        "model_timeout",
    }
    assert max(took(answers[name]) for name in ("mute", "dripping", "repeating")) < 25


def test_a_message_has_one_deadline_through_retries_crashes_and_a_stubborn_tool(deploy):  # B18, D11, F27, S69, rule 18
    place = deploy(ROUNDELAY_TOOL_TIMEOUT="60")
    first = place.start()
    steps = [call("look_async", tag=f"dl{n}", seconds=0.5) for n in range(20)]
    jobs = [
        place.ask(*steps, {"text": "no"}, name="dl-rounds", message_timeout=6, max_rounds=50),
        place.ask({"error": "overloaded"}, name="dl-errors", message_timeout=6),
        place.ask(
            call("look", tag="dl-tool", seconds=30), name="dl-tool", message_timeout=6, closing={"text": "closed"}
        ),
        place.ask({"stall": 30, "text": "x"}, name="dl-model", message_timeout=6),
    ]
    place.began("dl-tool")
    first.kill()
    place.start()

    answers = place.settled(*jobs)

    assert all(answer.status in {"timed_out", "failed"} for answer in answers)
    assert [answers[n].status for n in (0, 2, 3)] == ["timed_out"] * 3
    assert all(took(answer) < 6 + 8 for answer in answers)


def test_clocks_that_are_hours_apart_change_nothing(deploy):  # rule 7
    place = deploy(ROUNDELAY_SETUP="harness.skewed:setup", ROUNDELAY_QUEUE_TIMEOUT="40")
    began = time.time()
    lost = place.ask({"text": "found"}, name="skewed-lost")
    place.redis.delete(messages_queue(place.prefix))
    behind = place.start(HARNESS_SKEW="-7200")
    assert place.settled(lost)[0].text == "found"
    taken = place.ask(call("look", tag="skewed", seconds=3), {"text": "gone on"}, name="skewed-taken")
    place.began("skewed")
    place.start(HARNESS_SKEW="7200")
    behind.kill()

    jobs = {
        "taken": taken,
        "postponed": place.ask(
            {"error": "rate_limited", "retry_after": 2, "times": 1, "then": {"text": "later"}}, name="skewed-later"
        ),
        "timed_out": place.ask({"stall": 60, "text": "no"}, name="skewed-slow", message_timeout=3),
        "streamed": place.ask({"text": "word " * 30, "pace": 0.01}, name="skewed-stream"),
    }
    answers = dict(zip(jobs, place.settled(*jobs.values()), strict=True))

    assert {name: answer.status for name, answer in answers.items()} == {
        **dict.fromkeys(jobs, "answered"),
        "timed_out": "timed_out",
    }
    told = [update for job in (lost, *jobs.values()) for update in job.follow(timeout=30)]
    times = [update.at.timestamp() for update in told]
    times += [moment.timestamp() for answer in answers.values() for moment in (answer.started_at, answer.finished_at)]
    assert "text_delta" in {update.kind for update in told}
    assert began - 1 < min(times) <= max(times) < time.time() + 1


def test_a_step_that_outlives_its_own_deadline_ends_its_process(deploy):  # rule 4
    place = deploy("sqlite", ROUNDELAY_TURN_TIMEOUT="2")
    stuck = place.start(ROUNDELAY_SETUP="harness.stuck:setup")
    job = place.ask({"text": "freed"}, name="stuck")

    assert stuck.ended() == EXIT_STUCK
    assert "step_outlived_its_deadline" in stuck.said
    place.start()
    assert place.settled(job)[0].text == "freed"


def test_a_message_waits_no_longer_than_its_queue_timeout(deploy):  # D10
    place = deploy(ROUNDELAY_QUEUE_TIMEOUT="3", ROUNDELAY_CONCURRENCY="1")
    place.start()
    busy = place.ask({"text": "busy", "delay": 7}, name="q-busy")
    eventually(lambda: place.fake.count("q-busy"), "the only slot is taken")
    waiting = [place.ask({"text": "no"}, name=f"q{n}") for n in range(3)]
    behind = place.ask({"text": "no"}, name="q-behind", conversation_id=busy.conversation_id)

    answers = place.settled(*waiting, behind)

    assert [(answer.status, answer.error.code) for answer in answers] == [("failed", "queue_timeout")] * 4
    assert [answer.started_at for answer in answers] == [None] * 4
    assert place.settled(busy)[0].text == "busy"
    assert sum(place.fake.count(f"q{n}") for n in range(3)) == 0


def test_work_much_longer_than_a_lease_is_done_once(deploy):  # D30, D35, D42, D20, H6
    place = deploy(ROUNDELAY_LEASE="1")
    place.start()
    place.start()
    jobs = [
        place.ask(call("burn", tag="burn", seconds=5), {"text": "burnt"}, name="w-burn"),
        place.ask(call("act", tag="w-act", before=6), {"text": "acted"}, name="w-act"),
        place.ask({"text": "slept", "delay": 6}, name="w-model"),
    ]

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == ["burnt", "acted", "slept"]
    assert [len(place.effects(tag)) for tag in ("burn", "w-act")] == [1, 1]
    assert [place.show(job.message_id).losses for job in jobs] == [0, 0, 0]
    assert all(worker.code is None for worker in place.workers)


def test_a_failed_call_is_retried_alone_with_numbers_of_its_own(deploy):  # A7, F25, S45, S53
    place = deploy()
    place.start()
    shaky = {"error": "server_error", "times": 2, "then": {"text": "at last"}}
    cut = {"text": "half of it", "cut": True, "times": 1, "then": call("act", tag="retry2")}
    job = place.ask(call("act", tag="retry1"), cut, shaky, name="retry")

    (answer,) = place.settled(job)
    updates = list(job.follow())

    assert answer.text == "at last"
    assert [len(place.effects(tag)) for tag in ("retry1", "retry2")] == [1, 1]
    assert [place.fake.count("retry", step) for step in range(3)] == [1, 2, 3]
    assert [(u.turn, u.attempt) for u in updates if u.kind == "retrying"] == [(2, 1), (3, 1), (3, 2)]
    assert answer.usage.model_calls == 6


def test_a_pause_that_the_provider_asks_for_holds_no_slot(deploy):  # A5, S44
    place = deploy(ROUNDELAY_CONCURRENCY="1")
    place.start()
    began = time.monotonic()
    slow = place.ask({"error": "rate_limited", "retry_after": 4, "times": 1, "then": {"text": "after"}}, name="pause")
    eventually(lambda: slow.state().status == "retrying", "it waits")
    other = place.ask({"text": "meanwhile"}, name="pause-other")

    assert place.settled(other)[0].text == "meanwhile"
    assert slow.state().status == "retrying"
    assert place.settled(slow)[0].text == "after"
    assert time.monotonic() - began >= 4
    assert place.fake.count("pause") == 2
