"""What comes in by Redis and the database is data: one item that is none of ours holds up nobody else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import Any

import pytest
from celery import Celery
from harness.services import postgres_rows
from harness.words import call

from roundelay.names import (
    cancels_key,
    control_channel,
    inbox_key,
    messages_queue,
    record_key,
    rounds_queue,
    state_key,
    updates_key,
)
from roundelay_worker.embedded.valkey import running_valkey

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

WARM = count()
ITEMS: tuple[bytes, ...] = (
    b"",
    b"[]",
    b"{}",
    b"null",
    b"7",
    b'"x"',
    b"\xff\xfe",
    b"{",
    b'{"body": "x"}',
    b'{"properties": {}}',
    b'{"properties": []}',
    b'{"properties": {"delivery_tag": "t", "body_encoding": "base64"}, "body": "%%%"}',
    b'{"properties": {"delivery_tag": "t", "body_encoding": "rot13"}, "body": "x"}',
    b'{"properties": {"delivery_tag": "t", "delivery_info": 3}, "headers": null, "body": "x"}',
    b'{"properties": {"delivery_tag": "t"}, "headers": {"task": 3}, "body": "x"}',
    b'{"properties": {"delivery_tag": "t"}, "headers": {"task": "roundelay.round", "id": null}, "body": "W10="}',
    json.dumps([["x"] * 10] * 10).encode(),
)


def raw(place: Any) -> Any:
    place.redis.close()
    return type(place.redis).from_url(place.redis_url)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_items_of_a_queue_that_are_no_tasks_are_left_out_and_the_worker_stays(deploy, database):
    place = deploy(database)
    worker = place.start()
    queues = [messages_queue(place.prefix), rounds_queue(place.prefix)]
    for item in ITEMS:
        for queue in queues:
            raw(place).lpush(queue, item)

    answers = place.settled(*(place.ask({"text": "told"}, name=f"items-{n}") for n in range(5)), patience=10)

    assert [answer.text for answer in answers] == ["told"] * 5
    assert worker.code is None
    place.eventually(lambda: not any(raw(place).llen(queue) for queue in queues), "the queues are empty")


def test_hints_that_are_none_end_no_worker(deploy):
    place = deploy("sqlite")
    worker = place.start()
    for hint in (b"\xff\xfe\xfd", b"cancel \xff", b"", b"cancel", b"cancel a b", b"restore \x00", b"x" * 100_000):
        raw(place).publish(control_channel(place.prefix), hint)
    running = place.ask(call("look", tag="hints", seconds=20), {"text": "no"}, name="hints")
    place.began("hints")

    assert running.cancel()

    assert place.settled(running)[0].status == "cancelled"
    assert worker.code is None


def test_a_stranger_in_the_inbox_or_among_cancellations_holds_up_nobody(deploy):
    place = deploy("sqlite")
    strangers = raw(place)
    for key in (inbox_key(place.prefix), cancels_key(place.prefix)):
        strangers.zadd(key, {b"\xff\xfe": 1.0, b"": 2.0, b"a b": 3.0, "x" * 500: 4.0})
    strangers.zadd(inbox_key(place.prefix), {"wrong-type": 1.5})
    strangers.sadd(record_key(place.prefix, "wrong-type"), "x")
    strangers.sadd(state_key(place.prefix, "wrong-type"), "x")
    lost = [place.ask({"text": "told"}, name=f"lost-{n}") for n in range(3)]
    cancelled = place.ask({"text": "no"}, name="lost-cancelled")
    cancelled.cancel()
    strangers.delete(messages_queue(place.prefix))  # their tasks are lost; only the sweeps find them
    place.start()

    answers = place.settled(*lost, cancelled, patience=12)

    assert [answer.status for answer in answers] == ["answered"] * 3 + ["cancelled"]


def test_a_key_of_another_type_holds_up_only_its_own_message(deploy):
    place = deploy("sqlite")
    place.start()
    broken = place.ask(call("look", tag="type", seconds=1), {"text": "told"}, name="type-broken")
    place.began("type")
    key = updates_key(place.prefix, broken.message_id)
    raw(place).delete(key)
    raw(place).set(key, "x")

    answers = place.settled(*(place.ask({"text": "told"}, name=f"type-{n}") for n in range(3)))

    assert [answer.text for answer in answers] == ["told"] * 3
    place.eventually(lambda: place.show(broken.message_id).status == "answered", "it ends in the database")


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_message_whose_state_cannot_be_read_ends_and_the_others_go_on(deploy, database):
    place = deploy(database, ROUNDELAY_MESSAGE_TIMEOUT="600")
    first = place.start()
    broken = place.ask(call("look", tag="state", seconds=30), {"text": "no"}, name="state-broken")
    place.began("state")
    first.kill()
    _set(place, "head = '{\"broken\"'", broken.message_id)
    place.start()

    answers = place.settled(broken, *(place.ask({"text": "told"}, name=f"state-{n}") for n in range(3)))

    assert (answers[0].status, answers[0].error.code) == ("failed", "internal_error")
    assert [answer.text for answer in answers[1:]] == ["told"] * 3


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("owner", ["'nobody-knows-me'", "NULL"])
def test_a_running_row_that_nobody_owns_is_taken_over(deploy, database, owner):
    place = deploy(database)
    first = place.start()
    job = place.ask(call("look", tag="orphan", seconds=30), {"text": "told"}, name="orphan")
    place.began("orphan")
    first.kill()
    _set(place, f"owner = {owner}, claimed_at = claimed_at - 60", job.message_id)
    place.start()

    assert place.settled(job, patience=45)[0].status == "answered"


def _set(place: Any, change: str, message_id: str) -> None:
    statement = f"UPDATE roundelay_messages SET {change} WHERE id = '{message_id}'"
    url = place.env["ROUNDELAY_DATABASE_URL"]
    if url.startswith("sqlite"):
        import sqlite3  # noqa: PLC0415

        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20) as connection:
            connection.execute(statement)
        connection.close()
    else:
        postgres_rows(url, statement)


def test_a_broker_that_fails_over_costs_seconds_and_no_restart(deploy, folder):
    """What a failover answers: READONLY from a server that became a replica, UNBLOCKED to who waited in it."""
    with running_valkey(folder / "valkey-failover") as url:
        place = deploy("sqlite", redis_url=url)
        worker = place.start()
        assert place.settled(place.ask({"text": "told"}, name="before"))[0].text == "told"
        place.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        place.eventually(lambda: "broker_refuses" in worker.said, "the consumer is refused")
        place.redis.execute_command("REPLICAOF", "NO", "ONE")

        answer = place.settled(place.ask({"text": "told"}, name="after"), patience=8)[0]

        assert answer.text == "told"
        assert worker.code is None


def test_what_became_of_a_message_is_the_state_of_its_task(deploy):
    """As Flower is told: FAILURE with its code, REVOKED, RETRY, and a record without a word of content."""
    place = deploy("sqlite", ROUNDELAY_MODEL_ATTEMPTS="2")
    with watched(place) as seen:
        place.worker(words=("-E",)).ready()
        place.eventually(lambda: place.settled(place.ask({"text": "hi"}, name=f"warm-{next(WARM)}")) and seen, "events")
        told = place.ask({"text": "secret words"}, name="events-told")
        failed = place.ask({"error": "server_error"}, name="events-failed")
        limited = {"error": "rate_limited", "retry_after": 1.5, "times": 1, "then": {"text": "told"}}
        retried = place.ask(limited, name="events-retried")
        cancelled = place.ask(call("look", tag="events", seconds=20), {"text": "no"}, name="events-cancelled")
        place.began("events")
        cancelled.cancel()
        code = place.settled(told, failed, retried, cancelled)[1].error.code
        for job, state in ((told, "succeeded"), (failed, "failed"), (retried, "retried"), (cancelled, "revoked")):
            place.eventually(lambda job=job, state=state: f"task-{state}" in states(seen, job), f"a task has {state}")
    records = {event["uuid"]: event["result"] for event in seen if event["type"] == "task-succeeded"}
    assert json.loads(records[told.message_id])["state"] == "answered"
    assert {event["exception"] for event in seen if event["type"] == "task-failed"} == {f"MessageFailed('{code}')"}
    assert "secret" not in json.dumps(seen, default=str)


def states(seen: list[dict[str, Any]], job: Any) -> set[str]:
    return {event["type"] for event in seen if event.get("uuid", "").startswith(job.message_id)}


@contextmanager
def watched(place: Any) -> Iterator[list[dict[str, Any]]]:
    """Return the events of tasks as they come, as Flower takes them."""
    seen: list[dict[str, Any]] = []
    with Celery(set_as_current=False, broker=place.redis_url) as app, app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": seen.append})
        listener = Thread(target=receiver.capture, daemon=True)
        listener.start()
        yield seen
        receiver.should_stop = True
        listener.join(timeout=5)
