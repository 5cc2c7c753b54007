"""Where deltas and durable updates land in a stream, on a real server that forgets and fails."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis.asyncio as aioredis

from roundelay.names import answer_key, updates_key
from roundelay_worker.delivery.publisher import Publisher, Publishing
from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.store.records import Publication

pytestmark = pytest.mark.services

PREFIX = "places"
MESSAGE = "m1"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with TemporaryDirectory() as folder, running_valkey(Path(folder) / "valkey") as url:
        yield url


async def _nothing(_message_id: str) -> Publication | None:
    return None


async def _unnoted(_published: list[tuple[str, int]]) -> None:
    return None


def _update(seq: int) -> Publishing:
    return Publishing(MESSAGE, seq, (f'{{"seq":{seq}}}',), "running")


async def _on_an_empty_stream(redis: aioredis.Redis) -> Publisher:
    await redis.flushall()
    publisher = Publisher(redis, PREFIX, 60, _nothing, _unnoted)
    publisher.publish(_update(1))
    await publisher.drain()
    return publisher


async def _places(redis: aioredis.Redis) -> list[str]:
    """Return the ids of the stream, with a word on those that hold a delta."""
    found = await redis.xrange(updates_key(PREFIX, MESSAGE))
    return [place.decode() + " delta" * (b"kind" in fields[b"update"]) for place, fields in found]


def test_a_delta_does_not_take_the_place_of_an_update_that_is_not_there_yet(url: str):
    async def story() -> list[str]:
        async with aioredis.Redis.from_url(url) as redis:
            publisher = await _on_an_empty_stream(redis)
            publisher.delta(MESSAGE, 2, 1, 1, 0, "of a turn whose update was not published")
            await publisher.drain()
            publisher.publish(_update(2))
            publisher.delta(MESSAGE, 2, 1, 1, 0, "after it")
            await publisher.drain()
            return await _places(redis)

    assert asyncio.run(story()) == ["1-0", "2-0", "2-1 delta"]


def test_a_server_that_forgot_the_scripts_gets_updates_and_deltas_in_their_order(url: str):
    async def story() -> list[str]:
        async with aioredis.Redis.from_url(url) as redis:
            publisher = await _on_an_empty_stream(redis)
            await redis.script_flush()
            publisher.publish(_update(2))
            publisher.delta(MESSAGE, 2, 1, 1, 0, "after it")
            await publisher.drain()
            return await _places(redis)

    assert asyncio.run(story()) == ["1-0", "2-0", "2-1 delta"]


def test_a_delta_begins_no_stream(url: str):
    async def story() -> list[str]:
        async with aioredis.Redis.from_url(url) as redis:
            publisher = await _on_an_empty_stream(redis)
            await redis.flushall()
            publisher.delta(MESSAGE, 1, 1, 1, 0, "of a stream that is gone")
            await publisher.drain()
            return await _places(redis)

    assert asyncio.run(story()) == []


def test_the_answer_is_set_and_published_once_and_the_first_one_stays(url: str):  # rule 15
    async def scenario() -> None:
        async with aioredis.Redis.from_url(url) as redis, redis.pubsub() as listening:
            publisher = await _on_an_empty_stream(redis)
            await listening.subscribe(answer_key(PREFIX, MESSAGE))
            for answer in ('{"text":"first"}', '{"text":"first"}', '{"text":"another"}'):
                publisher.publish(Publishing(MESSAGE, 2, ('{"seq":2}',), "answered", answer=answer))
                await publisher.drain()
            await redis.publish(answer_key(PREFIX, MESSAGE), "that is all")
            heard = [item["data"] async for item in _until(listening, b"that is all")]

            assert heard == [b'{"text":"first"}']
            assert await redis.get(answer_key(PREFIX, MESSAGE)) == b'{"text":"first"}'

    async def _until(listening, last: bytes):
        async for item in listening.listen():
            if item["data"] == last:
                return
            if item["type"] == "message":
                yield item

    asyncio.run(scenario())


def test_the_deltas_of_a_turn_go_when_what_follows_it_has_come(url: str):  # rule 16
    async def scenario() -> list[str]:
        async with aioredis.Redis.from_url(url) as redis:
            publisher = await _on_an_empty_stream(redis)
            for seq in (1, 2):
                for text in ("a", "b"):
                    publisher.delta(MESSAGE, seq, 1, 1, 0, text)
                    await publisher.drain()
                publisher.publish(_update(seq + 1))
                await publisher.drain()
            return await _places(redis)

    assert asyncio.run(scenario()) == ["1-0", "2-0", "2-1 delta", "2-2 delta", "3-0"]


def test_a_stream_has_a_cap(url: str):  # rule 16
    async def scenario() -> int:
        async with aioredis.Redis.from_url(url) as redis:
            publisher = await _on_an_empty_stream(redis)
            for first in range(2, 30_000, 5_000):
                bodies = tuple(f'{{"seq":{first + i}}}' for i in range(5_000))
                publisher.publish(Publishing(MESSAGE, first, bodies, "running"))
                await publisher.drain()
            return int(await redis.xlen(updates_key(PREFIX, MESSAGE)))

    assert asyncio.run(scenario()) <= 20_200
