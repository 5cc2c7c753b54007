"""The sweeps: what nobody acts on is found and given to somebody, once."""

import asyncio
from dataclasses import replace

import pytest

from roundelay_worker.loop.history import Result
from roundelay_worker.loop.state import Asking
from roundelay_worker.store import Store
from roundelay_worker.store.records import HandOn, Keep, Refused


async def _expire(world, owner: str) -> None:
    assert await world.store.renew(owner, -1.0)


async def _claimed_by(world, owner: str, message_id: str = "m1", conversation_id: str = "c"):
    await world.accept(message_id, conversation_id)
    await world.store.register(owner, "host", 2, 60.0)
    return (await world.claim(message_id, owner)).fence


def test_one_process_sweeps_in_a_period(play) -> None:
    async def scenario(world) -> None:
        taken = await asyncio.gather(*(world.store.take_sweep(f"p{number}", 60.0) for number in range(5)))

        assert sorted(taken) == [False] * 4 + [True]
        assert await world.store.take_sweep("p", 0.0)

    play(scenario)


def test_a_message_of_a_lost_process_is_ready_again_and_counts_the_loss(play) -> None:
    async def scenario(world) -> None:
        fence = await _claimed_by(world, "q")
        state = (await world.store.load("m1")).state
        assert await world.store.release_lost(10) == ()
        await _expire(world, "q")
        (lost,) = await world.store.release_lost(10)

        assert (lost.owner, lost.losses, lost.dispatch.dispatch, lost.dispatch.queue) == ("q", 1, 2, "rounds")
        assert await world.store.release_lost(10) == ()
        assert await world.try_save(fence, state, world.running(state, world.turn("a"))) is None
        assert not await world.store.renew("q", 60.0)
        assert await world.store.claim("m1", "q", dispatch=2) == Refused("no_lease")
        claim = await world.claim("m1", dispatch=2)
        assert (claim.losses, claim.fence.attempt) == (1, 2)

    play(scenario)


def test_a_lease_that_ran_out_unseen_can_be_renewed(play) -> None:
    async def scenario(world) -> None:
        await _claimed_by(world, "q")
        await _expire(world, "q")
        assert await world.store.renew("q", 60.0)

        assert await world.store.release_lost(10) == ()

    play(scenario)


