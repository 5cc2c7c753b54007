"""The client in memory: what web apps test against behaves as the real one does, as far as it goes."""

import asyncio
import threading

import pytest

from roundelay import (
    Answer,
    AnswerTimeout,
    AsyncClient,
    Client,
    IdempotencyConflict,
    InvalidSubmission,
    MessageNotFound,
)
from roundelay.testing import AsyncMemoryClient, MemoryClient

pytestmark = pytest.mark.services


def by_text(submission):
    return None if submission.text == "never" else f"re: {submission.text}"


@pytest.fixture(params=["real", "real async", "memory", "memory async"])
def client(request, url, prefix, worker, awaited):
    """Return clients whose messages are answered ``re: …``, except ``never``."""
    match request.param:
        case "memory":
            yield MemoryClient(by_text)
        case "memory async":
            yield awaited(AsyncMemoryClient(by_text))
        case kind:
            worker.fill()
            real = Client(url, prefix=prefix) if kind == "real" else awaited(AsyncClient(url, prefix=prefix))
            yield Answering(real, worker)
            real.close()


class Answering:
    """A real client beside a worker that answers at once."""

    def __init__(self, client, worker):
        self._client, self._worker = client, worker
        self._seen = set()
        self.get = client.get

    def submit(self, text, **options):
        job = self._client.submit(text, **options)
        if text != "never" and job.message_id not in self._seen:
            self._worker.update(job, 1, "accepted")
            self._worker.update(job, 2, "started")
            self._worker.end(job, 3, f"re: {text}")
        self._seen.add(job.message_id)
        return job


def test_an_answer_comes(client):
    job = client.submit("hello", conversation_id="c1")

    assert job.wait(5).text == "re: hello"
    assert client.get(job.message_id).state().status == "answered"
    assert job.cancel() is False


def test_updates_are_numbered_and_end(client):
    job = client.submit("hello")

    assert [(update.seq, update.kind) for update in job.follow()] == [(1, "accepted"), (2, "started"), (3, "ended")]
    assert [update.seq for update in job.follow(after=2)] == [3]
    assert [update.seq for update in job.follow(after=3)] == []
    assert [update.seq for update in job.follow(after=9)] == [3]


def test_what_does_not_end_times_out_and_can_be_cancelled(client):
    job = client.submit("never", conversation_id="c1")

    with pytest.raises(AnswerTimeout) as caught:
        job.wait(0.05)
    assert caught.value.state.conversation_id == "c1"
    assert job.cancel() is True


def test_faults_unknown_ids_and_keys_are_treated_alike(client):
    with pytest.raises(InvalidSubmission, match="text: the message is empty"):
        client.submit(" ")
    with pytest.raises(MessageNotFound):
        client.get("nobody").wait(1)
    first = client.submit("hello", idempotency_key="k")
    assert client.submit("hello", idempotency_key="k").message_id == first.message_id
    with pytest.raises(IdempotencyConflict):
        client.submit("other", idempotency_key="k")


def test_a_message_in_memory_can_be_ended_by_hand_while_someone_follows():
    client = MemoryClient(lambda _: None)
    job = client.submit("hello", metadata={"a": 1})
    threading.Timer(0.05, lambda: (client.report(job.message_id, "turn_started", turn=1), _finish(client, job))).start()

    updates = list(job.follow(timeout=5))

    assert [update.kind for update in updates] == ["accepted", "started", "turn_started", "ended"]
    assert job.wait(0).metadata == {"a": 1}
    client.finish(job.message_id, "too late")
    assert job.wait(0).text == "done"
    assert [submission.text for submission in client.submitted] == ["hello"]


def _finish(client, job):
    client.finish(job.message_id, "done")


def test_the_function_may_give_a_whole_answer_and_cancelling_ends_a_running_one():
    def failed(submission):
        return Answer.model_validate(
            {
                "message_id": submission.message_id,
                "conversation_id": submission.conversation_id,
                "status": "failed",
                "text": "sorry",
                "finished_at": "2026-01-01T00:00:00Z",
            }
        )

    with MemoryClient(failed) as client:
        assert client.submit("hello").wait().status == "failed"
    client = MemoryClient(lambda _: None)
    job = client.submit("hello")
    assert job.cancel() is True
    assert job.wait(0).status == "cancelled"


def test_the_async_one_works_in_a_plain_loop():
    async def scenario():
        async with AsyncMemoryClient() as client:
            job = await client.submit("hello")
            return (await job.wait()).text, [update.kind async for update in job.follow()], (await job.state()).status

    assert asyncio.run(scenario()) == ("hello", ["accepted", "started", "ended"], "answered")
