"""Claiming, loading and saving: one owner, one version, one end."""

import asyncio
from dataclasses import replace

import pytest

from roundelay_worker.loop.history import AssistantText, Result, UserText
from roundelay_worker.loop.state import STATE_VERSION, Asking, CallPlan, Ended
from roundelay_worker.store import Store, UnreadableState
from roundelay_worker.store.records import Context, End, HandOn, Keep, Postpone, Refused, Unread


def test_of_many_claims_at_once_one_wins(play) -> None:
    async def scenario(world) -> None:
        other = await Store.open(world.url)
        await world.store.register("q", "host", 2, 60.0)
        for number in range(20):
            await world.accept(f"m{number}", f"c{number}")
            claims = await asyncio.gather(
                *(store.claim(f"m{number}", owner, dispatch=1) for store in (world.store, other) for owner in "pq")
            )
            assert sorted(isinstance(each, Refused) for each in claims) == [False, True, True, True]
        await other.close()

    play(scenario)


def test_a_claim_counts_the_attempt_before_the_work(play) -> None:
    async def scenario(world) -> None:
        fence, _ = await world.begin("m1")
        again = await world.claim("m1", held=fence)

        assert (fence.attempt, again.fence.attempt, again.fence.version) == (1, 2, fence.version)

    play(scenario)


def test_a_claim_says_why_it_is_refused(play) -> None:
    async def scenario(world) -> None:
        store = world.store
        assert await store.claim("none", "p") == Refused("missing")
        await world.accept("m1")
        assert await store.claim("m1", "p", dispatch=7) == Refused("stale")
        assert await store.claim("m1", "nobody") == Refused("no_lease")
        assert await store.claim("m1", "p", max_state_version=STATE_VERSION - 1) == Refused("newer_version")
        await store.register("late", "host", 3, 0.0)
        assert await store.claim("m1", "late") == Refused("no_lease")
        await store.register("gone", "host", 4, 60.0)
        await store.retire("gone")
        assert await store.claim("m1", "gone") == Refused("no_lease")
        fence = (await world.claim("m1")).fence
        assert await store.claim("m1", "p", dispatch=1) == Refused("owned")
        assert await store.claim("m1", "p", held=replace(fence, version=9)) == Refused("stale")
        await store.request_cancel("m1")
        assert await store.claim("m1", "p", held=fence) == Refused("cancelled")
        await world.end("m1", "cancelled")
        assert await store.claim("m1", "p", dispatch=1) == Refused("ended")

    play(scenario)


