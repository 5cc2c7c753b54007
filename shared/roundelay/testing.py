"""A client in memory for the tests of web apps: no Redis, no worker, the same verbs and the same checks.

::

    client = MemoryClient(lambda submission: f"You said: {submission.text}")
    assert client.submit("Hello").wait().text == "You said: Hello"

A function that returns None leaves its message running, until ``client.finish(message_id, "Done.")`` or a
cancellation ends it. ``AsyncMemoryClient`` is the same, awaited.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, Unpack

from roundelay._core.deadline import not_found
from roundelay._core.follow import Tracker
from roundelay._core.redis_commands import Entry, StreamId
from roundelay._core.validation import Options, ValidatedSubmission, validate
from roundelay.errors import AnswerTimeout, IdempotencyConflict
from roundelay.messages import DEFAULT_MAX_MESSAGE_BYTES, Submission
from roundelay.updates import Answer, MessageState, Update

PROVISIONAL: Final = frozenset({"text_delta", "text_reset", "tool_progress"})
Reply = Callable[[Submission], str | Answer | None]


def echo(submission: Submission) -> str:
    """Answer with the message itself."""
    return submission.text


@dataclass(slots=True)
class _Record:
    submission: Submission
    digest: str
    submitted_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    answer: Answer | None = None
    entries: list[Entry] = field(default_factory=list)

    @property
    def tail(self) -> StreamId:
        """The place of the last update."""
        return self.entries[-1][0] if self.entries else (0, 0)

    def state(self) -> MessageState:
        return MessageState(
            message_id=self.submission.message_id,
            conversation_id=self.submission.conversation_id,
            user_id=self.submission.user_id,
            status=self.answer.status if self.answer else "running",
            submitted_at=self.submitted_at,
            seq=self.tail[0],
        )


class MemoryClient:
    """The verbs of ``Client`` over a function; ``submitted`` is what was submitted, in order."""

    def __init__(self, reply: Reply = echo, *, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        self._reply = reply
        self._max_message_bytes = max_message_bytes
        self._records: dict[str, _Record] = {}
        self._by_key: dict[tuple[str, str, str], str] = {}
        self._changed = threading.Condition()

    @property
    def submitted(self) -> list[Submission]:
        """What was submitted, in order."""
        return [record.submission for record in self._records.values()]

    def submit(self, text: str, **options: Unpack[Options]) -> "MemoryJob":
        """Check the message as ``Client.submit`` does, and have it answered at once."""
        parcel = validate(text, options, max_message_bytes=self._max_message_bytes)
        submission = parcel.submission
        with self._changed:
            first = self._first_under_key(parcel)
            if first is not None:
                return MemoryJob(self, first.message_id, first.conversation_id)
            self._records[submission.message_id] = _Record(submission, parcel.digest)
        self.report(submission.message_id, "accepted")
        self.report(submission.message_id, "started")
        reply = self._reply(submission)
        if reply is not None:
            self.finish(submission.message_id, reply)
        return MemoryJob(self, submission.message_id, submission.conversation_id)

    def get(self, message_id: str) -> "MemoryJob":
        """Return the handle of a message."""
        return MemoryJob(self, message_id)

    def nudge(self, message_id: str) -> "MemoryJob":
        """Return the handle of a message."""
        return MemoryJob(self, message_id)

    def report(self, message_id: str, kind: str, **fields: Any) -> None:
        """Add an update, as a worker does while it works; durable kinds get the next number."""
        with self._changed:
            record = self.record(message_id)
            seq, position = record.tail
            place = (seq, position + 1) if kind in PROVISIONAL else (seq + 1, 0)
            told = {"kind": kind, "at": datetime.now(UTC), "message_id": message_id, **fields}
            if kind not in PROVISIONAL:
                told["seq"] = place[0]
            record.entries.append((place, Update.model_validate(told).to_json().encode()))
            self._changed.notify_all()

    def finish(self, message_id: str, reply: str | Answer) -> None:
        """End a message, with a text or a whole answer; what was first stays."""
        with self._changed:
            record = self.record(message_id)
            if record.answer is not None:
                return
            record.answer = reply if isinstance(reply, Answer) else _answer(record.submission, reply)
            self.report(message_id, "ended", answer=record.answer)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def record(self, message_id: str) -> _Record:
        """Return what is kept of a message, or raise ``MessageNotFound``."""
        if message_id not in self._records:
            raise not_found()
        return self._records[message_id]

    def await_until(self, message_id: str, timeout: float | None, place: StreamId) -> _Record:
        """Return the record as soon as it has updates after ``place`` or an answer."""
        with self._changed:
            record = self.record(message_id)
            if not self._changed.wait_for(lambda: record.answer or record.tail > place, timeout):
                raise AnswerTimeout(f"no answer within {timeout:g} s; the message goes on", record.state())
            return record

    def _first_under_key(self, parcel: ValidatedSubmission) -> Submission | None:
        submission = parcel.submission
        if submission.idempotency_key is None:
            return None
        key = (submission.user_id, parcel.scope, submission.idempotency_key)
        first = self._by_key.setdefault(key, submission.message_id)
        if first == submission.message_id:
            return None
        if self._records[first].digest != parcel.digest:
            raise IdempotencyConflict("this idempotency_key was used before with another text or other options")
        return self._records[first].submission


def _answer(submission: Submission, text: str, status: Any = "answered") -> Answer:
    return Answer(
        message_id=submission.message_id,
        conversation_id=submission.conversation_id,
        user_id=submission.user_id,
        status=status,
        text=text,
        metadata=submission.metadata,
        started_at=datetime.now(UTC),
        finished_at=datetime.now(UTC),
    )


@dataclass(frozen=True, slots=True)
class MemoryJob:
    """The verbs of ``Job``."""

    _client: MemoryClient = field(repr=False)
    message_id: str
    conversation_id: str | None = None

    def wait(self, timeout: float | None = None) -> Answer:
        """Return the answer."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            record = self._client.record(self.message_id)
            if record.answer is not None:
                return record.answer
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._client.await_until(self.message_id, left, record.tail)

    def follow(self, after: int = 0, timeout: float | None = None) -> Generator[Update, None, None]:
        """Return the updates as they come, up to ``ended``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        tracker = Tracker(self.message_id, after)
        while not tracker.ended:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            record = self._client.await_until(self.message_id, left, tracker.cursor)
            yield from tracker.take(list(record.entries))
            if record.answer is not None and tracker.cursor >= record.tail and not tracker.ended:
                if after > record.tail[0]:  # a number beyond the end
                    yield tracker.end(record.answer, record.tail[0])
                return

    def cancel(self) -> bool:
        """End the message as cancelled; False if it had ended."""
        record = self._client.record(self.message_id)
        if record.answer is not None:
            return False
        self._client.finish(self.message_id, _answer(record.submission, "Cancelled.", "cancelled"))
        return True

    def state(self) -> MessageState:
        """Return what is known of the message."""
        return self._client.record(self.message_id).state()


class AsyncMemoryClient:
    """``MemoryClient``, awaited; ``memory`` is the client underneath, to ``report`` and ``finish`` with."""

    def __init__(self, reply: Reply = echo, *, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        self.memory = MemoryClient(reply, max_message_bytes=max_message_bytes)

    async def submit(self, text: str, **options: Unpack[Options]) -> "AsyncMemoryJob":
        """Check the message and have it answered at once."""
        return AsyncMemoryJob(self.memory.submit(text, **options))

    def get(self, message_id: str) -> "AsyncMemoryJob":
        """Return the handle of a message."""
        return AsyncMemoryJob(self.memory.get(message_id))

    async def nudge(self, message_id: str) -> "AsyncMemoryJob":
        """Return the handle of a message."""
        return AsyncMemoryJob(self.memory.nudge(message_id))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class AsyncMemoryJob:
    """The verbs of ``AsyncJob``."""

    _job: MemoryJob

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self._job.message_id

    @property
    def conversation_id(self) -> str | None:
        """The conversation's id, where it is known."""
        return self._job.conversation_id

    async def wait(self, timeout: float | None = None) -> Answer:  # noqa: ASYNC109 - as AsyncJob
        """Return the answer."""
        return await asyncio.to_thread(self._job.wait, timeout)

    async def follow(self, after: int = 0, timeout: float | None = None) -> AsyncGenerator[Update, None]:  # noqa: ASYNC109
        """Return the updates as they come, up to ``ended``."""
        updates = self._job.follow(after, timeout)
        while (update := await asyncio.to_thread(next, updates, None)) is not None:
            yield update

    async def cancel(self) -> bool:
        """End the message as cancelled; False if it had ended."""
        return self._job.cancel()

    async def state(self) -> MessageState:
        """Return what is known of the message."""
        return self._job.state()
