"""Nothing hangs: submit answers or fails within 5 seconds whatever Redis and the network do, and forks are safe."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from roundelay import AsyncClient, Client, ServiceUnavailable, names

pytestmark = pytest.mark.services


def _seconds_to_fail(client) -> float:
    started_at = time.monotonic()
    with pytest.raises(ServiceUnavailable):
        client.submit("one")
    return time.monotonic() - started_at


def test_submit_fails_at_once_where_nobody_listens(make_client):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    assert _seconds_to_fail(make_client(f"redis://127.0.0.1:{port}/0")) < 2


def test_submit_fails_within_5_seconds_at_a_server_that_never_answers(make_client, blackhole):
    assert _seconds_to_fail(make_client(blackhole.url)) < 5


def test_submit_fails_within_5_seconds_at_a_server_that_drips_bytes(make_client, dripping):
    assert _seconds_to_fail(make_client(dripping.url)) < 5


def test_40_submits_at_once_at_a_dead_server_all_fail_within_5_seconds(blackhole, in_thread):
    with Client(blackhole.url) as client:
        calls = [in_thread(lambda: _seconds_to_fail(client)) for _ in range(40)]
        assert max(call.result() for call in calls) < 5.5


def test_submit_returns_the_job_within_5_seconds_if_only_the_broker_never_answers(make_client, url, prefix, blackhole):
    for broker in (blackhole.url, blackhole.url.replace("redis", "amqp")):
        client = make_client(url, broker, prefix)
        started_at = time.monotonic()
        job = client.submit("one")
        assert time.monotonic() - started_at < 5
        assert job.state().status == "queued"


def test_a_stopped_redis_does_not_hold_a_caller_for_longer_either(make_client, url, prefix, server):
    client = make_client(url, prefix=prefix)
    client.submit("one")
    server._process.send_signal(19)
    try:
        assert _seconds_to_fail(client) < 5
    finally:
        server._process.send_signal(18)
    client.submit("two")


def test_a_submit_whose_caller_gave_up_stores_at_most_one_message(make_client, url, prefix, server, raw, eventually):
    client = make_client(url, prefix=prefix)
    client.submit("one", idempotency_key="first", conversation_id="c")
    server._process.send_signal(19)
    try:
        _seconds_to_fail_with(client, conversation_id="c", idempotency_key="k")
    finally:
        server._process.send_signal(18)

    job = client.submit("one", conversation_id="c", idempotency_key="k")

    assert eventually(lambda: raw.zcard(names.inbox_key(prefix))) == 2
    assert raw.lindex(names.waiting_key(prefix, "", "c"), -1).decode() == job.message_id


def _seconds_to_fail_with(client, **options) -> None:
    with pytest.raises(ServiceUnavailable):
        client.submit("one", **options)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_connections_and_readers_of_its_own(url, prefix):
    code = f"""
import json, os, sys, threading, time, warnings
import redis
warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what is tested
from roundelay import Client, AnswerTimeout
client = Client({url!r}, prefix={prefix!r})
job = client.submit("one", conversation_id="c1")
def wait():
    try:
        job.wait(0.5)
    except AnswerTimeout:
        return 0
    return 1
def follow():
    try:
        next(job.follow(timeout=0.5))
    except AnswerTimeout:
        return 0
    return 1
def hear():
    # Through the readers: looking again without them happens after 2 and after 12 seconds.
    job = client.submit("two", conversation_id="c1")
    def answer():
        key = {prefix!r} + ":answer:" + job.message_id
        body = dict(message_id=job.message_id, conversation_id="c1", status="answered", text="x", finished_at=0)
        with redis.Redis.from_url({url!r}) as raw:
            raw.set(key, json.dumps(body))
            raw.publish(key, json.dumps(body))
    later = threading.Timer(3.0, answer)
    later.start()
    started_at = time.monotonic()
    job.wait(30)
    later.join()
    return time.monotonic() - started_at > 8
assert wait() + follow() == 0
child = os.fork()
failed = wait() + follow() + hear() + (client.submit("two", conversation_id="c1").state().status != "queued")
if child == 0:
    client.close()
    os._exit(failed)
_, status = os.waitpid(child, 0)
failed += os.waitstatus_to_exitcode(status) + wait()
client.close()
sys.exit(failed)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with Client(url, prefix=prefix) as client:
        assert client.submit("four", conversation_id="c1").state().status == "queued"


def test_many_threads_share_one_client(url, prefix, raw, in_thread):
    with Client(url, prefix=prefix) as client:
        calls = [in_thread(lambda: [client.submit("one", conversation_id="c") for _ in range(10)]) for _ in range(20)]
        ids = {job.message_id for call in calls for job in call.result()}

    assert len(ids) == raw.llen(names.waiting_key(prefix, "", "c")) == raw.llen(names.messages_queue(prefix)) == 200


def test_an_async_client_serves_one_event_loop_after_another(url, prefix):
    client = AsyncClient(url, prefix=prefix)

    async def use() -> str:
        async with client:
            return (await (await client.submit("one")).state()).status

    assert [asyncio.run(use()) for _ in range(3)] == ["queued"] * 3


def test_a_cancelled_wait_ends_at_once_and_the_client_goes_on(url, prefix):
    async def scenario() -> str:
        async with AsyncClient(url, prefix=prefix) as client:
            job = await client.submit("one")
            for pause in (0.0, 0.05, *(step / 10_000 for step in range(2, 40))):
                waiting = asyncio.create_task(job.wait(60))
                await asyncio.sleep(pause)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(waiting, 2)
            return (await job.state()).status

    assert asyncio.run(scenario()) == "queued"


def test_a_reader_stops_when_nobody_waits_any_more(url, prefix):
    def readers() -> int:
        return sum(thread.name in {"roundelay-answers", "roundelay-updates"} for thread in threading.enumerate())

    before = readers()
    client = Client(url, prefix=prefix)
    job = client.submit("one")
    for verb in (lambda: job.wait(0.1), lambda: next(job.follow(timeout=0.1))):
        with pytest.raises(TimeoutError):
            verb()
    assert readers() == before + 2

    client.close()

    assert readers() == before
