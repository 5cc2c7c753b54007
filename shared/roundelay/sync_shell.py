"""Performs what programs ask for with threads and blocking sockets; decides nothing."""

import threading
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar, assert_never

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from roundelay import links
from roundelay.errors import RoundelayError
from roundelay.faults import FAULTS, translate
from roundelay.feeds import Board, Read, reading
from roundelay.hub import Pause
from roundelay.ops import Ask, Came, Hear, Op, Program, Reader, Rouse, Say, Send, advance
from roundelay.posting import Post, note_unsent
from roundelay.settings import Settings
from roundelay.tickets import Desk, ListenOp, Ping, Receive, Subscribe, Unsubscribe, listening
from roundelay.updates import Update
from roundelay.within import within

T = TypeVar("T")


class SyncShell:
    """The connections and readers of one process; a fork makes a new one."""

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
        self._stopped = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def drive(self, program: Program[T]) -> T:
        """Run a program that says nothing to its end."""
        came = Came()
        try:
            while True:
                came = self._perform(advance(program, came))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            program.close()

    def follow(self, program: Program[None]) -> Generator[Update, None, None]:
        """Run a program, yielding what it says."""
        came = Came()
        try:
            while True:
                op = advance(program, came)
                if isinstance(op, Say):
                    yield op.update
                    came = Came()
                else:
                    came = self._perform(op)
        except StopIteration:
            return
        finally:
            program.close()

    def close(self) -> None:
        """Stop the readers and close every connection."""
        self._stopped.set()
        for hub in (self.desk, self.board):
            hub.close()
            thread = self._threads.get(hub.name)
            if thread is not None and thread.is_alive():
                self._call_kindly(hub.wake())
                thread.join(links.WAKE_SECONDS)
        self._post.close()
        self._calls.connection_pool.disconnect()
        self._reads.connection_pool.disconnect()

    def _perform(self, op: Op) -> Came:
        try:
            return Came(self._act(op))
        except RoundelayError as error:
            return Came(error=error)

    def _act(self, op: Op) -> Any:
        match op:
            case Ask():
                return op.read(self._call(op))
            case Hear(threading.Event() as bell, timeout):
                bell.wait(timeout)
            case Rouse(reader):
                self._rouse(reader)
            case Send():
                self._send(op)
            case _:
                raise TypeError(op)
        return None

    def _call(self, question: Ask[Any]) -> Any:
        return within(question.limit, lambda: self._call_now(question))

    def _call_now(self, question: Ask[Any]) -> Any:
        try:
            try:
                return self._calls.execute_command(*question.command())
            except NoScriptError:
                return self._calls.execute_command(*question.command(by_text=True))
        except FAULTS as error:
            raise translate(error) from error

    def _call_kindly(self, question: Ask[None]) -> None:
        with suppress(RoundelayError):
            self._call(replace(question, limit=links.WAKE_SECONDS))

    def _send(self, op: Send) -> None:
        try:
            within(op.limit, lambda: self._post.send(op.message_id))
        except Exception as error:  # noqa: BLE001 - whatever the broker says, the message is stored
            note_unsent(op.message_id, error)

    def _rouse(self, reader: Reader) -> None:
        if not reader.claim():
            self._call_kindly(reader.wake())
            return
        run = self._read_streams if reader is self.board else self._listen
        thread = threading.Thread(target=run, name=f"roundelay-{reader.name}", daemon=True)
        self._threads[reader.name] = thread
        thread.start()

    def _read_streams(self) -> None:
        try:
            _run_reader(reading(self.board), _StreamPort(self._reads, self._stopped))
        except BaseException:  # one that comes to its end has retired by itself, and another may have begun
            self.board.retire()
            raise

    def _listen(self) -> None:
        pubsub = self._reads.pubsub()
        try:
            _run_reader(listening(self.desk), _ChannelPort(pubsub, self._stopped))
        except BaseException:  # as above
            self.desk.retire()
            raise
        finally:
            with suppress(*FAULTS):
                pubsub.close()


class _Port(Protocol):
    def perform(self, op: Any) -> Any: ...


def _run_reader(program: Generator[Any, Any, None], port: _Port) -> None:
    came = Came()
    with suppress(StopIteration):
        while True:
            op = advance(program, came)
            try:
                came = Came(port.perform(op))
            except FAULTS as error:
                came = Came(error=translate(error))


class _StreamPort:
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


class _ChannelPort:
    """The connection that listens."""

    def __init__(self, pubsub: Any, stopped: threading.Event) -> None:
        self._pubsub, self._stopped = pubsub, stopped

    def perform(self, op: ListenOp) -> Any:
        match op:
            case Subscribe(channels):
                self._pubsub.subscribe(*channels)
            case Unsubscribe(channels):
                self._pubsub.unsubscribe(*channels)
            case Ping():
                self._pubsub.ping()
            case Receive(timeout):
                return links.read_notice(self._pubsub.get_message(timeout=timeout))
            case Pause(seconds):
                self._pubsub.close()
                self._stopped.wait(seconds)
            case _:
                assert_never(op)
        return None
