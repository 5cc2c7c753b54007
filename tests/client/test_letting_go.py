"""Whoever forgets to close a client keeps nothing: no socket, no descriptor, no event loop."""

import asyncio
import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from roundelay import AnswerTimeout, AsyncClient, Client

FDS = Path("/proc/self/fd")
pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(not FDS.is_dir(), reason="counts descriptors in /proc"),
]


def descriptors() -> int:
    return len(list(FDS.iterdir()))


async def use(client: AsyncClient) -> str:
    """Use a client in every way: to send, to ask, to wait and to follow."""
    job = await client.submit("one")
    with pytest.raises(AnswerTimeout):
        await job.wait(0.1)
    with pytest.raises(AnswerTimeout):
        await anext(job.follow(timeout=0.1))
    return (await job.state()).status


def by_run(client: AsyncClient) -> weakref.ref[asyncio.AbstractEventLoop]:
    async def in_this_loop() -> weakref.ref[asyncio.AbstractEventLoop]:
        assert await use(client) == "queued"
        return weakref.ref(asyncio.get_running_loop())

    return asyncio.run(in_this_loop())


def test_an_async_client_keeps_nothing_of_an_event_loop_that_has_ended(url, prefix, raw, eventually):
    client = AsyncClient(url, prefix=prefix)
    by_run(client)
    connections, before = len(raw.client_list()), descriptors()

    loops = [by_run(client) for _ in range(5)]

    assert eventually(lambda: descriptors() <= before)
    assert eventually(lambda: len(raw.client_list()) <= connections)
    gc.collect()
    assert [loop() for loop in loops] == [None] * 5


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_event_loop_that_was_closed_without_a_word_is_forgotten_at_the_next_use(url, prefix, eventually):
    client = AsyncClient(url, prefix=prefix)
    by_run(client)
    before = descriptors()
    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(_state(client))
        loop.close()
    del loop

    by_run(client)

    assert eventually(lambda: gc.collect() >= 0 and descriptors() <= before)


async def _state(client: AsyncClient) -> str:
    job = await client.submit("one")
    return (await job.state()).status


def test_an_async_client_that_is_dropped_in_a_running_loop_lets_go(url, prefix, raw, eventually):
    async def scenario() -> bool:
        await use(AsyncClient(url, prefix=prefix))
        before = len(raw.client_list())
        for _ in range(5):
            await use(AsyncClient(url, prefix=prefix))
        for _ in range(500):
            if len(raw.client_list()) <= before:
                return True
            await asyncio.sleep(0.01)
        return False

    assert asyncio.run(scenario())


def test_a_client_that_is_dropped_without_close_lets_go(url, prefix, raw, eventually):
    def use_and_drop() -> None:
        job = Client(url, prefix=prefix).submit("one")
        with pytest.raises(AnswerTimeout):
            job.wait(0.1)
        with pytest.raises(AnswerTimeout):
            next(job.follow(timeout=0.1))

    use_and_drop()
    eventually(lambda: len(raw.client_list()) == 1)
    before = descriptors()
    for _ in range(5):
        use_and_drop()

    assert eventually(lambda: len(raw.client_list()) == 1)
    assert eventually(lambda: descriptors() <= before)


def test_updates_are_read_to_their_end_though_nobody_holds_the_client_any_more(url, prefix, worker, in_thread):
    with Client(url, prefix=prefix) as client:
        job = client.submit("one")
    updates = Client(url, prefix=prefix).get(job.message_id).follow(timeout=20)
    worker.update(job, 1)
    assert next(updates).seq == 1
    gc.collect()
    reading = in_thread(lambda: [update.seq for update in updates])
    worker.end(job, 2)

    assert reading.result() == [2]


SLOW = """
import importlib.abc, sys, time
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {slow!r}:
            time.sleep(8)
sys.meta_path.insert(0, Slow())
from roundelay import {kind}, ServiceUnavailable
import asyncio
async def once(): return await AsyncClient({url!r}, prefix={prefix!r}).submit("one")
began = time.monotonic()
try:
    {call}
    print("stored")
except ServiceUnavailable:
    print("refused")
print(time.monotonic() - began < 5.5)
import os
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize(("slow", "said"), [("redis", "refused"), ("celery", "stored")])
@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_a_first_submit_whose_imports_are_slow_ends_within_5_seconds(url, prefix, slow, said, kind):
    call = f"Client({url!r}, prefix={prefix!r}).submit('one')" if kind == "Client" else "asyncio.run(once())"
    code = SLOW.format(slow=slow, kind=kind, url=url, prefix=prefix, call=call)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout.split(), done.returncode) == ([said, "True"], 0), done.stderr
