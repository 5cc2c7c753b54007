"""The client of an async web app: the verbs of ``Client``, awaited."""

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack
from weakref import WeakKeyDictionary

from roundelay._core.programs import Programs
from roundelay._core.validation import Options
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
        self._runners: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, AsyncRunner]] = WeakKeyDictionary()

    @property
    def runner(self) -> "AsyncRunner":
        mine = self._runners.setdefault(asyncio.get_running_loop(), {})
        runner = mine.get(os.getpid())
        if runner is None:
            from roundelay._core.async_runner import AsyncRunner  # noqa: PLC0415 - see above

            runner = mine.setdefault(os.getpid(), AsyncRunner(self.programs.settings))
        return runner

    async def close(self) -> None:
        runner = self._runners.get(asyncio.get_running_loop(), {}).pop(os.getpid(), None)
        if runner is not None:
            await runner.close()


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
        receipt = await self._core.runner.run(self._core.programs.submit(text, options))
        return AsyncJob(self._core, receipt.message_id, receipt.conversation_id)

    def get(self, message_id: str) -> "AsyncJob":
        """Return the handle of a message, in any process; does no I/O, so an unknown id shows at the first use."""
        return AsyncJob(self._core, message_id)

    async def nudge(self, message_id: str) -> "AsyncJob":
        """Hurry a message enqueued in the web app's own transaction, now committed, as ``Client.nudge`` does."""
        await self._core.runner.run(self._core.programs.nudge(message_id))
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
        runner = self._core.runner
        return await runner.run(
            self._core.programs.wait(self.message_id, timeout, runner.subscriptions, asyncio.Event())
        )

    async def follow(self, after: int = 0, timeout: float | None = None) -> AsyncGenerator[Update, None]:  # noqa: ASYNC109
        """Return the updates after ``seq`` number ``after``, up to and with ``ended``, as ``Job.follow`` does."""
        runner = self._core.runner
        program = self._core.programs.follow(self.message_id, after, timeout, runner.cursors, asyncio.Event())
        async for update in runner.follow(program):
            yield update

    async def cancel(self) -> bool:
        """Ask for the message to be cancelled; False if it had ended."""
        return await self._core.runner.run(self._core.programs.cancel(self.message_id, asyncio.Event()))

    async def state(self) -> MessageState:
        """Return what is known of the message now."""
        return await self._core.runner.run(self._core.programs.state(self.message_id, asyncio.Event()))
