"""What lies under our names and is not ours: a typed error for whoever asks for it, and nothing for the others."""

import json

import pytest

from roundelay import MessageNotFound, UnreadableRecord, names

pytestmark = pytest.mark.services

VERBS = {
    "wait": lambda job: job.wait(5),
    "follow": lambda job: list(job.follow(timeout=5)),
    "state": lambda job: job.state(),
    "cancel": lambda job: job.cancel(),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("text", ["\ud800", "a b", "", "x" * 129, "a\n", None, 7])
def test_what_can_be_no_id_is_not_found(client, verb, text):
    with pytest.raises(MessageNotFound):
        VERBS[verb](client.get(text))


def test_an_id_with_half_a_surrogate_pair_disturbs_no_other_reader(client, worker, in_thread, eventually):
    job, seen = client.submit("one"), []
    worker.update(job, 1)
    following = in_thread(lambda: [seen.append(update.seq) for update in job.follow(timeout=20)])
    eventually(lambda: seen == [1])

    with pytest.raises(MessageNotFound):
        list(client.get("\udc00").follow(timeout=5))

    worker.end(job, 2)
    following.result()
    assert seen == [1, 2]


KEYS = {"answer": names.answer_key, "state": names.state_key, "updates": names.updates_key}


@pytest.mark.parametrize("verb", ["wait", "follow", "state"])
@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_another_type_is_a_typed_error(client, raw, prefix, verb, key):
    job = client.submit("one")
    name = KEYS[key](prefix, job.message_id)
    raw.delete(name)
    raw.zadd(name, {"x": 1})

    with pytest.raises(UnreadableRecord):
        VERBS[verb](job)


def newer(job):
    return {
        "message_id": job.message_id, "conversation_id": "c", "status": "escalated", "text": "t",
        "finished_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize("verb", ["wait", "follow", "state"])
@pytest.mark.parametrize("value", ["no json", b"\xff\xfe", "[]", "{}", "null", "newer"])
def test_an_answer_that_cannot_be_read_is_a_typed_error_that_quotes_nothing(client, raw, prefix, verb, value):
    job = client.submit("one")
    raw.set(names.answer_key(prefix, job.message_id), json.dumps(newer(job)) if value == "newer" else value)

    with pytest.raises(UnreadableRecord) as caught:
        VERBS[verb](job)

    assert "escalated" not in str(caught.value)


def test_what_is_published_and_no_answer_does_not_end_a_wait(client, worker, raw, prefix, in_thread, eventually):
    job = client.submit("one")
    key = names.answer_key(prefix, job.message_id)
    waiting = in_thread(lambda: job.wait(20))
    eventually(lambda: raw.pubsub_numsub(key)[0][1])

    raw.publish(key, b"\xff nonsense")
    raw.publish(key, json.dumps(newer(job)))
    worker.answer(job)

    assert waiting.result().text == "hi"


def test_the_stream_of_one_that_is_foreign_meanwhile_ends_that_follower_alone(
    client, worker, raw, prefix, in_thread, eventually
):
    ours, other, seen = client.submit("one"), client.submit("two"), []
    worker.update(ours, 1)
    worker.update(other, 1)
    following = in_thread(lambda: [seen.append(update.seq) for update in ours.follow(timeout=20)])
    failing = in_thread(lambda: list(other.follow(timeout=20)))
    eventually(lambda: seen == [1])
    eventually(lambda: [one for one in raw.client_list() if one["cmd"] == "xread"])

    name = names.updates_key(prefix, other.message_id)
    with raw.pipeline() as at_once:
        at_once.delete(name)
        at_once.set(name, "foreign")
        at_once.execute()
    with pytest.raises(UnreadableRecord):
        failing.result()

    worker.end(ours, 2)
    following.result()
    assert seen == [1, 2]


def test_an_unreadable_end_in_the_stream_is_told_by_the_stored_answer(client, worker):
    job = client.submit("one")
    worker.update(job, 1)
    worker.answer(job, "kept")
    worker.add(job, "2-0", {"kind": "ended", "seq": 2})

    ended = list(job.follow(timeout=5))[-1]

    assert (ended.kind, ended.seq, ended.answer.text) == ("ended", 2, "kept")


def test_a_wait_finds_the_answer_in_the_stream_where_its_own_key_is_gone(client, worker, raw, prefix):
    job = client.submit("one")
    worker.end(job, 1, "still here")
    raw.delete(names.answer_key(prefix, job.message_id))

    assert job.wait(5).text == "still here"


def test_a_wait_for_an_answer_that_is_gone_asks_the_workers_and_then_ends(client, worker, raw, prefix, in_thread):
    job = client.submit("one")
    worker.answer(job)
    raw.delete(names.answer_key(prefix, job.message_id))
    with raw.pubsub() as control:
        control.subscribe(names.control_channel(prefix))
        control.get_message(timeout=5)
        waiting = in_thread(job.wait)
        assert control.get_message(timeout=5)["data"] == f"restore {job.message_id}".encode()
    worker.answer(job, "again")
    assert waiting.result().text == "again"

    raw.delete(names.answer_key(prefix, job.message_id))
    worker.fill()
    with pytest.raises(MessageNotFound):
        job.wait()
