"""Those who wait, follow and ask: from any thread, at any moment; and those who go away and never come back."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.services import faults
from harness.waiting import eventually
from harness.words import call

from roundelay import AsyncClient, Client, MessageNotFound
from roundelay.updates import Ended, TextReset

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

MANY = 120
MOST = 5.0
"""Seconds of one wait, most of them for a loaded machine; an answer that is missed is looked for after ten."""


def delays() -> list[tuple[float, float]]:
    """Return when each model answers and when each waiting begins: both around the same moment."""
    dice = random.Random(11)
    return [(dice.random() * 0.05, dice.random() * 0.1) for _ in range(MANY)]


def test_answers_that_come_around_the_moment_of_waiting_are_never_missed(deploy):  # C1, C3, D37
    place = deploy()
    place.start(ROUNDELAY_CONCURRENCY="40")

    def waited(job, pause: float) -> float:
        threading.Event().wait(pause)
        began = time.monotonic()
        assert job.wait(timeout=20).text == "here"
        return time.monotonic() - began

    async def waited_async(client: AsyncClient, number: int, answers_in: float, pause: float) -> float:
        text = place.scripted({"text": "here", "delay": answers_in}, name=f"async{number}")
        job = await client.submit(text)
        await asyncio.sleep(pause)
        began = time.monotonic()
        assert (await job.wait(timeout=20)).text == "here"
        return time.monotonic() - began

    async def all_async() -> list[float]:
        async with AsyncClient(place.redis_url, prefix=place.prefix) as client:
            took = []
            for first in range(0, MANY, 20):
                some = enumerate(delays()[first : first + 20], first)
                took += await asyncio.gather(*(waited_async(client, number, *pair) for number, pair in some))
            return took

    with ThreadPoolExecutor(8) as pool:
        waits = []
        for number, (answers_in, pause) in enumerate(delays()):
            job = place.ask({"text": "here", "delay": answers_in}, name=f"sync{number}")
            waits.append(pool.submit(waited, job, pause))
        took = [wait.result() for wait in waits]

    assert max(took) < MOST
    assert max(asyncio.run(all_async())) < MOST


def test_updates_outlive_a_silence_longer_than_their_time_to_live_and_then_expire(deploy):  # C5
    place = deploy("sqlite", ROUNDELAY_ANSWER_TTL="3")
    place.start()
    job = place.ask(call("look_async", tag="c5", seconds=4), {"text": "told"}, name="c5")

    assert job.wait(timeout=30).text == "told"
    updates = list(job.follow(timeout=30))

    assert [update.seq for update in updates if update.seq] == list(range(1, place.show(job.message_id).seq + 1))
    assert [update.kind for update in updates][-1] == "ended"
    eventually(lambda: not place.redis.keys(f"{place.prefix}:*:{job.message_id}"), "it is forgotten")
    with pytest.raises(MessageNotFound):
        list(job.follow(timeout=5))


def consume(updates) -> None:
    """Fail at the first update, as a consumer may."""
    for _ in updates:
        raise ZeroDivisionError


def test_readers_that_leave_in_the_middle_hold_up_nobody(deploy):  # A24, D14
    place = deploy("sqlite")
    place.start()
    left = place.ask(call("look_async", tag="left", seconds=1), {"text": "left"}, name="left", conversation_id="d14")

    async def leave() -> None:
        async with AsyncClient(place.redis_url, prefix=place.prefix) as client:
            async for _ in client.get(left.message_id).follow():
                return  # the generator is not closed

    next(left.follow())
    with pytest.raises(ZeroDivisionError):
        consume(left.follow())
    asyncio.run(leave())
    after = place.ask({"text": "after"}, name="after-left", conversation_id="d14")
    assert [answer.text for answer in place.settled(left, after)] == ["left", "after"]

    keys = place.redis.keys(f"{place.prefix}:*")
    for _ in range(250):
        assert (left.state().status, after.cancel()) == ("answered", False)
        assert left.wait(5).text == "left"
        assert place.client.get("nobody").message_id == "nobody"
        with pytest.raises(MessageNotFound):
            place.client.get("nobody").cancel()
    new = set(place.redis.keys(f"{place.prefix}:*")) - set(keys)
    assert all(place.redis.ttl(key) > 0 for key in new)
    assert len(new) <= 2, "a reader may be woken"


def test_messages_whose_client_never_returns_end_on_whatever_host_begins_next(deploy):  # D8, D38, D40
    place = deploy(ROUNDELAY_SWEEP="0.5")
    tags = ("gone0", "gone1", "gone2")
    first = place.worker(app="harness.elsewhere", HARNESS_HOST="pod-a").ready()
    with Client(place.redis_url, prefix=place.prefix) as client:
        steps = {tag: (call("look_async", tag=tag, seconds=3), {"text": "done"}) for tag in tags}
        ids = [client.submit(place.scripted(*steps[tag], name=tag)).message_id for tag in tags]
    for tag in tags:
        place.began(tag)
    first.kill()
    eventually(lambda: place.stored(lambda store: store.counts()).running_without_worker == 3, "the alarm", 10)
    assert "3 run without a worker" in faults(place)

    place.worker(app="harness.elsewhere", HARNESS_HOST="pod-b").ready()

    eventually(lambda: all(place.show(one).status == "answered" for one in ids), "all end", 15)
    assert faults(place) == ""
    place.sound_at_rest()


def test_a_page_that_reconnects_within_a_turn_never_shows_its_text_twice(deploy):
    place = deploy("sqlite")
    place.start()
    text = " ".join(f"word{number}" for number in range(120))
    job = place.ask({"text": text, "pace": 0.02}, name="reconnecting")
    page, seen, longest, visits, ended = "", 0, 0, 0, False

    while not ended:
        visits += 1
        for update in job.follow(after=seen, timeout=30):
            seen, ended = update.seq or seen, isinstance(update, Ended)
            page = "" if isinstance(update, TextReset) else page + getattr(update, "text", "")
            assert text.startswith(page)
            if len(page) > longest + 100:
                longest = len(page)
                break

    assert visits > 3
    assert place.settled(job)[0].text == text
