"""Runs programs with threads and blocking sockets: performs their operations, decides nothing."""

import threading
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar, assert_never

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from roundelay._core import redis_connections
from roundelay._core.bounded_calls import call_within
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
from roundelay.errors import RoundelayError
from roundelay.settings import Settings
from roundelay.updates import Update

T = TypeVar("T")


class SyncRunner:
    """The connections and readers of one process; a fork makes a new one."""

    def __init__(self, settings: Settings) -> None:
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
        self._sender = TaskSender(settings)
        self._stopped = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def run(self, program: Program[T]) -> T:
        """Run a program that emits nothing, and return its result."""
        reply = Reply()
        try:
            while True:
                reply = self._perform(advance(program, reply))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            program.close()

    def follow(self, program: Program[None]) -> Generator[Update, None, None]:
        """Run a program, yielding the updates that it emits."""
        reply = Reply()
        try:
            while True:
                op = advance(program, reply)
                if isinstance(op, Emit):
                    yield op.update
                    reply = Reply()
                else:
                    reply = self._perform(op)
        except StopIteration:
            return
        finally:
            program.close()

    def close(self) -> None:
        """Stop the readers and close every connection."""
        self._stopped.set()
        for reader in (self.subscriptions, self.cursors):
            reader.close()
            thread = self._threads.get(reader.name)
            if thread is not None and thread.is_alive():
                self._call_kindly(reader.wake())
                thread.join(redis_connections.WAKE_SECONDS)
        self._sender.close()
        self._calls.connection_pool.disconnect()
        self._reads.connection_pool.disconnect()

    def _perform(self, op: Operation) -> Reply:
        try:
            return Reply(self._act(op))
        except RoundelayError as error:
            return Reply(error=error)

    def _act(self, op: Operation) -> Any:
        match op:
            case Command():
                return op.result(self._call(op))
            case WaitFor(threading.Event() as signal, timeout):
                signal.wait(timeout)
            case WakeReader(reader):
                self._wake_reader(reader)
            case SendTask():
                self._send(op)
            case _:
                raise TypeError(op)
        return None

    def _call(self, command: Command[Any]) -> Any:
        return call_within(command.limit, lambda: self._call_now(command))

    def _call_now(self, command: Command[Any]) -> Any:
        try:
            try:
                return self._calls.execute_command(*command.command())
            except NoScriptError:
                return self._calls.execute_command(*command.command(by_text=True))
        except REDIS_ERRORS as error:
            raise translate(error) from error

    def _call_kindly(self, command: Command[None]) -> None:
        with suppress(RoundelayError):
            self._call(replace(command, limit=redis_connections.WAKE_SECONDS))

    def _send(self, op: SendTask) -> None:
        try:
            call_within(op.limit, lambda: self._sender.send(op.message_id))
        except Exception as error:  # noqa: BLE001 - whatever the broker says, the message is stored
            note_unsent(op.message_id, error)

    def _wake_reader(self, reader: Reader) -> None:
        if not reader.claim():
            self._call_kindly(reader.wake())
            return
        run = self._read_streams if reader is self.cursors else self._listen
        thread = threading.Thread(target=run, name=f"roundelay-{reader.name}", daemon=True)
        self._threads[reader.name] = thread
        thread.start()

    def _read_streams(self) -> None:
        try:
            _run_reader(reading(self.cursors), _StreamConnection(self._reads, self._stopped))
        except BaseException:  # one that comes to its end has retired by itself, and another may have begun
            self.cursors.retire()
            raise

    def _listen(self) -> None:
        pubsub = self._reads.pubsub()
        try:
            _run_reader(listening(self.subscriptions), _PubSubConnection(pubsub, self._stopped))
        except BaseException:  # as above
            self.subscriptions.retire()
            raise
        finally:
            with suppress(*REDIS_ERRORS):
                pubsub.close()


class _Connection(Protocol):
    def perform(self, op: Any) -> Any: ...


def _run_reader(program: Generator[Any, Any, None], port: _Connection) -> None:
    reply = Reply()
    with suppress(StopIteration):
        while True:
            op = advance(program, reply)
            try:
                reply = Reply(port.perform(op))
            except REDIS_ERRORS as error:
                reply = Reply(error=translate(error))


class _StreamConnection:
    """The connection that blocks in XREAD."""

    def __init__(self, client: Any, stopped: threading.Event) -> None:
        self._client, self._stopped = client, stopped

    def perform(self, op: Read | Pause) -> Any:
        match op:
            case Read():
                return self._client.execute_command(*op.words)
            case Pause(seconds):
                return self._stopped.wait(seconds) and None
            case _:
                assert_never(op)


class _PubSubConnection:
    """The connection that listens."""

    def __init__(self, pubsub: Any, stopped: threading.Event) -> None:
        self._pubsub, self._stopped = pubsub, stopped

    def perform(self, op: ListenOperation) -> Any:
        match op:
            case Subscribe(channels):
                self._pubsub.subscribe(*channels)
            case Unsubscribe(channels):
                self._pubsub.unsubscribe(*channels)
            case Ping():
                self._pubsub.ping()
            case Receive(timeout):
                return redis_connections.read_notice(self._pubsub.get_message(timeout=timeout))
            case Pause(seconds):
                self._pubsub.close()
                self._stopped.wait(seconds)
            case _:
                assert_never(op)
        return None
