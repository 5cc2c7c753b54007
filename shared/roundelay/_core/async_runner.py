"""Runs programs on an event loop: performs their operations, decides nothing."""

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

from roundelay._core import redis_connections
from roundelay._core.bounded_calls import start
from roundelay._core.follow import Read, StreamCursors, reading
from roundelay._core.operations import (
    Command,
    Emit,
    Operation,
    Program,
    Reader,
    Reply,
    SendTask,
    WaitFor,
    WakeReader,
    advance,
)
from roundelay._core.redis_connections import REDIS_ERRORS, translate
from roundelay._core.shared_reader import Pause
from roundelay._core.task_sender import TaskSender, note_unsent
from roundelay._core.wait import (
    ListenOperation,
    Ping,
    Receive,
    Subscribe,
    Subscriptions,
    Unsubscribe,
    listening,
)
from roundelay.errors import RoundelayError, Unreachable
from roundelay.settings import Settings
from roundelay.updates import Update

T = TypeVar("T")


class AsyncRunner:
    """The connections and readers of one event loop."""

    def __init__(self, settings: Settings, sender: TaskSender) -> None:
        url = redis_connections.without_our_options(settings.redis_url)
        twice, once = (
            Retry(NoBackoff(), redis_connections.SECOND_TRIES, redis_connections.RECONNECTING),
            Retry(NoBackoff(), 0),
        )
        calls = redis.BlockingConnectionPool.from_url(url, retry=twice, **redis_connections.call_options(url))
        reads = redis.ConnectionPool.from_url(url, retry=once, **redis_connections.read_options(url))
        self._calls: Any = redis_connections.raw(redis.Redis(connection_pool=calls))
        self._reads: Any = redis_connections.raw(redis.Redis(connection_pool=reads))
        self.subscriptions = Subscriptions(settings.prefix)
        self.cursors = StreamCursors(settings.prefix)
        self._sender = sender  # it knows no event loop, so it is shared and outlives this one
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, program: Program[T]) -> T:
        """Run a program that emits nothing, and return its result."""
        reply = Reply()
        try:
            while True:
                reply = await self._perform(advance(program, reply))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            program.close()

    async def follow(self, program: Program[None]) -> AsyncGenerator[Update, None]:
        """Run a program, yielding the updates that it emits."""
        reply = Reply()
        try:
            while True:
                op = advance(program, reply)
                if isinstance(op, Emit):
                    yield op.update
                    reply = Reply()
                else:
                    reply = await self._perform(op)
        except StopIteration:
            return
        finally:
            program.close()

    async def close(self) -> None:
        """Stop the readers and close every connection."""
        self.subscriptions.close()
        self.cursors.close()
        while self._tasks:  # more than once, for the same reason as in _call
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)
        await self._calls.aclose(close_connection_pool=True)
        await self._reads.aclose(close_connection_pool=True)

    async def _perform(self, op: Operation) -> Reply:
        try:
            return Reply(await self._act(op))
        except RoundelayError as error:
            return Reply(error=error)

    async def _act(self, op: Operation) -> Any:
        match op:
            case Command():
                return op.result(await self._call(op))
            case WaitFor(asyncio.Event() as signal, timeout):
                # Not asyncio.wait_for: before Python 3.12 it drops a cancellation that coincides with the signal.
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await signal.wait()
            case WakeReader(reader):
                await self._wake_reader(reader)
            case SendTask():
                await self._send(op)
            case _:
                raise TypeError(op)
        return None

    async def _call(self, command: Command[Any]) -> Any:
        # A task of its own, left behind when its time is over: redis-py may swallow a cancellation while it connects.
        call = self._spawn(self._call_now(command))
        try:
            done, _ = await asyncio.wait({call}, timeout=command.limit)
        finally:
            call.cancel()
        if not done:
            raise Unreachable("Redis did not answer in time")
        return call.result()

    async def _call_now(self, command: Command[Any]) -> Any:
        try:
            try:
                return await self._calls.execute_command(*command.command())
            except NoScriptError:
                return await self._calls.execute_command(*command.command(by_text=True))
        except REDIS_ERRORS as error:
            raise translate(error) from error

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the waiter re-raises it; without a waiter it is of no interest

    async def _send(self, op: SendTask) -> None:
        try:
            async with asyncio.timeout(op.limit):
                await _join(start(lambda: self._sender.send(op.message_id)))
        except Exception as error:  # noqa: BLE001 - whatever the broker says, the message is stored
            note_unsent(op.message_id, error)

    async def _wake_reader(self, reader: Reader) -> None:
        if not reader.claim():
            with suppress(RoundelayError):
                await self._call(replace(reader.wake(), limit=redis_connections.WAKE_SECONDS))
            return
        run = self._read_streams if reader is self.cursors else self._listen
        self._spawn(run())

    async def _read_streams(self) -> None:
        try:
            await _run_reader(reading(self.cursors), _StreamConnection(self._reads))
        except BaseException:  # one that comes to its end has retired by itself, and another may have begun
            self.cursors.retire()
            raise

    async def _listen(self) -> None:
        pubsub = self._reads.pubsub()
        try:
            await _run_reader(listening(self.subscriptions), _PubSubConnection(pubsub))
        except BaseException:  # as above
            self.subscriptions.retire()
            raise
        finally:
            with suppress(*REDIS_ERRORS):
                await pubsub.aclose()


async def _join(future: Future[T]) -> T:
    return await asyncio.wrap_future(future)


class _Connection(Protocol):
    async def perform(self, op: Any) -> Any: ...


async def _run_reader(program: Generator[Any, Any, None], port: _Connection) -> None:
    reply = Reply()
    with suppress(StopIteration):
        while True:
            op = advance(program, reply)
            try:
                reply = Reply(await port.perform(op))
            except REDIS_ERRORS as error:
                reply = Reply(error=translate(error))


class _StreamConnection:
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


class _PubSubConnection:
    """The connection that listens."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    async def perform(self, op: ListenOperation) -> Any:
        match op:
            case Subscribe(channels):
                await self._pubsub.subscribe(*channels)
            case Unsubscribe(channels):
                await self._pubsub.unsubscribe(*channels)
            case Ping():
                await self._pubsub.ping()
            case Receive(timeout):
                return redis_connections.read_notice(await self._pubsub.get_message(timeout=timeout))
            case Pause(seconds):
                await self._pubsub.aclose()
                await asyncio.sleep(seconds)
            case _:
                assert_never(op)
        return None