def test_a_state_comes_back_as_it_was_saved_step_by_step(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        asked = world.turn("a", "b", text="let me see", native='[ {"sig":"x\\u0000/+="} ]')
        steps = [
            replace(
                queued, stage=Asking(attempt=1, begun=True), started_at=5.0, deadline=9e9, soft_deadline=8e9, seq=2
            ),
            world.running(replace(queued, deadline=9e9, seq=2), asked, plan=CallPlan("read", polling=True)),
            world.running(replace(queued, seq=3), asked, "started", CallPlan("write", idempotent=True)),
            world.finished(replace(queued, seq=4), asked, Result("1"), Result("\0\ud800", is_error=True), note="note"),
        ]
        before = queued
        for state in steps:
            saved = await world.save(fence, before, state)
            fence = replace(fence, version=saved.version, attempt=saved.attempt)
            loaded = await world.store.load("m1")
            assert loaded.state == state
            assert loaded.version == saved.version
            before = state

    play(scenario)


def test_who_knows_the_first_rounds_reads_the_others_only(play) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        for number in range(3):
            fence, state, _ = await world.round(fence, state, world.turn("a", "b"), Result(f"{number}"), Result("x"))
        running = world.running(state, world.turn("w"))
        await world.save(fence, state, running)
        whole = await world.store.load("m1")

        assert whole.state == running
        for known in range(4):
            assert await world.store.load("m1", running.sequence[:known]) == whole
        mine = replace(running.sequence[0], note="mine")
        assert (await world.store.load("m1", (mine,))).state.sequence == (mine, *running.sequence[1:])

    play(scenario)


def test_a_save_under_an_old_fence_changes_nothing(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        state = world.running(queued, world.turn("a"))
        await world.save(fence, queued, state)
        later = world.finished(state, world.turn("a"), Result("1"))

        for stale in (
            fence,
            replace(fence, version=1, attempt=9),
            replace(fence, version=1, owner="q"),
            replace(fence, version=1, message_id="none"),
        ):
            for then in (Keep(), HandOn(), Postpone(1.0), End("answered", "{}")):
                assert await world.try_save(stale, state, later, then) is None
        loaded = await world.store.load("m1")
        assert (loaded.state, loaded.version) == (state, 1)
        assert [seq for seq, _ in (await world.store.publication("m1", 0)).updates] == [1, 2]

    play(scenario)


def test_a_write_begins_only_under_a_live_lease(play) -> None:  # rules 6, 11
    async def scenario(world) -> None:
        await world.accept("m1")
        await world.store.register("q", "host", 2, 60.0)
        fence = (await world.claim("m1", "q")).fence
        queued = (await world.store.load("m1")).state
        state = world.running(queued, world.turn("a"), "started")
        await world.store.renew("q", -1.0)

        assert await world.try_save(fence, queued, state, under_lease=True) is None
        assert await world.try_save(fence, queued, state, under_lease=False) is not None

    play(scenario)


def test_handing_on_frees_the_message_under_a_new_number(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        _, _, saved = await world.round(fence, queued, world.turn("a"), Result("1"), then=HandOn())
        (dispatch,) = saved.dispatches

        assert (dispatch.message_id, dispatch.round, dispatch.dispatch, dispatch.queue) == ("m1", 2, 2, "rounds")
        assert await world.store.claim("m1", "p", dispatch=1) == Refused("stale")
        claim = await world.claim("m1", dispatch=2)
        assert (claim.fence.attempt, claim.saved_by) == (1, "p")

    play(scenario)


def test_attempts_are_counted_within_a_round(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        failed = replace(queued, stage=Asking(failures=1), seq=2)
        saved = await world.save(fence, queued, failed)
        assert saved.attempt == 1
        fence = (await world.claim("m1", held=replace(fence, version=saved.version))).fence
        assert fence.attempt == 2
        fence, _, saved = await world.round(fence, failed, world.turn("a"), Result("1"))
        assert saved.attempt == 0
        assert (await world.claim("m1", held=fence)).fence.attempt == 1

    play(scenario)


def test_a_postponed_message_waits_for_its_time(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        now = await world.store.now()
        waiting = replace(queued, stage=Asking(failures=1, due_at=now + 60), seq=2)
        await world.save(fence, queued, waiting, Postpone(now + 60))

        assert await world.store.claim("m1", "p", dispatch=1) == Refused("not_due")
        assert await world.store.due(10) == ()
        assert (await world.store.publication("m1", 0)).status == "retrying"

    play(scenario)


def test_a_postponed_message_is_ready_when_its_time_has_come(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        now = await world.store.now()
        waiting = replace(queued, stage=Asking(failures=1, due_at=now - 1), seq=2)
        await world.save(fence, queued, waiting, Postpone(now - 1))
        (dispatch,) = await world.store.due(10)

        assert (dispatch.message_id, dispatch.dispatch, dispatch.queue) == ("m1", 2, "rounds")
        assert await world.store.due(10) == ()
        assert await world.store.claim("m1", "p", dispatch=1) == Refused("stale")
        await world.claim("m1", dispatch=2)

    play(scenario)


def test_an_end_is_written_once_whoever_comes_second(play) -> None:
    async def scenario(world) -> None:
        fence, _ = await world.begin("m1")
        other = await Store.open(world.url)
        ends = await asyncio.gather(
            world.end("m1", "answered", "yes", fence=fence), world.end("m1", "cancelled", "no"), return_exceptions=True
        )
        await other.close()
        publication = await world.store.publication("m1", 0)

        assert [each is None for each in ends].count(False) == 1
        winner = "answered" if ends[0] is not None else "cancelled"
        assert publication.status == winner
        assert publication.answer == ('{"text":"yes"}' if winner == "answered" else '{"text":"no"}')
        assert [seq for seq, _ in publication.updates] == [1, 2]

    play(scenario)


def test_reasoning_is_gone_after_the_end_and_every_call_has_its_result(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        fence, state, _ = await world.round(fence, queued, world.turn("a", native="[1]"), Result("1"))
        asked = world.turn("b", "c", "d", native="[2]")
        running = world.running(state, asked, "requested")
        calls = (running.stage.calls[0], replace(running.stage.calls[1], status="started"), running.stage.calls[2])
        running = replace(running, stage=replace(running.stage, calls=calls))
        saved = await world.save(fence, state, running)
        ended = replace(running, stage=Ended("cancelled", "stopped", 1.0), seq=running.seq + 1)
        await world.save(replace(fence, version=saved.version), running, ended, End("cancelled", '{"text":"stopped"}'))
        timeline = await world.store.timeline("m1")
        rows = await world.store._driver.fetch("SELECT native FROM roundelay_turns")

        assert [row[0] for row in rows] == [None, None]
        assert [call.status for call in timeline.turns[1].calls] == ["done"] * 3
        assert [call.outcome for call in timeline.turns[1].calls] == ["not_executed", "unknown", "not_executed"]
        assert timeline.turns[0].calls[0].result == "1"

    play(scenario)


def test_a_turn_that_comes_with_the_end_leaves_no_reasoning(play) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        asked = world.turn("a", native="[1]")
        running = world.running(queued, asked, "started")
        saved = await world.save(fence, queued, running)
        ended = replace(
            world.finished(running, asked, Result("told", outcome="unknown"), note="n"),
            stage=Ended("failed", "no", 1.0),
        )
        await world.save(replace(fence, version=saved.version), running, ended, End("failed", '{"text":"no"}'))
        loaded = await world.store.load("m1")
        rows = await world.store._driver.fetch("SELECT native FROM roundelay_turns")

        assert [row[0] for row in rows] == [None]
        assert loaded.state.sequence[0].results == (Result("told", outcome="unknown"),)
        assert loaded.state.sequence[0].note == "n"

    play(scenario)


def test_who_began_a_call_in_doubt_and_whether_it_lives_is_known(play) -> None:  # rule 12
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        assert (await world.store.load("m1")).interrupted_executor is None
        state = world.running(queued, world.turn("a"), "started")
        await world.save(fence, queued, state)
        alive = await world.store.load("m1")
        await world.store.mark_dead("p")
        dead = await world.store.load("m1")

        assert (alive.interrupted_executor, alive.executor_dead) == ("p", False)
        assert (dead.interrupted_executor, dead.executor_dead) == ("p", True)

    play(scenario)


def test_a_state_of_a_newer_version_is_left_alone_but_can_be_ended(play) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        await world.accept("m2")
        await world.store._driver.fetch("UPDATE roundelay_messages SET state_version = 99, head = '?' WHERE id = 'm1'")

        assert await world.store.claim("m1", "p") == Refused("newer_version")
        with pytest.raises(UnreadableState) as refused:
            await world.store.load("m1")
        unread = refused.value.unread
        assert isinstance(unread, Unread)
        saved = await world.store.end_unread(unread, End("failed", '{"text":"sorry"}'), '{"seq":2}')
        assert [each.message_id for each in saved.dispatches] == ["m2"]
        assert await world.store.end_unread(unread, End("failed", "{}"), "{}") is None
        publication = await world.store.publication("m1", 0)
        assert (publication.answer, len(publication.updates)) == ('{"text":"sorry"}', 2)

    play(scenario)


def test_a_missing_message_is_none(play) -> None:
    async def scenario(world) -> None:
        assert await world.store.load("none") is None
        assert await world.store.publication("none", 0) is None
        assert await world.store.timeline("none") is None
        assert await world.store.context("none", 20) == Context()
        assert await world.store.request_cancel("none") == "missing"

    play(scenario)


def test_the_context_is_what_was_said_before(play) -> None:
    async def scenario(world) -> None:
        for number, status in enumerate(["answered", "refused", "cancelled", "failed", "round_limit", "answered"]):
            await world.accept(f"m{number}", text=f"q{number}")
            await world.end(f"m{number}", status, f"a{number}")
        await world.accept("open", text="not ended")
        await world.accept("new")
        whole = (
            UserText("q0"),
            AssistantText("a0"),
            UserText("q1"),
            UserText("q2"),
            UserText("q3"),
            UserText("q4"),
            AssistantText("a4"),
            UserText("q5"),
            AssistantText("a5"),
        )

        assert (await world.store.context("new", 20)).history == whole
        assert (await world.store.context("new", 10)).history == whole
        assert (await world.store.context("new", 9)).history == whole[2:]
        assert (await world.store.context("new", 4)).history == whole[-2:]
        assert (await world.store.context("new", 2)).history == ()
        assert (await world.store.context("new", 1)).history == ()
        assert (await world.store.context("m0", 20)).history == ()

    play(scenario)


@pytest.mark.parametrize(
    ("status", "spoken"),
    [("round_limit", True), ("cancelled", False), ("failed", False), ("refused", False), ("answered", None)],
)
def test_what_an_unfinished_message_found_comes_with_the_next(play, status: str, spoken: bool | None) -> None:
    async def scenario(world) -> None:
        fence, queued = await world.begin("m1")
        asked = world.turn("a", "b", native="[1]")
        fence, state, _ = await world.round(fence, queued, asked, Result("1"), Result("2"))
        paused = world.turn(text="thinking")
        fence, state, _ = await world.round(fence, state, paused)
        ended = replace(state, stage=Ended(status, "so far", 1.0), seq=state.seq + 1)
        await world.save(fence, state, ended, End(status, '{"text":"so far"}'))
        await world.accept("m2")
        found = await world.store.context("m2", 20)
        context = found.history

        assert context[0] == UserText("hello")
        if spoken is None:
            assert context[1:] == (AssistantText("so far"),)
            assert found.recorded == ()
            return
        assert context[1].turn == replace(asked, native=None)
        assert context[1].results == (Result("1"), Result("2"))
        assert context[2:] == ((AssistantText("so far"),) if spoken else ())
        assert found.recorded == ((context[1], ("read", "read")),)

    play(scenario)


def test_a_job_is_recorded_from_its_beginning_on_through_an_aside_and_whatever_the_room(play) -> None:
    async def scenario(world) -> None:
        for number, status in enumerate(["answered", "round_limit", "refused", "answered", "cancelled", "failed"]):
            fence, queued = await world.begin(f"m{number}")
            fence, state, _ = await world.round(fence, queued, world.turn(f"call{number}"), Result(f"{number}"))
            ended = replace(state, stage=Ended(status, "so far", 1.0), seq=state.seq + 1)
            await world.save(fence, state, ended, End(status, '{"text":"so far"}'))
        await world.accept("new")

        for room in (20, 2, 1):
            recorded = (await world.store.context("new", room)).recorded
            assert [exchange.turn.calls[0].name for exchange, _ in recorded] == ["call1", "call2", "call4", "call5"]

    play(scenario)


def test_what_a_save_writes_does_not_grow_with_what_was_said(play_sqlite, tmp_path) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        log = tmp_path / "roundelay.db-wal"
        asked = world.turn("a", native="[" + "1," * 4000 + "1]")
        sizes = [log.stat().st_size]
        for _ in range(40):
            fence, state, _ = await world.round(fence, state, asked, Result("r" * 8000))
            sizes.append(log.stat().st_size)

        assert sizes[40] - sizes[30] < 1.5 * (sizes[15] - sizes[5])

    play_sqlite(scenario)