def test_losses_count_at_one_step_and_are_forgotten_when_work_is_done(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        state = (await world.store.load("m1")).state
        for number in (1, 2):
            await world.store.register(f"q{number}", "host", 2, 60.0)
            fence = (await world.claim("m1", f"q{number}")).fence
            begun = replace(state, stage=Asking(begun=True), seq=state.seq + 1)
            if number == 1:
                await world.save(fence, state, begun)
                state = begun
            else:
                await world.save(fence, state, replace(begun, stage=Asking(begun=True, attempt=2)))
            await _expire(world, f"q{number}")
            (lost,) = await world.store.release_lost(10)
            assert lost.losses == number
        state = (await world.store.load("m1")).state
        claim = await world.claim("m1")
        await world.round(claim.fence, state, world.turn("a"), Result("1"))

        assert (await world.store.load("m1")).losses == 0

    play(scenario)


def test_leases_that_run_out_count_until_the_message_is_given_up(play) -> None:  # rule 10
    async def scenario(world) -> None:
        await world.accept("m1")
        counted = []
        for owner in ("q1", "q2", "q3", "q4", "q5"):
            await world.store.register(owner, "host", 2, 60.0)
            await world.claim("m1", owner)
            await _expire(world, owner)
            (lost,) = await world.store.release_lost(10)
            counted.append(lost.losses)

        assert counted == [1, 2, 3, 4, 4]

    play(scenario)


def test_a_death_alone_is_final_and_makes_the_message_ready_at_once(play) -> None:  # rule 10
    async def scenario(world) -> None:
        await _claimed_by(world, "q")
        await world.store._driver.fetch("UPDATE roundelay_messages SET losses = 2")
        (lost,) = await world.store.ended_alone("q", "m1", convicted=True)

        assert (lost.losses, lost.owner) == (4, "q")
        assert (await world.claim("m1", dispatch=lost.dispatch.dispatch)).losses == 4
        assert await world.store.ended_alone("q", "m1", convicted=True) == ()
        assert not await world.store.renew("q", 60.0)

    play(scenario)


@pytest.mark.parametrize("swept", [False, True])
def test_an_end_alone_that_is_explained_counts_for_nothing(play, swept) -> None:  # rule 10
    async def scenario(world) -> None:
        await _claimed_by(world, "q")
        await world.store._driver.fetch("UPDATE roundelay_messages SET losses = 2")
        if swept:
            await _expire(world, "q")
            assert [lost.losses for lost in await world.store.release_lost(10)] == [3]
        freed = await world.store.ended_alone("q", "m1", convicted=False)

        assert len(freed) == (0 if swept else 1)
        assert (await world.claim("m1")).losses == 2

    play(scenario)


def test_others_are_told_that_a_lease_ran_out_by_the_sweep(play) -> None:
    async def scenario(world) -> None:
        await _claimed_by(world, "q")
        await _expire(world, "q")
        assert not await world.store.is_lost("q")
        await world.store.release_lost(10)

        assert await world.store.is_lost("q")

    play(scenario)


def test_a_retired_process_leaves_nothing_behind(play) -> None:
    async def scenario(world) -> None:
        await _claimed_by(world, "q")
        await world.store.retire("q")
        (lost,) = await world.store.release_lost(10)

        assert lost.owner == "q"
        assert not await world.store.renew("q", 60.0)

    play(scenario)


def test_two_who_release_at_once_release_once(play) -> None:
    async def scenario(world) -> None:
        other = await Store.open(world.url)
        await world.store.register("q", "host", 2, 60.0)
        for number in range(20):
            await world.accept(f"m{number}", f"c{number}")
            await world.claim(f"m{number}", "q")
        await _expire(world, "q")
        found = [lost for _ in range(3) for lost in await _both(world.store, other)]
        await other.close()

        assert sorted(lost.dispatch.message_id for lost in found) == sorted(f"m{number}" for number in range(20))
        assert {lost.losses for lost in found} == {1}

    async def _both(ours: Store, theirs: Store):
        first, second = await asyncio.gather(ours.release_lost(10), theirs.release_lost(10))
        return (*first, *second)

    play(scenario)


def test_a_process_gives_back_what_it_does_not_work_on(play) -> None:
    async def scenario(world) -> None:
        for number in range(3):
            await world.accept(f"m{number}", f"c{number}")
            await world.claim(f"m{number}")
        assert await world.store.release_own("p", ["m0"]) == ()
        released = await world.store.release_own("p", ["m0", "m1"], grace=-1.0)

        assert [(lost.dispatch.message_id, lost.losses) for lost in released] == [("m2", 0)]
        assert [lost.dispatch.message_id for lost in await world.store.release_own("p", [], grace=-1.0)] == ["m0", "m1"]

    play(scenario)


def test_handing_over_counts_no_loss(play) -> None:
    async def scenario(world) -> None:
        fence, _ = await world.begin("m1")
        assert await world.store.hand_over(replace(fence, version=5)) is None
        dispatch = await world.store.hand_over(fence)

        assert (dispatch.dispatch, dispatch.queue) == (2, "rounds")
        assert await world.store.hand_over(fence) is None
        claim = await world.claim("m1", dispatch=2)
        assert claim.losses == 0

    play(scenario)


def test_a_ready_message_without_a_taker_is_dispatched_again_ever_more_rarely(play) -> None:
    async def scenario(world) -> None:
        now = await world.store.now()
        await world.accept("m1", submitted_at=now - 100)
        await world.accept("parked", submitted_at=now - 100)
        assert await world.store.redispatch("messages", now - 200, 10) == ()
        assert await world.store.redispatch("rounds", now, 10) == ()
        (first,) = await world.store.redispatch("messages", now, 10)
        assert (first.message_id, first.dispatch, first.queue) == ("m1", 2, "messages")
        assert await world.store.redispatch("messages", now + 100, 10) == ()
        await world.store._driver.fetch("UPDATE roundelay_messages SET dispatched_at = dispatched_at - 3")
        (second,) = await world.store.redispatch("messages", now + 100, 10)
        assert second.dispatch == 3
        await world.store._driver.fetch("UPDATE roundelay_messages SET dispatched_at = dispatched_at - 3")
        assert await world.store.redispatch("messages", now + 100, 10) == ()
        assert await world.store.claim("m1", "p", dispatch=1) == Refused("stale")
        await world.claim("m1", dispatch=3)

    play(scenario)


def test_a_round_that_was_handed_on_and_lost_is_dispatched_again(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        await world.round(fence, queued, world.turn("a"), Result("1"), then=HandOn())
        now = await world.store.now()
        (again,) = await world.store.redispatch("rounds", now + 1, 10)

        assert (again.message_id, again.round, again.dispatch, again.queue) == ("m1", 2, 3, "rounds")

    play(scenario)


def test_what_is_owned_postponed_or_cancelled_is_not_dispatched_again(play) -> None:
    async def scenario(world) -> None:
        await world.begin("owned", "c1")
        await world.accept("cancelled", "c2")
        await world.store.request_cancel("cancelled")
        await world.accept("busy", "c1", on_busy="reject")
        now = await world.store.now()

        assert await world.store.redispatch("messages", now + 100, 10) == ()
        assert await world.store.redispatch("rounds", now + 100, 10) == ()

    play(scenario)


def test_the_watermark_is_the_latest_task_that_left_the_queue(play) -> None:
    async def scenario(world) -> None:
        now = await world.store.now()
        assert await world.store.watermark("messages") is None
        await world.accept("m1", "c1", submitted_at=now - 30)
        await world.accept("m2", "c2", submitted_at=now - 20)
        await world.accept("m3", "c3", submitted_at=now - 10)
        await world.claim("m1")
        assert await world.store.watermark("messages") == now - 30
        claim = await world.claim("m3")
        assert await world.store.watermark("messages") == now - 10
        assert await world.store.watermark("rounds") is None
        await world.end("m3", fence=claim.fence)
        assert await world.store.watermark("messages") == now - 10
        mark = await world.store.watermark("messages")
        assert [each.message_id for each in await world.store.redispatch("messages", mark, 10)] == ["m2"]

    play(scenario)


def test_the_watermark_of_rounds_counts_rounds_only(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        fence, state, saved = await world.round(fence, queued, world.turn("a"), Result("1"), then=HandOn())
        before = await world.store.watermark("messages")
        assert await world.store.watermark("rounds") is None
        claim = await world.claim("m1", dispatch=saved.dispatches[0].dispatch)
        sent = (await world.store._driver.fetch("SELECT dispatched_at FROM roundelay_messages"))[0][0]

        assert await world.store.watermark("rounds") == sent
        await world.round(claim.fence, state, world.turn("a"), Result("1"), then=Keep())
        assert await world.store.watermark("rounds") == sent
        assert await world.store.watermark("messages") == before

    play(scenario)


def test_what_is_over_its_deadline_is_found(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        now = await world.store.now()
        assert await world.store.overdue(0.0, 10) == ()
        await world.save(fence, queued, replace(queued, stage=Asking(), started_at=now - 9, deadline=now - 5, seq=2))

        assert await world.store.overdue(1.0, 10) == ("m1",)
        assert await world.store.overdue(60.0, 10) == ()
        await world.end("m1")
        assert await world.store.overdue(1.0, 10) == ()

    play(scenario)


def test_what_waited_too_long_to_start_is_found(play) -> None:
    async def scenario(world) -> None:
        now = await world.store.now()
        await world.accept("late", "c1", submitted_at=now - 10, queue_timeout=5.0)
        await world.accept("parked", "c1", submitted_at=now - 10, queue_timeout=5.0)
        await world.accept("early", "c2", submitted_at=now - 10, queue_timeout=50.0)
        await world.accept("patient", "c3", submitted_at=now - 10)

        assert set(await world.store.expired_in_queue(10)) == {"late", "parked"}
        await world.claim("late")
        assert await world.store.expired_in_queue(10) == ("parked",)

    play(scenario)


def test_a_live_owner_ends_a_cancelled_message_itself_for_a_second(play) -> None:
    async def scenario(world) -> None:
        await world.begin("m1")
        assert await world.store.request_cancel("m1") == "owned"
        assert await world.store.to_end(10) == ()
        await world.store._driver.fetch("UPDATE roundelay_messages SET cancel_requested_at = cancel_requested_at - 2")
        assert await world.store.to_end(10) == ("m1",)
        await world.end("m1", "cancelled")
        assert await world.store.to_end(10) == ()
        assert await world.store.request_cancel("m1") == "ended"

    play(scenario)


def test_a_cancelled_message_without_an_owner_is_to_be_ended_at_once(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        await _claimed_by(world, "q", "m2", "c2")
        assert await world.store.request_cancel("m1") == "free"
        await _expire(world, "q")
        assert await world.store.request_cancel("m2") == "free"

        assert set(await world.store.to_end(10)) == {"m1", "m2"}

    play(scenario)


def test_a_conversation_that_points_at_nothing_is_woken(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        await world.accept("m2")
        await world.accept("m3")
        assert await world.store.unblock(10) == ()
        await world.store._driver.fetch("UPDATE roundelay_messages SET ended_at = 1, status = 'failed' WHERE id = 'm1'")
        (dispatch,) = await world.store.unblock(10)

        assert dispatch.message_id == "m2"
        assert await world.store.unblock(10) == ()
        await world.claim("m2", dispatch=dispatch.dispatch)
        assert [each.message_id for each in (await world.end("m2")).dispatches] == ["m3"]

    play(scenario)


def test_a_message_that_is_left_waits_for_anybody_and_counts_no_attempt_and_no_loss(play) -> None:
    async def scenario(world) -> None:
        fence = await _claimed_by(world, "q")

        assert await world.store.leave(fence, 60.0)

        assert await world.store.claim("m1", "p") == Refused("not_due")
        assert not await world.store.leave(fence, 0.0)

    play(scenario)


def test_a_message_that_was_left_is_dispatched_when_its_pause_is_over(play) -> None:
    async def scenario(world) -> None:
        fence = await _claimed_by(world, "q")
        assert await world.store.leave(fence, 0.0)

        (dispatch,) = await world.store.due(10)
        claim = await world.claim("m1", dispatch=dispatch.dispatch)

        assert (claim.losses, claim.fence.attempt) == (0, fence.attempt)

    play(scenario)


def test_what_a_process_offers_is_known_while_its_lease_holds(play) -> None:
    async def scenario(world) -> None:
        await world.store.register("q", "host", 2, 60.0, offers=("tool:a", "model:demo"))
        await world.store.register("r", "host", 3, -1.0, offers=("tool:b",))

        assert frozenset({"tool:a", "model:demo"}) in await world.store.offered()
        assert not any("tool:b" in offered for offered in await world.store.offered())
        await world.store.retire("q")
        assert not any("tool:a" in offered for offered in await world.store.offered())

    play(scenario)
