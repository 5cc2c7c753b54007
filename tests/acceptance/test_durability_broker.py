"""What the broker and Redis do to those who trust them: lose, repeat, forget, fill up, go away."""

import subprocess
import threading
import time

import pytest
from harness.services import send
from harness.waiting import eventually
from harness.words import call

from roundelay import ServiceUnavailable
from roundelay.names import answer_key, messages_queue, rounds_queue, state_key, updates_key
from roundelay_worker.embedded.valkey import running_valkey, server_binary
from roundelay_worker.wiring import EXIT_DEAF

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


@pytest.fixture
def own_valkey(folder, request):
    """Return a server that only this test has."""
    with running_valkey(folder / f"valkey-{request.node.name[:40]}") as url:
        yield url


@pytest.fixture
def unix_url(folder):
    """Return a server that is reached by a Unix socket alone, with a password."""
    place = folder / "unix"
    place.mkdir()
    words = f"port 0\nunixsocket {place}/s\nrequirepass p-w\nappendonly yes\ndir {place}\n"
    with subprocess.Popen([server_binary(), "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
        server.stdin.write(words.encode())
        server.stdin.close()
        eventually((place / "s").exists, "the server is there")
        yield f"unix://:p-w@{place}/s?db=1"
        server.terminate()


def test_a_redis_behind_a_unix_socket_will_do(deploy, unix_url):
    place = deploy("sqlite", redis_url=unix_url)
    place.start()
    jobs = [place.ask(call("act", tag=f"unix{n}"), {"text": "done"}, name=f"unix{n}") for n in range(3)]

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == ["done"] * 3
    assert [len(place.effects(f"unix{n}")) for n in range(3)] == [1] * 3
    place.sound_at_rest()


def seqs(job, **options) -> list[int]:
    return [update.seq for update in job.follow(timeout=30, **options) if update.seq is not None]


def test_a_redis_that_lost_everything_is_filled_again_and_nothing_is_lost(
    deploy, own_valkey
):  # A12, C10, D32, rules 2, 14
    place = deploy(redis_url=own_valkey)
    before = place.ask(
        {"text": "told before"}, name="flush-before", idempotency_key="k", conversation_id="i", user_id="u"
    )
    place.start(ROUNDELAY_CONCURRENCY="6")
    place.settled(before)
    running = [place.ask(call("look_async", tag=f"f{n}", seconds=2), {"text": "ran"}, name=f"fr{n}") for n in range(5)]
    postponed = place.ask({"error": "overloaded", "retry_after": 3, "times": 1, "then": {"text": "later"}}, name="fp")
    for n in range(5):
        place.began(f"f{n}")
    eventually(lambda: postponed.state().status == "retrying", "one is postponed")
    blocked = [place.ask({"text": "x", "stall": 2}, name=f"fb{n}") for n in range(6)]
    queued = [place.ask({"text": "queued"}, name=f"fq{n}", conversation_id=f"q{n % 5}") for n in range(12)]
    everything = [*running, postponed, *blocked, *queued]
    eventually(lambda: all(place.known(job) for job in everything), "the database has all")

    place.redis.flushall()
    assert place.client.get(before.message_id).wait(20).text == "told before"
    eventually(lambda: all(place.redis.exists(state_key(place.prefix, job.message_id)) for job in everything), "filled")

    answers = place.settled(*everything)
    assert {answer.status for answer in answers} == {"answered"}
    assert [place.fake.count(f"fq{n}") for n in range(12)] == [1] * 12
    assert [place.fake.count(f"fr{n}") for n in range(5)] == [2] * 5
    eventually(lambda: place.redis.exists(answer_key(place.prefix, before.message_id)), "what had ended is told again")
    for job in (before, running[0], queued[-1]):
        assert seqs(job) == list(range(1, place.show(job.message_id).seq + 1))
        state = job.state()
        assert (state.conversation_id, state.submitted_at is not None) == (job.conversation_id, True)
    again = place.ask(
        {"text": "told before"}, name="flush-before", idempotency_key="k", conversation_id="i", user_id="u"
    )
    assert again.message_id == before.message_id
    place.sound_at_rest()


def test_a_stream_that_was_deleted_is_replayed_from_the_database_in_the_same_order(deploy):  # C10
    place = deploy("sqlite")
    place.start()
    job = place.ask(call("look", tag="s"), {"text": "told"}, name="stream")
    place.settled(job)
    told = [update for update in job.follow() if update.seq]

    place.redis.delete(updates_key(place.prefix, job.message_id), state_key(place.prefix, job.message_id))
    place.client.get(job.message_id)

    assert [update for update in job.follow(timeout=30) if update.seq] == told


def test_a_task_that_comes_again_and_again_is_worked_on_once(deploy):  # A1, A3, A9, D28, D31, rule 3
    """The broker repeats tasks while their message runs, in its own process and in another, and after its end."""
    place = deploy()
    place.start()
    place.start()
    job = place.ask(call("act", tag="dup", before=2), call("act", tag="dup2"), {"text": "once"}, name="dup")
    place.began("dup")

    for number in (1, 1, 1, 2, 2, 3):
        send(place, "roundelay.answer", [job.message_id, number], job.message_id)
        send(place, "roundelay.round", [job.message_id, 1, number])
    (answer,) = place.settled(job)
    for number in range(1, 5):
        send(place, "roundelay.round", [job.message_id, number, number])
    eventually(lambda: place.queued() == 0, "all copies are taken")

    assert answer.text == "once"
    assert [place.fake.count("dup", step) for step in range(3)] == [1, 1, 1]
    assert [len(place.effects(tag)) for tag in ("dup", "dup2")] == [1, 1]


def test_a_visibility_timeout_shorter_than_the_work_repeats_nothing(deploy, own_valkey):  # A1, A3, A5
    place = deploy(redis_url=own_valkey)
    impatient = [place.worker(app="harness.impatient") for _ in range(2)]
    for worker in impatient:
        worker.ready()
    long = place.ask(call("act", tag="vis", before=6), {"text": "long"}, name="vis")
    slow = place.ask({"text": "slow", "delay": 6}, name="vis-model")
    place.began("vis")

    answers = place.settled(long, slow)

    assert [answer.text for answer in answers] == ["long", "slow"]
    assert len(place.effects("vis")) == 1
    assert [place.fake.count("vis", 0), place.fake.count("vis-model", 0)] == [1, 1]
    assert not place.redis.exists("unacked", "unacked_index")


def test_tasks_that_are_lost_on_their_way_are_sent_again(deploy):  # A8, A27, D10, D32, G8
    place = deploy()
    jobs = [place.ask({"text": "found"}, name=f"lost{n}", conversation_id=f"l{n % 3}") for n in range(6)]
    place.redis.delete(messages_queue(place.prefix))
    place.start()

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == ["found"] * 6
    eventually(lambda: place.redis.llen(rounds_queue(place.prefix)) == 0, "no task is left")


def test_what_a_dead_worker_had_prefetched_starts_elsewhere(deploy):  # A27, G8
    place = deploy()
    dead = place.start(ROUNDELAY_CONCURRENCY="4")
    held = [place.ask({"text": "h", "delay": 30, "times": 1, "then": {"text": "h"}}, name=f"pf{n}") for n in range(4)]
    eventually(lambda: sum(place.fake.count(f"pf{n}") for n in range(4)) == 4, "all slots are taken")
    waiting = [place.ask({"text": "w"}, name=f"pw{n}") for n in range(6)]
    dead.kill()
    place.start()

    answers = place.settled(*held, *waiting)

    assert {answer.status for answer in answers} == {"answered"}
    assert [place.fake.count(f"pw{n}") for n in range(6)] == [1] * 6


def test_a_full_redis_lets_running_messages_end_and_recovers_by_itself(deploy, own_valkey):  # A21
    place = deploy(redis_url=own_valkey)
    worker = place.start()
    job = place.ask(
        call("look", tag="oom", seconds=2),
        call("look", tag="oom2"),
        call("look", tag="oom3"),
        {"text": "ended"},
        name="oom",
    )
    place.began("oom")

    place.redis.config_set("maxmemory", "1")
    with pytest.raises(ServiceUnavailable):
        place.ask({"text": "x"}, name="oom-new")
    eventually(lambda: place.show(job.message_id).status == "answered", "it ends in the database")
    assert worker.code is None
    assert not place.redis.exists(answer_key(place.prefix, job.message_id))
    place.redis.config_set("maxmemory", "0")

    assert place.settled(job)[0].text == "ended"
    assert seqs(job) == list(range(1, place.show(job.message_id).seq + 1))
    assert place.settled(place.ask({"text": "ok"}, name="oom-after"))[0].text == "ok"


def test_a_worker_that_does_not_consume_again_ends_for_its_supervisor(deploy, own_valkey):  # rule 19
    place = deploy("sqlite", redis_url=own_valkey)
    deaf = place.worker(app="harness.deaf").ready()
    place.redis.client_kill_filter(_type="normal", skipme=True)

    job = place.ask({"text": "heard"}, name="deaf")

    assert deaf.ended() == EXIT_DEAF
    assert "not_consuming" in deaf.said
    assert place.fake.count("deaf") == 0
    place.start()
    assert place.settled(job)[0].text == "heard"


def test_redis_restarts_under_load_and_every_message_is_answered_once(deploy, folder):  # A18, rule 19
    place = None
    home = folder / "valkey-restarts"
    stop, jobs = threading.Event(), []
    with running_valkey(home) as url:
        place = deploy(redis_url=url)
        place.start()
        place.start()

    def load() -> None:
        while not stop.is_set():
            number = len(jobs)
            try:
                jobs.append(place.ask(call("act", tag=f"r{number}"), {"text": f"a{number}"}, name=f"r{number}"))
            except ServiceUnavailable:
                continue
            stop.wait(0.1)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        for _ in range(4):
            with running_valkey(home):
                time.sleep(2)
        stop.set()
        loading.join()
        with running_valkey(home):
            for worker in place.workers:
                if worker.code is not None:
                    place.start()
            answers = place.settled(*jobs)
    finally:
        stop.set()
        loading.join()

    assert len(jobs) > 10
    assert [answer.text for answer in answers] == [f"a{n}" for n in range(len(jobs))]
    assert [len(place.effects(f"r{n}")) for n in range(len(jobs))] == [1] * len(jobs)
