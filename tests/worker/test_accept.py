"""What is taken from the inbox, and in which pieces, on a real server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis.asyncio as aioredis

from roundelay._core import redis_commands
from roundelay._core.validation import validate
from roundelay.names import inbox_key, record_key, waiting_key
from roundelay_worker.delivery.publisher import Publisher
from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.engine.inbox import Acceptor
from roundelay_worker.process.clock import Clock
from roundelay_worker.store.store import Store

pytestmark = pytest.mark.services

PREFIX = "accepting"
NUMBERS = count(1)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with TemporaryDirectory() as folder, running_valkey(Path(folder) / "valkey") as url:
        yield url


@dataclass
class Place:
    redis: aioredis.Redis
    store: Store
    acceptor: Acceptor

    async def submit(self, text: str = "hello") -> str:
        parcel = validate(text, {"conversation_id": "c"}, max_message_bytes=2_000_000)
        question = redis_commands.submit(PREFIX, parcel.submission, scope="c", digest=parcel.digest, keep=60)
        await self.redis.execute_command(*question.command(by_text=True))
        return parcel.submission.message_id

    async def spoil(self, message_id: str) -> None:
        await self.redis.set(record_key(PREFIX, message_id), '{"v": 2}')

    async def enqueue(self, submission: str | None = None) -> str:
        written = validate("hello", {"conversation_id": "c"}, max_message_bytes=2_000_000).submission
        await self.store._driver.fetch(
            "INSERT INTO roundelay_outbox (message_id, submission, created_at) VALUES ($1, $2, $3)",
            *(written.message_id, submission or written.model_dump_json(), float(next(NUMBERS))),
        )
        return written.message_id

    async def position(self, message_id: str) -> int | None:
        found = await self.store.timeline(message_id)
        return found and found.position


def in_place(url: str, tmp_path: Path, story: Callable[[Place], Awaitable[Any]]) -> Any:
    async def nothing(*_: Any) -> None:
        return None

    async def told() -> Any:
        store = await Store.open(f"sqlite:///{tmp_path}/db")
        await store.migrate()
        async with aioredis.Redis.from_url(url) as redis:
            await redis.flushall()
            publisher = Publisher(redis, PREFIX, 60, nothing, nothing)
            acceptor = Acceptor(redis, PREFIX, store, publisher, Clock(await store.now()), None)
            try:
                return await story(Place(redis, store, acceptor))
            finally:
                await store.close()

    return asyncio.run(told())


def test_a_crowd_before_a_message_is_accepted_in_order_and_in_pieces(url: str, tmp_path: Path):
    async def story(place: Place) -> None:
        ids = [await place.submit() for _ in range(250)]

        more, first = await place.acceptor._piece(ids[-2], 0)
        assert (await place.acceptor.accept(ids[-2])).found == "accepted"

        assert (more, len(first)) == (True, 100)
        assert [await place.position(one) for one in ids] == [*range(1, 250), None]
        assert await place.redis.zcard(inbox_key(PREFIX)) == 1

    in_place(url, tmp_path, story)


def test_a_piece_holds_only_so_many_bytes(url: str, tmp_path: Path):
    async def story(place: Place) -> None:
        ids = [await place.submit("x" * 1_500_000) for _ in range(8)]

        _, first = await place.acceptor._piece(ids[-1], 0)
        assert (await place.acceptor.accept(ids[-1])).found == "accepted"

        assert len(first) == 3
        assert [await place.position(one) for one in ids] == list(range(1, 9))

    in_place(url, tmp_path, story)


def test_what_cannot_be_read_stays_holds_up_nobody_and_is_logged_once(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def story(place: Place) -> None:
        ids = [await place.submit() for _ in range(130)]
        for spoilt in ids[:120]:
            await place.spoil(spoilt)

        assert (await place.acceptor.accept(ids[-1])).found == "accepted"
        assert (await place.acceptor.accept(ids[0])).found == "unreadable"

        assert [await place.position(one) for one in ids[120:]] == list(range(1, 11))
        assert await place.redis.llen(waiting_key(PREFIX, "", "c")) == 120
        new = await place.submit()
        assert await place.acceptor.overdue(0, 5) == [new]
        assert await place.acceptor.overdue(60, 5) == []

    with caplog.at_level(logging.WARNING):
        in_place(url, tmp_path, story)
    assert [record.message for record in caplog.records].count("inbox_record_unreadable") == 120


def test_a_place_in_the_order_without_a_record_is_given_up(url: str, tmp_path: Path):
    async def story(place: Place) -> None:
        lost, there = await place.submit(), await place.submit()
        await place.redis.delete(record_key(PREFIX, lost))

        assert (await place.acceptor.accept(there)).found == "accepted"
        assert (await place.acceptor.accept(lost)).found == "missing"
        assert await place.redis.llen(waiting_key(PREFIX, "", "c")) == 0

    in_place(url, tmp_path, story)


def test_what_cannot_be_read_in_the_web_apps_outbox_stays_and_holds_up_nobody(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def story(place: Place) -> None:
        spoilt = [await place.enqueue("not JSON") for _ in range(25)]
        there = [await place.enqueue() for _ in range(3)]

        await place.acceptor.take_outbox(10)
        await place.acceptor.take_outbox(10)

        assert [await place.position(one) for one in there] == [1, 2, 3]
        assert [row.message_id for row in await place.store.outbox_rows(99)] == spoilt
        later = await place.enqueue()
        await place.acceptor.take_outbox(10)
        assert await place.position(later) == 4

    with caplog.at_level(logging.WARNING):
        in_place(url, tmp_path, story)
    assert [record.message for record in caplog.records].count("inbox_record_unreadable") == 25
