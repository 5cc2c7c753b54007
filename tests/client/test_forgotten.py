"""A Redis that was emptied and is not filled again: its messages are no unknown ones."""

import time

import pytest

from roundelay import MessageNotFound, ServiceUnavailable, names
from roundelay._core.deadline import FORGOTTEN_SECONDS, NOBODY_SECONDS, ForgottenCheck
from roundelay._core.redis_commands import Snapshot

pytestmark = pytest.mark.services


@pytest.fixture
def hinted(raw, prefix, in_thread):
    """Return what does a worker's work at the first hint to restore a message."""

    def at_hint(restore):
        control = raw.pubsub()
        control.subscribe(names.control_channel(prefix))
        control.get_message(timeout=5)

        def listen():
            with control:
                hint = control.get_message(timeout=10)
                assert hint["data"] == b"restore m"
                restore()

        return in_thread(listen)

    return at_hint


@pytest.mark.parametrize("filled", [None, "filling"])
def test_whoever_asks_for_a_forgotten_message_has_it_brought_back(client, worker, raw, prefix, hinted, filled):
    programs = {
        "wait": lambda job: job.wait(10).text,
        "follow": lambda job: [update.kind for update in job.follow(timeout=10)][-1],
        "state": lambda job: job.state().status,
        "cancel": lambda job: job.cancel(),
    }
    expected = {"wait": "hi", "follow": "ended", "state": "answered", "cancel": False}
    found = {}
    for name, verb in programs.items():
        raw.flushall()
        if filled:
            raw.set(names.filled_key(prefix), filled)
        job = client.get("m")
        restored = hinted(lambda job=job: worker.end(job, 1))
        found[name] = verb(job)
        restored.result()

    assert found == expected


def test_where_redis_is_empty_and_no_worker_listens_no_message_is_called_unknown(client):
    job = client.get("m")
    started_at = time.monotonic()

    for verb in (job.state, lambda: job.wait(30), lambda: list(job.follow())):
        with pytest.raises(ServiceUnavailable, match="no worker has filled it yet"):
            verb()

    assert 3 * NOBODY_SECONDS <= time.monotonic() - started_at < 3 * NOBODY_SECONDS + 5


def test_the_handle_that_submit_gave_is_not_told_either_that_its_message_is_unknown(client, raw):
    job = client.submit("one")
    raw.flushall()

    for verb in (job.state, job.cancel, lambda: job.wait(30), lambda: list(job.follow(timeout=30))):
        with pytest.raises(ServiceUnavailable, match="no worker has filled it yet"):
            verb()


def test_where_redis_holds_what_the_database_knows_an_unknown_id_is_unknown_at_once(client, worker):
    worker.fill()
    job = client.get("m")
    started_at = time.monotonic()

    for verb in (job.state, job.cancel, lambda: job.wait(30), lambda: list(job.follow())):
        with pytest.raises(MessageNotFound):
            verb()
    assert time.monotonic() - started_at < NOBODY_SECONDS + 2


def test_a_caller_who_does_not_wait_is_told_at_once(client):
    started_at = time.monotonic()

    with pytest.raises(ServiceUnavailable):
        client.get("m").wait(0)

    assert time.monotonic() - started_at < NOBODY_SECONDS


def test_the_doubt_ends_when_the_workers_that_listen_do_not_know_the_message_either():
    now = [0.0]
    forgotten = ForgottenCheck("p", "m", lambda: now[0])

    def lasts(look, listening=1):
        program = forgotten.lasts(look)
        try:
            hint = next(program)
            assert hint.words == ("PUBLISH", "p:control", "restore m")
            program.send(listening)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("it asks once")

    empty = Snapshot(is_filled=False)
    assert not lasts(Snapshot(is_filled=True))
    assert lasts(empty)
    now[0] = FORGOTTEN_SECONDS - 0.1
    assert lasts(empty)
    assert not lasts(empty, listening=0)
    now[0] = FORGOTTEN_SECONDS
    assert not lasts(empty)
