"""Cancel: within a second, whatever the message is doing, and whatever has become of its worker."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.waiting import eventually
from harness.words import STREAMED, call
from sqlalchemy import MetaData, create_engine

from roundelay._core.validation import validate
from roundelay.names import cancels_key
from roundelay.sql import enqueue, outbox_table

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

AT_ONCE = 5.0
"""Seconds; it is one on a machine that is not loaded."""


def cancelled(job):
    """Cancel, wait, and return the answer and how long it took."""
    began = time.monotonic()
    assert job.cancel() is True
    answer = job.wait(timeout=30)
    return answer, time.monotonic() - began


def test_cancel_ends_a_message_wherever_it_is_and_its_conversation_goes_on(deploy):  # B5, B6, B8, D27, S73, C15, C16
    """Streaming, in each kind of tool, in back-off, postponed, parked, queued: all in one crowded place."""
    place = deploy()
    place.start(ROUNDELAY_CONCURRENCY="7")
    steps = {
        "stream": STREAMED,
        "silent": {"stall": 60, "text": "never"},
        "sync": call("act", tag="c-sync", before=40),
        "async": call("act_async", tag="c-async", before=40),
        "isolated": call("act_isolated", tag="c-isolated", before=40),
        "read": call("look_async", tag="c-read", seconds=40),
        "postponed": {"error": "rate_limited", "retry_after": 50},
    }
    jobs = {
        name: place.ask(step, {"text": "no"}, name=f"c-{name}", conversation_id=name) for name, step in steps.items()
    }
    for tag in ("c-sync", "c-async", "c-isolated", "c-read"):
        place.began(tag)
    eventually(lambda: place.fake.count("c-stream") and place.fake.count("c-silent"), "two replies are under way")
    eventually(lambda: jobs["postponed"].state().status == "retrying", "one is postponed")
    filler = place.ask({"stall": 60, "text": "no"}, name="c-filler")
    eventually(lambda: place.fake.count("c-filler"), "every slot is taken")
    jobs["parked"] = place.ask({"text": "no"}, name="c-parked", conversation_id="sync")
    jobs["queued"] = place.ask({"text": "no"}, name="c-queued")
    waiting = ("parked", "queued")  # first: a slot or a conversation that is free is theirs at once

    ended = {name: cancelled(jobs[name]) for name in waiting}
    with ThreadPoolExecutor(len(steps)) as pool:
        ended |= zip(steps, pool.map(cancelled, [jobs[name] for name in steps]), strict=True)

    assert {answer.status for answer, _ in ended.values()} == {"cancelled"}
    assert {name: round(took, 1) for name, (_, took) in ended.items() if took > AT_ONCE} == {}
    assert {name for name, (answer, _) in ended.items() if answer.uncertain} == {"sync", "async", "isolated"}
    hung_up = eventually(lambda: len(place.fake.disconnects) >= 2 and place.fake.disconnects, "its sockets are closed")
    assert {seen.request.name for seen in hung_up} >= {"c-stream", "c-silent"}
    assert [place.fake.count(f"c-{name}") for name in waiting] == [0, 0]
    assert all(not place.effects(f"c-{name}") for name in ("async", "isolated"))
    cancelled(filler)

    following = [place.ask({"text": "next"}, name=f"n-{name}", conversation_id=name) for name in steps]
    assert [answer.text for answer in place.settled(*following)] == ["next"] * len(steps)
    assert [job.cancel() for job in jobs.values()] == [False] * len(jobs)
    place.sound_at_rest()


def test_a_cancel_takes_no_second_though_every_slot_is_taken_and_no_sweep_is_near(deploy):  # rule 8
    place = deploy("sqlite", ROUNDELAY_CONCURRENCY="2", ROUNDELAY_SWEEP="60", ROUNDELAY_LEASE="60")
    place.start()
    fillers = [place.ask({"stall": 60, "text": "no"}, name=f"full{n}") for n in range(2)]
    eventually(lambda: all(place.fake.count(f"full{n}") for n in range(2)), "every slot is taken")
    waiting = [place.ask({"text": "no"}, name=f"waits{n}") for n in range(3)]

    ended = [cancelled(job) for job in (*waiting, *fillers)]

    assert {answer.status for answer, _ in ended} == {"cancelled"}
    assert all(took < AT_ONCE for _, took in ended)
    assert min(took for _, took in ended[:3]) < 1, "of a message that waits"
    assert min(took for _, took in ended[3:]) < 1, "of one that is at work"


def test_a_message_cancelled_before_any_worker_saw_it_never_runs(deploy):  # B7, rule 2
    place = deploy()
    gone = place.ask({"text": "no"}, name="b7", conversation_id="c")
    assert gone.cancel() is True
    kept = place.ask({"text": "yes"}, name="b7-next", conversation_id="c")

    place.start()
    answers = place.settled(gone, kept)

    assert [answer.status for answer in answers] == ["cancelled", "answered"]
    assert answers[0].started_at is None
    assert place.fake.count("b7") == 0


def test_a_message_of_a_dead_or_frozen_worker_is_cancelled_at_once(deploy):  # D1, D2, D16, rule 8
    place = deploy(ROUNDELAY_LEASE="30", ROUNDELAY_SWEEP="0.5")
    dead, frozen = place.start(), None
    orphan = place.ask(call("look_async", tag="orphan", seconds=50), {"text": "no"}, name="d1", conversation_id="c1")
    assert place.began("orphan") == dead.pid
    frozen = place.start()
    dead.freeze()
    captive = place.ask(call("look_async", tag="captive", seconds=50), {"text": "no"}, name="d2", conversation_id="c2")
    eventually(lambda: place.effects("captive", "began"), "the second one has it")
    dead.kill()
    frozen.freeze()
    third = place.start()

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(cancelled, (orphan, captive)))
    nexts = [place.ask({"text": "next"}, name=f"after-{c}", conversation_id=c) for c in ("c1", "c2")]

    assert [answer.status for answer, _ in ended] == ["cancelled", "cancelled"]
    assert all(took < AT_ONCE for _, took in ended)
    assert [answer.text for answer in place.settled(*nexts)] == ["next", "next"]
    frozen.thaw()
    more = place.ask({"text": "more"}, name="d2-more", conversation_id="c2")
    assert place.settled(more)[0].text == "more"
    assert place.settled(captive)[0].status == "cancelled"
    assert third.code is None


def test_a_cancellation_whose_hint_was_lost_is_found_by_the_sweep(deploy):  # D2
    place = deploy()
    place.start()
    job = place.ask(call("look_async", tag="lost-hint", seconds=50), {"text": "no"}, name="hint")
    place.began("lost-hint")

    place.redis.zadd(cancels_key(place.prefix), {job.message_id: time.time()})

    assert job.wait(timeout=30).status == "cancelled"
    eventually(lambda: place.redis.zcard(cancels_key(place.prefix)) == 0, "the request is cleared")


def test_many_cancellations_whose_owner_is_silent_take_no_longer_than_a_few(deploy):  # D1, D2
    """Each gives its owner a moment; one after the other these would add up."""
    place = deploy(ROUNDELAY_LEASE="15", ROUNDELAY_CONCURRENCY="40")
    frozen = place.start()
    jobs = [
        place.ask(call("look_async", tag=f"mute{n}", seconds=50), {"text": "no"}, name=f"mute{n}") for n in range(30)
    ]
    for n in range(30):
        place.began(f"mute{n}")
    frozen.freeze()
    place.start()

    place.redis.zadd(cancels_key(place.prefix), {job.message_id: time.time() for job in jobs})
    began = time.monotonic()
    answers = [job.wait(timeout=30) for job in jobs]

    assert {answer.status for answer in answers} == {"cancelled"}
    assert time.monotonic() - began < 8


def test_a_message_cancelled_while_it_is_in_the_web_apps_own_table_never_starts(deploy):  # B7, rule 2
    place = deploy("sqlite")
    place.start(ROUNDELAY_CONCURRENCY="1", ROUNDELAY_LEASE="6", ROUNDELAY_SWEEP="3")
    filler = place.ask({"stall": 8, "text": "no"}, name="outbox-filler")
    eventually(lambda: place.fake.count("outbox-filler"), "the only slot is taken")
    with create_engine(place.env["ROUNDELAY_DATABASE_URL"]).begin() as connection:
        message_id = enqueue(connection, place.scripted({"text": "no"}, name="outbox"))

    job = place.client.nudge(message_id)
    assert job.cancel() is True
    filler.cancel()

    assert job.wait(timeout=30).status == "cancelled"
    assert place.fake.count("outbox") == 0


def test_a_message_cancelled_before_its_transaction_is_committed_never_starts(deploy):  # rule 2
    place = deploy("sqlite")
    place.start()
    text = place.scripted({"text": "no"}, name="early")
    submission = validate(text, {}, max_message_bytes=100_000).submission
    job = place.client.nudge(submission.message_id)

    assert job.cancel() is True
    eventually(lambda: not place.queued(), "its task was taken, and dropped")
    with create_engine(place.env["ROUNDELAY_DATABASE_URL"]).begin() as connection:
        row = {
            "message_id": submission.message_id,
            "submission": submission.model_dump_json(),
            "created_at": time.time(),
        }
        connection.execute(outbox_table(MetaData()).insert().values(**row))

    assert job.wait(timeout=30).status == "cancelled"
    assert place.fake.count("early") == 0


def test_a_write_that_goes_on_after_its_cancellation_holds_back_the_next_write(deploy):  # SPEC: loose writes; D26
    place = deploy()
    place.start()
    place.start()
    first = place.ask(call("act", tag="loose", before=6), {"text": "no"}, name="loose", conversation_id="c")
    place.began("loose")
    assert cancelled(first)[0].status == "cancelled"

    second = place.ask(call("act", tag="second"), {"text": "told"}, name="loose-next", conversation_id="c")
    (answer,) = place.settled(second)

    assert place.effects("second") == []
    assert [note.name for note in answer.undone] == ["act"]
    eventually(lambda: place.effects("loose"), "the loose write ends")
    third = place.ask(call("act", tag="third"), {"text": "done"}, name="loose-third", conversation_id="c")
    assert place.settled(third)[0].text == "done"
    assert len(place.effects("third")) == 1
