"""A worker process that dies: what it held goes on elsewhere, and the world is changed at most once."""

import pytest
from harness.words import call, calls

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def test_a_message_is_answered_by_real_processes(deploy):
    place = deploy()
    place.start()

    job = place.ask(call("act", tag="a"), call("look", tag="a"), {"text": "both done"}, name="plain")
    (answer,) = place.settled(job)

    assert (answer.status, answer.text, answer.rounds) == ("answered", "both done", 2)
    assert len(place.effects("a")) == 1
    assert [place.fake.count("plain", step) for step in range(3)] == [1, 1, 1]
    place.sound_at_rest()


def test_a_write_is_saved_as_begun_before_it_begins(deploy):  # rule 11
    place = deploy("sqlite")
    place.start()
    alone = place.ask(call("witness", tag="alone"), {"text": "done"}, name="witness")
    both = calls(("look", {"tag": "first"}), ("witness", {"tag": "behind"}))
    behind = place.ask(both, {"text": "done"}, name="witness-behind")

    place.settled(alone, behind)

    assert [len(place.effects(tag, "saw ['started']")) for tag in ("alone", "behind")] == [1, 1]


def test_a_slow_read_holds_up_the_record_of_its_turn_no_more_than_a_write_does(deploy):  # rule 11
    place = deploy()
    worker = place.start()
    job = place.ask(call("linger", tag="slow", times=1), {"text": "done"}, name="slow-read")
    place.began("slow")
    place.eventually(lambda: place.show(job.message_id).turns, "the turn is saved while its read goes on")
    worker.kill()
    place.start()

    assert place.settled(job)[0].text == "done"
    assert [place.fake.count("slow-read", step) for step in range(2)] == [1, 1]


def test_writes_under_way_when_their_process_dies_are_done_at_most_once(deploy):  # A13, F20, F37, S49, rule 12
    """Each kind of write is interrupted before and after it took effect, all in one process that is killed."""
    place = deploy()
    first = place.start()
    kinds = {
        "after": call("act", tag="after", after=50),
        "before": call("act", tag="before", before=50),
        "coroutine": call("act_async", tag="coroutine", after=50),
        "alone": call("act_isolated", tag="alone", before=50),
        "idempotent": call("act_idempotent", tag="idempotent", after=50),
        "checked": call("act_checked", tag="checked", after=50),
        "unchecked": call("act_checked", tag="unchecked", before=50),
        "read": call("look", tag="read", seconds=0),
    }
    jobs = {tag: place.ask(step, {"text": f"{tag} told"}, name=f"kill-{tag}") for tag, step in kinds.items()}
    for tag in kinds:
        place.began(tag)
    for tag in ("after", "coroutine", "idempotent", "checked"):
        place.eventually(lambda tag=tag: place.effects(tag), f"{tag} took effect")
    second = place.start()

    first.kill()
    answers = dict(zip(jobs, place.settled(*jobs.values()), strict=True))

    assert {answer.status for answer in answers.values()} == {"answered"}
    assert {tag: len(place.effects(tag)) for tag in kinds} == {
        "after": 1,
        "before": 0,
        "coroutine": 1,
        "alone": 0,
        "idempotent": 2,
        "checked": 1,
        "unchecked": 1,
        "read": 0,
    }
    assert {tag for tag, answer in answers.items() if answer.uncertain} == {"after", "before", "coroutine", "alone"}
    assert len({key for key, _, _ in place.effects("idempotent")}) == 1
    assert {pid for _, pid, _ in place.effects("unchecked")} == {second.pid}
    assert all(place.fake.count(f"kill-{tag}", 0) == 1 for tag in kinds)
    place.sound_at_rest()
