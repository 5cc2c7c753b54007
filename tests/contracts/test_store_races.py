"""Two stores and two processes at once: everything happens once, in order, and nothing stands still."""

import asyncio
import json
import random
import subprocess
import sys

from roundelay_worker.store import Store
from roundelay_worker.store.records import Claim, Fence

CONVERSATIONS = 200
MESSAGES = 4


async def _converse(world, stores, number: int, ended: list[str]) -> None:
    """Accept the messages of one conversation from both stores at once, and run whatever becomes ready."""
    conversation = f"c{number}"
    dice = random.Random(number)
    ready: asyncio.Queue[str] = asyncio.Queue()

    async def accept(index: int) -> None:
        await asyncio.sleep(dice.random() * 0.01)
        (accepted,) = await dice.choice(stores).accept([world.arrival(f"m{number}-{index}", conversation)])
        if accepted.after is None:
            ready.put_nowait(accepted.message_id)

    async def run() -> None:
        for _ in range(MESSAGES):
            message_id = await asyncio.wait_for(ready.get(), 30)
            claim = await dice.choice(stores).claim(message_id, "p")
            assert isinstance(claim, Claim)
            saved = await world.end(message_id, fence=claim.fence)
            ended.append(message_id)
            for dispatch in saved.dispatches:
                ready.put_nowait(dispatch.message_id)

    await asyncio.gather(run(), *(accept(index) for index in range(MESSAGES)))
    assert ready.empty()


def test_no_interleaving_of_accepts_and_ends_leaves_a_conversation_standing(play) -> None:
    async def scenario(world) -> None:
        other = await Store.open(world.url)
        ended: list[str] = []
        at_once = asyncio.Semaphore(10)

        async def one(number: int) -> None:
            async with at_once:
                await _converse(world, (world.store, other), number, ended)

        await asyncio.gather(*(one(number) for number in range(CONVERSATIONS)))
        await other.close()
        order = await world.store._driver.fetch(
            "SELECT id, conversation_id FROM roundelay_messages ORDER BY conversation_id, position"
        )
        by_conversation: dict[str, list[str]] = {}
        for message_id in ended:
            by_conversation.setdefault("c" + message_id[1:].split("-")[0], []).append(message_id)

        assert len(ended) == CONVERSATIONS * MESSAGES
        assert [row[0] for row in order] == [each for name in sorted(by_conversation) for each in by_conversation[name]]
        assert await world.store.unblock(10) == ()
        assert (await world.store.counts()).ended == CONVERSATIONS * MESSAGES

    play(scenario)


def test_fifty_accepts_at_once_are_run_in_the_order_of_acceptance(play) -> None:
    async def scenario(world) -> None:
        other = await Store.open(world.url)
        accepted = await asyncio.gather(
            *((world.store, other)[number % 2].accept([world.arrival(f"m{number}")]) for number in range(50))
        )
        await other.close()
        (first,) = [each.message_id for (each,) in accepted if each.after is None]
        order = [first]
        while True:
            claim = await world.claim(order[-1])
            saved = await world.end(order[-1], fence=claim.fence)
            if not saved.dispatches:
                break
            order.append(saved.dispatches[0].message_id)
        rows = await world.store._driver.fetch("SELECT id FROM roundelay_messages ORDER BY position")

        assert order == [row[0] for row in rows]
        assert sorted(order) == sorted(f"m{number}" for number in range(50))

    play(scenario)


def test_ends_of_parked_messages_and_of_the_running_one_at_once_lose_nobody(play) -> None:
    async def scenario(world) -> None:
        other = await Store.open(world.url)
        second = type(world)(other, world.url)
        for number in range(30):
            conversation = f"c{number}"
            await world.store.accept([world.arrival(f"m{number}-{index}", conversation) for index in range(3)])
            await asyncio.gather(_ended(world, f"m{number}-0"), _ended(second, f"m{number}-1"))
            await world.claim(f"m{number}-2")
        await other.close()

        assert await world.store.unblock(10) == ()

    async def _ended(world, message_id: str) -> None:
        while await world.end(message_id, "cancelled") is None:
            if (await world.store.load(message_id)).answer is not None:
                return

    play(scenario)


def test_a_message_that_is_ended_while_it_is_woken_passes_the_turn_on(play_postgres) -> None:
    """The end of the parked message begins before the end of the running one commits, and goes on after it."""

    async def scenario(world) -> None:
        await world.store.accept([world.arrival(f"m{number}") for number in range(2)])
        other = await Store.open(world.url)
        second = type(world)(other, world.url)
        third = await Store.open(world.url)
        held, release = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with third._driver._connection() as connection, connection.transaction():
                await connection.fetch("SELECT * FROM roundelay_messages WHERE id = 'm0' FOR UPDATE")
                held.set()
                await release.wait()

        async def until_waiting(wanted: int) -> None:
            sql = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            async with asyncio.timeout(10):
                while (await world.store._driver.fetch(sql))[0][0] < wanted:  # noqa: ASYNC110 - the server's event
                    await asyncio.sleep(0.01)

        holding = asyncio.create_task(hold())
        await held.wait()
        first = asyncio.create_task(world.end("m0", fence=Fence("m0", 0)))
        await until_waiting(1)
        late = asyncio.create_task(second.end("m1", "cancelled", fence=Fence("m1", 0)))
        await until_waiting(2)
        release.set()
        await holding
        assert [each.message_id for each in (await first).dispatches] == ["m1"]
        assert await late is not None
        await other.close()
        await third.close()

        assert (await world.accept("m2")).after is None

    play_postgres(scenario)


_WORKER = """
import asyncio, json, sys
from dataclasses import replace
from roundelay_worker.loop.state import Ended
from roundelay_worker.store import Store
from roundelay_worker.store.records import Arrival, Claim, End, Save

async def main(url, name):
    store = await Store.open(url)
    await store.register(name, "host", 1, 60.0)
    print("ready", flush=True)
    sys.stdin.readline()
    ran = []
    arrivals = [Arrival(f"m{n}", "u", f"c{n % 3}", "{}", 1.0) for n in range(30)]
    todo = [each.message_id for each in await store.accept(arrivals) if each.after is None]
    deadline = await store.now() + 60
    while (await store.counts()).ended < 30:
        assert await store.now() < deadline
        for message_id in todo or [f"m{n}" for n in range(30)]:
            claim = await store.claim(message_id, name)
            if not isinstance(claim, Claim):
                continue
            state = (await store.load(message_id)).state
            ended = replace(state, stage=Ended("answered", "x", 1.0), seq=state.seq + 1)
            end = End("answered", json.dumps({"text": name}))
            saved = await store.save(Save(claim.fence, state, ended, ((ended.seq, "{}"),), end))
            assert saved is not None
            ran.append(message_id)
        todo = []
        await asyncio.sleep(0.01)
    print(json.dumps(ran), flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_run_every_message_once_and_in_order(database) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, database, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("a", "b")
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    ran = [json.loads(worker.communicate(timeout=100)[0]) for worker in workers]

    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted(ran[0] + ran[1]) == sorted(f"m{number}" for number in range(30))
    for each in ran:
        for conversation in range(3):
            mine = [int(message_id[1:]) for message_id in each if int(message_id[1:]) % 3 == conversation]
            assert mine == sorted(mine)
