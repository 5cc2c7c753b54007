"""Performs what programs ask for on the event loop; decides nothing."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar, assert_never

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from roundelay import links
from roundelay.errors import RoundelayError, Unreachable
from roundelay.faults import FAULTS, translate
from roundelay.feeds import Board, Read, reading
from roundelay.hub import Pause
from roundelay.ops import Ask, Came, Hear, Op, Program, Reader, Rouse, Say, Send, advance
from roundelay.posting import Post, note_unsent
from roundelay.settings import Settings
from roundelay.tickets import Desk, ListenOp, Ping, Receive, Subscribe, Unsubscribe, listening
from roundelay.updates import Update
from roundelay.within import start

T = TypeVar("T")


class AsyncShell:
    """The connections and readers of one event loop."""

    def __init__(self, settings: Settings) -> None:
        url = links.own_url(settings.redis_url)
        twice, once = Retry(NoBackoff(), links.SECOND_TRIES), Retry(NoBackoff(), 0)
        calls = redis.BlockingConnectionPool.from_url(url, retry=twice, **links.call_options(url))
        reads = redis.ConnectionPool.from_url(url, retry=once, **links.read_options(url))
        self._calls: Any = links.raw(redis.Redis(connection_pool=calls))
        self._reads: Any = links.raw(redis.Redis(connection_pool=reads))
        self.desk = Desk(settings.prefix)
        self.board = Board(settings.prefix)
        self._post = Post(settings)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def drive(self, program: Program[T]) -> T:
        """Run a program that says nothing to its end."""
        came = Came()
        try:
            while True:
                came = await self._perform(advance(program, came))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            program.close()

    async def follow(self, program: Program[None]) -> AsyncGenerator[Update, None]:
        """Run a program, yielding what it says."""
        came = Came()
        try:
            while True:
                op = advance(program, came)
                if isinstance(op, Say):
                    yield op.update
                    came = Came()
                else:
                    came = await self._perform(op)
        except StopIteration:
            return
        finally:
            program.close()

    async def close(self) -> None:
        """Stop the readers and close every connection."""
        self.desk.close()
        self.board.close()
        while self._tasks:  # more than once, for the same reason as in _call
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)
        await _join(start(self._post.close))
        await self._calls.aclose(close_connection_pool=True)
        await self._reads.aclose(close_connection_pool=True)

    async def _perform(self, op: Op) -> Came:
        try:
            return Came(await self._act(op))
        except RoundelayError as error:
            return Came(error=error)

    async def _act(self, op: Op) -> Any:
        match op:
            case Ask():
                return op.read(await self._call(op))
            case Hear(asyncio.Event() as bell, timeout):
                # Not asyncio.wait_for: before Python 3.12 it drops a cancellation that comes with the bell.
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await bell.wait()
            case Rouse(reader):
                await self._rouse(reader)
            case Send():
                await self._send(op)
            case _:
                raise TypeError(op)
        return None

    async def _call(self, question: Ask[Any]) -> Any:
        # A task of its own, left behind when its time is over: redis-py may swallow a cancellation while it connects.
        call = self._spawn(self._call_now(question))
        try:
            done, _ = await asyncio.wait({call}, timeout=question.limit)
        finally:
            call.cancel()
        if not done:
            raise Unreachable("Redis did not answer in time")
        return call.result()

    async def _call_now(self, question: Ask[Any]) -> Any:
        try:
            try:
                return await self._calls.execute_command(*question.command())
            except NoScriptError:
                return await self._calls.execute_command(*question.command(by_text=True))
        except FAULTS as error:
            raise translate(error) from error

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it raises it; if nobody does any more, it is of no interest

    async def _send(self, op: Send) -> None:
        try:
            async with asyncio.timeout(op.limit):
                await _join(start(lambda: self._post.send(op.message_id)))
        except Exception as error:  # noqa: BLE001 - whatever the broker says, the message is stored
            note_unsent(op.message_id, error)

    async def _rouse(self, reader: Reader) -> None:
        if not reader.claim():
            with suppress(RoundelayError):
                await self._call(replace(reader.wake(), limit=links.WAKE_SECONDS))
            return
        run = self._read_streams if reader is self.board else self._listen
        self._spawn(run())

    async def _read_streams(self) -> None:
        try:
            await _run_reader(reading(self.board), _StreamPort(self._reads))
        except BaseException:  # one that comes to its end has retired by itself, and another may have begun
            self.board.retire()
            raise

    async def _listen(self) -> None:
        pubsub = self._reads.pubsub()
        try:
            await _run_reader(listening(self.desk), _ChannelPort(pubsub))
        except BaseException:  # as above
            self.desk.retire()
            raise
        finally:
            with suppress(*FAULTS):
                await pubsub.aclose()


async def _join(future: Future[T]) -> T:
    return await asyncio.wrap_future(future)


class _Port(Protocol):
    async def perform(self, op: Any) -> Any: ...


async def _run_reader(program: Generator[Any, Any, None], port: _Port) -> None:
    came = Came()
    with suppress(StopIteration):
        while True:
            op = advance(program, came)
            try:
                came = Came(await port.perform(op))
            except FAULTS as error:
                came = Came(error=translate(error))


class _StreamPort:
    """The connection that blocks in XREAD."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def perform(self, op: Read | Pause) -> Any:
        match op:
            case Read():
                return await self._client.execute_command(*op.words)
            case Pause(seconds):
                return await asyncio.sleep(seconds)
            case _:
                assert_never(op)


class _ChannelPort:
    """The connection that listens."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    async def perform(self, op: ListenOp) -> Any:
        match op:
            case Subscribe(channels):
                await self._pubsub.subscribe(*channels)
            case Unsubscribe(channels):
                await self._pubsub.unsubscribe(*channels)
            case Ping():
                await self._pubsub.ping()
            case Receive(timeout):
                return links.read_notice(await self._pubsub.get_message(timeout=timeout))
            case Pause(seconds):
                await self._pubsub.aclose()
                await asyncio.sleep(seconds)
            case _:
                assert_never(op)
        return None
