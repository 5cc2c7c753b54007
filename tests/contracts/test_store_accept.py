"""Accepting: once, in order, one message of a conversation at a time."""

import asyncio
import json

import pytest

from roundelay_worker.loop.state import State
from roundelay_worker.store import Store, accepted_update
from roundelay_worker.store.records import Fence, Refused


def test_a_message_is_accepted_once_and_keeps_what_it_said(play) -> None:
    async def scenario(world) -> None:
        first = await world.accept("m1", text="one")
        again = await world.accept("m1", text="two")
        loaded = await world.store.load("m1")

        assert (first.fresh, again.fresh) == (True, False)
        assert (again.accepted_at, again.after) == (first.accepted_at, None)
        assert json.loads(loaded.submission)["content"][0]["text"] == "one"
        assert loaded.state == State(seq=1)
        assert loaded.version == 0

    play(scenario)


def test_the_second_message_of_a_conversation_waits_for_the_first(play) -> None:
    async def scenario(world) -> None:
        accepted = await world.store.accept([world.arrival("m1"), world.arrival("m2"), world.arrival("x", "other")])

        assert [each.after for each in accepted] == [None, "m1", None]
        assert await world.store.claim("m2", "p") == Refused("parked")
        saved = await world.end("m1")
        assert [(each.message_id, each.queue) for each in saved.dispatches] == [("m2", "messages")]
        await world.claim("m2", dispatch=saved.dispatches[0].dispatch)

    play(scenario)


def test_a_conversation_belongs_to_its_user(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1", user_id="u1")
        other = await world.accept("m2", user_id="u2")

        assert other.after is None

    play(scenario)


def test_an_ended_conversation_accepts_the_next_message_at_once(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        assert (await world.end("m1")).dispatches == ()

        assert (await world.accept("m2")).after is None

    play(scenario)


def test_accepting_an_ended_message_again_does_not_wake_its_conversation(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        await world.end("m1")
        await world.accept("m1")

        assert (await world.accept("m2")).after is None

    play(scenario)


def test_a_message_that_wants_no_waiting_is_condemned_when_its_conversation_is_busy(play) -> None:
    async def scenario(world) -> None:
        free = await world.accept("m1", on_busy="reject")
        busy = await world.accept("m2", on_busy="reject")

        assert (free.verdict, busy.verdict, busy.after) == (None, "busy", None)
        assert await world.store.claim("m2", "p") == Refused("condemned")
        assert await world.store.to_end(10) == ("m2",)
        await world.end("m2", "failed")
        assert (await world.end("m1")).dispatches == ()
        assert (await world.accept("m3")).after is None

    play(scenario)


def test_an_interrupting_message_asks_for_the_end_of_all_before_it(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        await world.accept("m2")
        third = await world.accept("m3", on_busy="interrupt")

        assert (third.after, set(third.interrupts)) == ("m1", {"m1", "m2"})
        assert set(await world.store.to_end(10)) == {"m1", "m2"}
        assert await world.store.claim("m1", "p") == Refused("cancelled")

    play(scenario)


def test_a_message_cancelled_before_it_was_known_never_starts(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1", cancelled=True)

        assert await world.store.claim("m1", "p") == Refused("cancelled")
        assert await world.store.to_end(10) == ("m1",)

    play(scenario)


def test_the_first_update_follows_from_the_row(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        second = await world.accept("m2")
        publication = await world.store.publication("m2", 0)

        assert publication.updates == ((1, accepted_update("m2", second.accepted_at, "m1")),)
        assert (publication.status, publication.after) == ("waiting", "m1")
        body = json.loads(publication.updates[0][1])
        assert (body["kind"], body["seq"], body["after"], body["v"]) == ("accepted", 1, "m1", 1)

    play(scenario)


def test_a_time_of_submission_in_the_future_is_not_believed(play) -> None:  # rule 7
    async def scenario(world) -> None:
        await world.accept("m1", submitted_at=4e9)
        loaded = await world.store.load("m1")

        assert loaded.submitted_at == loaded.accepted_at

    play(scenario)


def test_the_same_arrivals_at_once_in_two_processes_are_accepted_once(play) -> None:  # rule 1
    async def scenario(world) -> None:
        other = await Store.open(world.url)
        arrivals = [world.arrival(f"m{number}") for number in range(20)]
        both = await asyncio.gather(world.store.accept(arrivals), other.accept(arrivals))
        await other.close()

        for ours, theirs in zip(*both, strict=True):
            assert {ours.fresh, theirs.fresh} == {True, False}
            assert ours.after == theirs.after
        assert (await world.store.counts()).parked == 19

    play(scenario)


@pytest.mark.parametrize("first", ["accept", "end"])
def test_an_accept_and_an_end_that_wait_for_each_other_leave_nobody_parked(play_postgres, first: str) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        loaded = await world.store.load("m1")
        holder = world.store._driver
        other = await Store.open(world.url)
        released = asyncio.Event()

        async def hold() -> None:
            async with holder._connection() as connection, connection.transaction():
                await connection.fetch("SELECT * FROM roundelay_conversations FOR UPDATE")
                held.set()
                await released.wait()

        async def waiting(wanted: int) -> None:
            sql = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            while (await other._driver.fetch(sql))[0][0] < wanted:  # noqa: ASYNC110 - the server's event
                await asyncio.sleep(0.01)

        async def end():
            return await world.end("m1", fence=Fence("m1", loaded.version))

        async def accept():
            return await other.accept([world.arrival("m2")])

        held = asyncio.Event()
        holding = asyncio.create_task(hold())
        await held.wait()
        order = [accept, end] if first == "accept" else [end, accept]
        tasks = []
        for number, each in enumerate(order, 1):
            tasks.append(asyncio.create_task(each()))
            await asyncio.wait_for(waiting(number), 10)
        released.set()
        await holding
        done = dict(zip([each.__name__ for each in order], await asyncio.gather(*tasks), strict=True))
        ended, (accepted,) = done["end"], done["accept"]
        await other.close()

        assert bool(ended.dispatches) == (accepted.after == "m1")
        await world.claim("m2")
        assert await world.store.unblock(10) == ()

    play_postgres(scenario)
