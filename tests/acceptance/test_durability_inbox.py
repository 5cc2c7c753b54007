"""From the web app's hands into the database: in order, past what cannot be read, and out again when it is old."""

import pytest
from harness.services import send
from harness.waiting import eventually

from roundelay.names import inbox_key, messages_queue, record_key

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


def test_a_task_accepts_what_came_before_its_message_and_the_watchdog_the_rest(deploy):  # rule 1
    place = deploy("sqlite")
    jobs = [place.ask({"text": "in turn"}, name=f"in{n}", conversation_id="c") for n in range(4)]
    place.redis.delete(messages_queue(place.prefix))
    send(place, "roundelay.answer", [jobs[2].message_id])

    unwatched = place.start(ROUNDELAY_SWEEP="600", ROUNDELAY_LEASE="600")
    eventually(lambda: place.redis.zcard(inbox_key(place.prefix)) == 1, "three are accepted")
    assert [place.known(job) for job in jobs] == [True, True, True, False]
    unwatched.terminate()
    unwatched.ended()
    place.start()

    answers = place.settled(*jobs)
    assert [place.show(job.message_id).position for job in jobs] == [1, 2, 3, 4]
    assert [answer.text for answer in answers] == ["in turn"] * 4
    place.sound_at_rest()


def test_an_inbox_record_that_nobody_can_read_holds_up_none_of_its_conversation(deploy):  # rule 1
    place = deploy("sqlite")
    spoilt, *jobs = [place.ask({"text": "past it"}, name=f"past{n}", conversation_id="c") for n in range(3)]
    place.redis.set(record_key(place.prefix, spoilt.message_id), "{ no JSON")
    worker = place.start()

    answers = place.settled(*jobs, place.ask({"text": "past it"}, name="past3", conversation_id="c"))

    assert [answer.text for answer in answers] == ["past it"] * 3
    assert worker.said.count("inbox_record_unreadable") == 1
    assert spoilt.state().status == "queued"
    assert place.redis.exists(record_key(place.prefix, spoilt.message_id))


def test_workers_prune_by_themselves_what_ended_long_ago(deploy):  # rule 16
    place = deploy("sqlite", ROUNDELAY_SETUP="harness.tidy:setup", ROUNDELAY_RETENTION="3", ROUNDELAY_ANSWER_TTL="3")
    place.start()
    job = place.ask({"text": "gone soon"}, name="pruned")
    assert job.wait(timeout=45).text == "gone soon"

    eventually(lambda: not place.known(job), "the database has forgotten it")
