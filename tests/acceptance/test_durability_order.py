"""One conversation, many who speak in it: one at a time, in order, by its policy, whoever dies meanwhile."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from harness.waiting import eventually
from harness.words import call

from roundelay import AsyncClient, MessageNotFound
from roundelay.names import messages_queue

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


def test_messages_of_a_conversation_run_one_at_a_time_in_the_order_of_acceptance(deploy):  # G1, G2, C17
    place = deploy()
    place.start()
    place.start()
    with ThreadPoolExecutor(10) as pool:
        jobs = list(pool.map(lambda n: place.ask({"text": f"t{n}"}, name=f"g{n}", conversation_id="g"), range(30)))

    answers = place.settled(*jobs)
    shown = sorted((place.show(job.message_id) for job in jobs), key=lambda each: each.position)

    assert {answer.status for answer in answers} == {"answered"}
    assert [each.position for each in shown] == list(range(1, 31))
    assert all(a.ended_at <= b.started_at for a, b in pairwise(shown))
    last = max(place.fake.requests, key=lambda request: request.at).body["messages"]
    assert len(last) == 19
    assert [part["role"] for part in last[:3]] == ["user", "assistant", "user"]


def test_a_conversation_keeps_its_order_while_workers_die(deploy):  # G8, G1, G2
    place = deploy()
    workers = [place.start(), place.start()]
    jobs = [
        place.ask(call("act", tag=f"o{n}"), {"text": f"t{n}"}, name=f"o{n}", conversation_id=f"c{n % 2}")
        for n in range(12)
    ]
    for _ in range(2):
        workers.append(place.worker())
        workers.pop(0).kill()
        workers[-1].ready()

    answers = place.settled(*jobs)

    assert {answer.status for answer in answers} == {"answered"}
    for parity in (0, 1):
        line = [place.show(job.message_id) for job in jobs[parity::2]]
        assert all(a.ended_at <= b.started_at for a, b in pairwise(line))
    assert all(len(place.effects(f"o{n}")) <= 1 for n in range(12))


def test_each_policy_for_a_busy_conversation_holds(deploy):  # G4, G15, S76
    place = deploy()
    place.start()
    place.start()

    running = place.ask(call("look_async", tag="p1", seconds=30), {"text": "no"}, name="p1", conversation_id="p")
    place.began("p1")
    rejected = place.ask({"text": "no"}, name="p-reject", conversation_id="p", on_busy="reject")
    queued = place.ask({"text": "no"}, name="p-queue", conversation_id="p", on_busy="queue")
    eventually(lambda: queued.state().status == "waiting", "it waits")
    assert queued.state().after == running.message_id
    assert (rejected.wait(30).status, rejected.wait(30).error.code) == ("failed", "busy")
    interrupting = place.ask({"text": "mine"}, name="p-int", conversation_id="p", on_busy="interrupt")

    answers = place.settled(running, queued, interrupting)

    assert [answer.status for answer in answers] == ["cancelled", "cancelled", "answered"]
    free = place.ask({"text": "free"}, name="p-free", conversation_id="p", on_busy="reject")
    assert place.settled(free)[0].text == "free"
    assert [place.fake.count(name) for name in ("p-reject", "p-queue")] == [0, 0]


def test_messages_that_arrive_around_the_end_of_another_are_never_lost_nor_doubled(deploy):  # G6
    place = deploy()
    place.start(ROUNDELAY_CONCURRENCY="40")
    place.start()
    done = []

    def converse(number: int) -> None:
        name = f"race{number}"
        first = place.ask({"text": "1", "delay": 0.01}, name=name, conversation_id=name)
        threading.Event().wait(number % 40 * 0.004)
        second = place.ask({"text": "2"}, name=f"{name}-2", conversation_id=name)
        done.extend([first.wait(60), second.wait(60)])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(converse, range(120)))

    assert {answer.status for answer in done} == {"answered"}
    assert len(done) == 240
    assert [place.fake.count(f"race{n}{more}") for n in range(120) for more in ("", "-2")] == [1] * 240
    place.sound_at_rest()


def test_rounds_of_messages_under_way_go_before_messages_that_wait(deploy):  # rule 9
    place = deploy("sqlite", ROUNDELAY_CONCURRENCY="1")
    steps = [call("look", tag="turn", seconds=0.2) for _ in range(2)]
    jobs = [place.ask(*steps, {"text": "done"}, name=f"turn{n}") for n in range(3)]
    place.start()

    answers = sorted(place.settled(*jobs), key=lambda answer: answer.started_at)

    assert [answer.rounds for answer in answers] == [2] * 3
    assert all(one.finished_at <= following.started_at for one, following in pairwise(answers))
    slow = (answers[-1].finished_at - answers[0].started_at).total_seconds()
    assert slow < 5, "nine turns: a slot that is free again is used at once, not at a tick of some kind"


def test_every_reader_gets_every_update_whatever_the_pace(deploy):  # C8, C17, rule 16
    place = deploy()
    place.start()

    async def read(count: int) -> list[list[int]]:
        async with (
            AsyncClient(place.redis_url, prefix=place.prefix) as submitter,
            AsyncClient(place.redis_url, prefix=place.prefix) as reader,
        ):

            async def one(number: int) -> list[int]:
                text = place.scripted(call("look", tag="c17"), {"text": "w " * 50}, name=f"c17-{number}")
                job = await submitter.submit(text)
                seen = [update.seq async for update in reader.get(job.message_id).follow() if update.seq]
                assert (await job.wait(30)).status == "answered"
                return seen

            return await asyncio.gather(*map(one, range(count)))

    for seen in asyncio.run(read(64)):
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= 7


def test_another_deployment_on_the_same_redis_knows_nothing_of_ours(deploy):  # C9, A29
    ours, theirs = deploy("sqlite"), deploy("sqlite")
    ours.start()
    theirs.start()
    job = ours.ask({"text": "ours"}, name="c9")
    ours.settled(job)

    with pytest.raises(MessageNotFound):
        theirs.client.get(job.message_id).state()


def test_a_message_of_lost_workers_says_so_to_who_waits(deploy):  # C12, A29
    place = deploy()
    worker = place.start()
    job = place.ask(call("look_async", tag="c12", seconds=50), {"text": "no"}, name="c12")
    place.began("c12")
    assert job.state().worker != "lost"

    worker.kill()

    eventually(lambda: job.state().worker == "lost", "it is known to be without a worker", 20)
    assert job.state().status == "running"


def test_a_message_carries_ids_only_through_the_broker(deploy):  # A25
    place = deploy("sqlite")
    place.ask({"text": "w" * 50_000}, name="a25", conversation_id="a25", user_id="user-2468")

    (task,) = place.redis.lrange(messages_queue(place.prefix), 0, -1)

    assert len(task) < 2048
    assert "user-2468" not in task
