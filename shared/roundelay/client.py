"""The client of a sync web app: submit a message, wait for its answer or follow its progress, cancel it."""

import os
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack
from weakref import finalize

from roundelay._core.bounded_calls import call_within, start
from roundelay._core.programs import IMPORT_SECONDS, Programs
from roundelay._core.validation import Options
from roundelay.messages import DEFAULT_MAX_MESSAGE_BYTES
from roundelay.names import DEFAULT_PREFIX
from roundelay.settings import DEFAULT_ANSWER_TTL, Settings, broker_of, read_settings
from roundelay.updates import Answer, MessageState, Update

if TYPE_CHECKING:  # redis takes as long to import as all the rest; nothing is connected before the first verb
    from roundelay._core.sync_runner import SyncRunner


class _SharedParts:
    """What a client and its handles share: the programs, and one runner per process."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        # Those of a parent process are kept and never used: closing them here could disturb it there.
        self._runners: dict[int, SyncRunner] = {}
        # A client that is dropped without close lets go of its sockets and readers.
        finalize(self, _let_go, self._runners).atexit = False

    @property
    def runner(self) -> "SyncRunner":
        runner = self._runners.get(os.getpid())
        if runner is None:
            module = call_within(IMPORT_SECONDS, partial(import_module, "roundelay._core.sync_runner"))
            runner = self._runners.setdefault(os.getpid(), module.SyncRunner(self.programs.settings))
        return runner

    def close(self) -> None:
        runner = self._runners.pop(os.getpid(), None)
        if runner is not None:
            runner.close()


def _let_go(runners: "dict[int, SyncRunner]") -> None:
    runner = runners.pop(os.getpid(), None)
    if runner is not None:
        start(runner.close)


class Client:
    """The way into Roundelay; thread- and fork-safe, a context manager, connects at its first use.

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
        """Return a client for ``ROUNDELAY_REDIS_URL`` and its like, or for what ``roundelay up`` runs on this machine.

        Raises:
            NotConfigured: no Redis is known, or a setting cannot be read.
        """
        found = read_settings(os.environ)
        return cls(
            found.redis_url,
            found.broker_url,
            found.prefix,
            max_message_bytes=found.max_message_bytes,
            answer_ttl=found.answer_ttl,
        )

    def submit(self, text: str, **options: Unpack[Options]) -> "Job":
        """Store the message and its options, send its task, and return its handle: within 5 seconds, or not at all.

        Raises:
            InvalidSubmission: something cannot be accepted; all faults are named.
            IdempotencyConflict: the key was used before with another text or other options.
            ServiceUnavailable: Redis did not answer, or refuses.
        """
        programs = self._core.programs
        program = programs.submit(text, options, started_at=programs.clock())
        receipt = self._core.runner.run(program)
        return Job(self._core, receipt.message_id, receipt.conversation_id)

    def get(self, message_id: str) -> "Job":
        """Return the handle of a message, in any process; does no I/O, so an unknown id shows at the first use."""
        return Job(self._core, message_id)

    def nudge(self, message_id: str) -> "Job":
        """Send the task of a message enqueued in the web app's own transaction, after the commit; return its handle."""
        self._core.runner.run(self._core.programs.nudge(message_id))
        return Job(self._core, message_id)

    def close(self) -> None:
        """Close all connections and stop all readers of this process; a later use opens new ones."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Job:
    """The handle of one message. ``conversation_id`` is None where only the message's id was known."""

    _core: "_SharedParts" = field(repr=False)
    message_id: str
    conversation_id: str | None = None

    def wait(self, timeout: float | None = None) -> Answer:
        """Return the answer, whatever its status, as soon as it is there; None waits without end.

        Raises:
            AnswerTimeout: it is not there after ``timeout`` seconds; the message goes on.
            MessageNotFound: the id is unknown, or its records have expired.
            ServiceUnavailable: Redis refuses, or was away all the time.
        """
        runner = self._core.runner
        return runner.run(self._core.programs.wait(self.message_id, timeout, runner.subscriptions, threading.Event()))

    def follow(self, after: int = 0, timeout: float | None = None) -> Generator[Update, None, None]:
        """Return the updates after ``seq`` number ``after``, as they come, up to and with ``ended``.

        Every durable update comes once and in order; where some are lost for good, one of kind ``gap`` says which.
        After the number of ``ended`` itself nothing comes; after a number beyond it, ``ended`` comes once more.
        Raises as ``wait`` does; ``timeout`` counts for the whole.
        """
        runner = self._core.runner
        program = self._core.programs.follow(self.message_id, after, timeout, runner.cursors, threading.Event())
        return self._updates(runner.follow(program))

    def _updates(self, updates: Generator[Update, None, None]) -> Generator[Update, None, None]:
        yield from updates  # here, so that the client lives as long as its updates are read

    def cancel(self) -> bool:
        """Ask for the message to be cancelled; False if it had ended.

        Raises:
            MessageNotFound: the id is unknown, or its records have expired.
        """
        return self._core.runner.run(self._core.programs.cancel(self.message_id, threading.Event()))

    def state(self) -> MessageState:
        """Return what is known of the message now.

        Raises:
            MessageNotFound: the id is unknown, or its records have expired.
        """
        return self._core.runner.run(self._core.programs.state(self.message_id, threading.Event()))
