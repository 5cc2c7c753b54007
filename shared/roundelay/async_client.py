"""The client of an async web app: the verbs of ``Client``, awaited."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack
from weakref import finalize

from roundelay._core.bounded_calls import start
from roundelay._core.programs import IMPORT_SECONDS, Programs
from roundelay._core.task_sender import TaskSender
from roundelay._core.validation import Options
from roundelay.errors import Unreachable
from roundelay.messages import DEFAULT_MAX_MESSAGE_BYTES
from roundelay.names import DEFAULT_PREFIX
from roundelay.settings import DEFAULT_ANSWER_TTL, Settings, broker_of, read_settings
from roundelay.updates import Answer, MessageState, Update

if TYPE_CHECKING:  # redis takes as long to import as all the rest; nothing is connected before the first verb
    from roundelay._core.async_runner import AsyncRunner


class _SharedParts:
    """What a client and its handles share: the programs, and one runner per process and event loop."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._uses: list[_Use] = []
        self._senders: dict[int, TaskSender] = {}
        # A client that is dropped without close lets go of its sockets and readers.
        finalize(self, _let_go, self._uses, self._senders).atexit = False

    async def runner(self) -> "AsyncRunner":
        use = self._use()
        if use is None:
            importing = start(partial(import_module, "roundelay._core.async_runner"))
            try:
                async with asyncio.timeout(IMPORT_SECONDS):
                    module = await asyncio.wrap_future(importing)
            except TimeoutError:
                raise Unreachable("what the first call needs is still being imported") from None
            sender = self._senders.setdefault(os.getpid(), TaskSender(self.programs.settings))
            use = self._use() or await self._begin(module.AsyncRunner(self.programs.settings, sender))
        return use.runner

    async def close(self) -> None:
        use = self._use()
        if use is not None:
            await use.guard.aclose()
        if not any(use.process == os.getpid() for use in self._uses):
            sender = self._senders.pop(os.getpid(), None)
            if sender is not None:
                await asyncio.wrap_future(start(sender.close))

    def _use(self) -> "_Use | None":
        loop, process = asyncio.get_running_loop(), os.getpid()
        for use in [use for use in self._uses if use.loop.is_closed()]:  # closed without shutting its generators down
            self._uses.remove(use)
        return next((use for use in self._uses if use.loop is loop and use.process == process), None)

    async def _begin(self, runner: "AsyncRunner") -> "_Use":
        use = _Use(asyncio.get_running_loop(), os.getpid(), runner, _closing(runner, self._uses))
        self._uses.append(use)
        await anext(use.guard)
        return use


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """What a client has open in one event loop of one process."""

    loop: asyncio.AbstractEventLoop
    process: int
    runner: "AsyncRunner"
    guard: AsyncGenerator[None, None]


async def _closing(runner: "AsyncRunner", uses: list[_Use]) -> AsyncGenerator[None, None]:
    """Close the runner when the loop shuts its generators down, as ``asyncio.run`` and ``async_to_sync`` do."""
    try:
        yield
    finally:
        uses[:] = [use for use in uses if use.runner is not runner]
        await runner.close()


def _let_go(uses: list[_Use], senders: dict[int, TaskSender]) -> None:
    sender = senders.pop(os.getpid(), None)
    if sender is not None:
        start(sender.close)
    for use in uses:
        if use.process == os.getpid() and not use.loop.is_closed():
            with suppress(RuntimeError):  # it is being closed at this moment
                use.loop.call_soon_threadsafe(_close_later, use)


def _close_later(use: _Use) -> None:
    task = use.loop.create_task(_close(use))
    _closings.add(task)
    task.add_done_callback(_closings.discard)


async def _close(use: _Use) -> None:
    await use.guard.aclose()


_closings: set[asyncio.Task[None]] = set()


class AsyncClient:
    """The way into Roundelay for async code; connects at its first use, per event loop; an async context manager.

    ``broker_url`` is Redis unless another broker is named. ``answer_ttl`` is in seconds and should be the worker's.
    """

    def __init__(
        self,
        redis_url: str,
        broker_url: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        *,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        answer_ttl: int = DEFAULT_ANSWER_TTL,
    ) -> None:
        self._core = _SharedParts(
            Programs(Settings(redis_url, broker_url or broker_of(redis_url), prefix, max_message_bytes, answer_ttl))
        )

    @classmethod
    def from_env(cls) -> Self:
        """Return a client as ``Client.from_env`` does."""
        found = read_settings(os.environ)
        return cls(
            found.redis_url,
            found.broker_url,
            found.prefix,
            max_message_bytes=found.max_message_bytes,
            answer_ttl=found.answer_ttl,
        )

    async def submit(self, text: str, **options: Unpack[Options]) -> "AsyncJob":
        """Store the message, send its task, and return its handle, as ``Client.submit`` does."""
        programs = self._core.programs
        program = programs.submit(text, options, started_at=programs.clock())
        receipt = await (await self._core.runner()).run(program)
        return AsyncJob(self._core, receipt.message_id, receipt.conversation_id)

    def get(self, message_id: str) -> "AsyncJob":
        """Return the handle of a message, in any process; does no I/O, so an unknown id shows at the first use."""
        return AsyncJob(self._core, message_id)

    async def nudge(self, message_id: str) -> "AsyncJob":
        """Hurry a message enqueued in the web app's own transaction, now committed, as ``Client.nudge`` does."""
        await (await self._core.runner()).run(self._core.programs.nudge(message_id))
        return AsyncJob(self._core, message_id)

    async def close(self) -> None:
        """Close all connections and stop all readers of this event loop; a later use opens new ones."""
        await self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class AsyncJob:
    """The handle of one message. ``conversation_id`` is None where only the message's id was known."""

    _core: _SharedParts = field(repr=False)
    message_id: str
    conversation_id: str | None = None

    async def wait(self, timeout: float | None = None) -> Answer:  # noqa: ASYNC109 - the timeout has its own error
        """Return the answer, whatever its status; raises as ``Job.wait`` does."""
        runner = await self._core.runner()
        return await runner.run(
            self._core.programs.wait(self.message_id, timeout, runner.subscriptions, asyncio.Event())
        )

    async def follow(self, after: int = 0, timeout: float | None = None) -> AsyncGenerator[Update, None]:  # noqa: ASYNC109
        """Return the updates after ``seq`` number ``after``, up to and with ``ended``, as ``Job.follow`` does."""
        runner = await self._core.runner()
        program = self._core.programs.follow(self.message_id, after, timeout, runner.cursors, asyncio.Event())
        async for update in runner.follow(program):
            yield update

    async def cancel(self) -> bool:
        """Ask for the message to be cancelled; False if it had ended."""
        return await (await self._core.runner()).run(self._core.programs.cancel(self.message_id, asyncio.Event()))

    async def state(self) -> MessageState:
        """Return what is known of the message now."""
        return await (await self._core.runner()).run(self._core.programs.state(self.message_id, asyncio.Event()))
