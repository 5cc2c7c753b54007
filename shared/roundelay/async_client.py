"""The client of an async web app: the verbs of ``Client``, awaited."""

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack
from weakref import WeakKeyDictionary

from roundelay.composing import Options
from roundelay.messages import DEFAULT_MAX_MESSAGE_BYTES
from roundelay.names import DEFAULT_PREFIX
from roundelay.settings import DEFAULT_ANSWER_TTL, Settings, broker_of, read_settings
from roundelay.updates import Answer, MessageState, Update
from roundelay.verbs import Verbs

if TYPE_CHECKING:  # redis takes as long to import as all the rest; nothing is connected before the first verb
    from roundelay.async_shell import AsyncShell


class _AsyncCore:
    """What a client and its handles share: the verbs, and one shell per process and event loop."""

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs
        self._shells: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, AsyncShell]] = WeakKeyDictionary()

    @property
    def shell(self) -> "AsyncShell":
        mine = self._shells.setdefault(asyncio.get_running_loop(), {})
        shell = mine.get(os.getpid())
        if shell is None:
            from roundelay.async_shell import AsyncShell  # noqa: PLC0415 - see above

            shell = mine.setdefault(os.getpid(), AsyncShell(self.verbs.settings))
        return shell

    async def close(self) -> None:
        shell = self._shells.get(asyncio.get_running_loop(), {}).pop(os.getpid(), None)
        if shell is not None:
            await shell.close()


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
        self._core = _AsyncCore(
            Verbs(Settings(redis_url, broker_url or broker_of(redis_url), prefix, max_message_bytes, answer_ttl))
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
        accepted = await self._core.shell.drive(self._core.verbs.submit(text, options))
        return AsyncJob(self._core, accepted.message_id, accepted.conversation_id)

    def get(self, message_id: str) -> "AsyncJob":
        """Return the handle of a message, in any process; does no I/O, so an unknown id shows at the first use."""
        return AsyncJob(self._core, message_id)

    async def nudge(self, message_id: str) -> "AsyncJob":
        """Hurry a message enqueued in the web app's own transaction, now committed, as ``Client.nudge`` does."""
        await self._core.shell.drive(self._core.verbs.nudge(message_id))
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

    _core: _AsyncCore = field(repr=False)
    message_id: str
    conversation_id: str | None = None

    async def wait(self, timeout: float | None = None) -> Answer:  # noqa: ASYNC109 - the timeout has its own error
        """Return the answer, whatever its status; raises as ``Job.wait`` does."""
        shell = self._core.shell
        return await shell.drive(self._core.verbs.wait(self.message_id, timeout, shell.desk, asyncio.Event()))

    async def follow(self, after: int = 0, timeout: float | None = None) -> AsyncGenerator[Update, None]:  # noqa: ASYNC109
        """Return the updates after ``seq`` number ``after``, up to and with ``ended``, as ``Job.follow`` does."""
        shell = self._core.shell
        program = self._core.verbs.follow(self.message_id, after, timeout, shell.board, asyncio.Event())
        async for update in shell.follow(program):
            yield update

    async def cancel(self) -> bool:
        """Ask for the message to be cancelled; False if it had ended."""
        return await self._core.shell.drive(self._core.verbs.cancel(self.message_id, asyncio.Event()))

    async def state(self) -> MessageState:
        """Return what is known of the message now."""
        return await self._core.shell.drive(self._core.verbs.state(self.message_id, asyncio.Event()))
