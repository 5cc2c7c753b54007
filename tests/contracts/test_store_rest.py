"""The outbox, the timeline, loose writes, counts, pruning, leases."""

import asyncio
import threading
from dataclasses import replace

from roundelay_worker.loop.history import Result, TurnUsage
from roundelay_worker.loop.state import CallPlan
from roundelay_worker.store import Store
from roundelay_worker.store.records import HandOn


def _seqs(publications) -> dict[str, list[int]]:
    return {each.message_id: [seq for seq, _ in each.updates] for each in publications}


def test_what_was_not_published_is_found_until_it_is_marked(play) -> None:
    async def scenario(world) -> None:
        store = world.store
        await world.accept("m1", "c1")
        await world.accept("m2", "c2")
        assert await store.unpublished(60.0, 10) == ()
        assert _seqs(await store.unpublished(-1.0, 10)) == {"m1": [1], "m2": [1]}
        await store.mark_published([("m1", 1), ("m2", 1), ("none", 5)])
        assert await store.unpublished(-1.0, 10) == ()
        fence = (await world.claim("m1")).fence
        state = (await store.load("m1")).state
        fence, state, _ = await world.round(fence, state, world.turn("a"), Result("1"))
        assert _seqs(await store.unpublished(-1.0, 10)) == {"m1": [2]}
        saved = await world.save(fence, state, world.running(state, world.turn("b")), published=2)
        assert _seqs(await store.unpublished(-1.0, 10)) == {"m1": [3]}
        await world.end("m1", fence=replace(fence, version=saved.version))
        (ended,) = await store.unpublished(-1.0, 10)
        assert (ended.status, ended.answer, [seq for seq, _ in ended.updates]) == (
            "answered",
            '{"text":"done"}',
            [3, 4],
        )
        await store.mark_published([("m1", 3)])
        assert _seqs(await store.unpublished(-1.0, 10)) == {"m1": [4]}
        await store.mark_published([("m1", 4), ("m1", 2)])
        assert await store.unpublished(-1.0, 10) == ()
        assert (await store.timeline("m1")).published == 4

    play(scenario)


def test_after_a_flush_everything_can_be_told_again(play) -> None:
    async def scenario(world) -> None:
        for number in range(5):
            await world.accept(f"m{number}", f"c{number}", idempotency=f"m{number} digest")
        now = await world.store.now()
        await world.end("m3")
        await world.end("m1")
        live = await world.store.live_messages(2)
        rest = await world.store.live_messages(2, after_id=live[-1].message_id)
        answers = await world.store.recent_answers(now, 10)

        assert [each.message_id for each in (*live, *rest)] == ["m0", "m2", "m4"]
        assert [each.message_id for each in answers] == ["m3", "m1"]
        assert _seqs(answers) == {"m3": [1, 2], "m1": [1, 2]}
        assert answers[0].idempotency == "m3 digest"
        assert await world.store.recent_answers(now + 60, 10) == ()

    play(scenario)


def test_a_publication_starts_after_what_is_known(play) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        await world.round(fence, state, world.turn("a"), Result("1"))
        some = await world.store.publication("m1", 1)
        nothing = await world.store.publication("m1", 2)

        assert (some.first_seq, some.updates) == (2, ((2, '{"seq":2}'),))
        assert (nothing.first_seq, nothing.updates) == (3, ())
        assert (some.seq, some.round, some.status) == (2, 2, "queued")

    play(scenario)


def test_the_timeline_has_turns_calls_and_tokens(play) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        asked = replace(world.turn("a", text="look"), usage=TurnUsage(10, 2))
        running = world.running(state, asked, "started", CallPlan("write", idempotent=True))
        saved = await world.save(fence, state, running)
        done = world.finished(running, asked, Result("found"))
        await world.save(replace(fence, version=saved.version), running, done)
        await world.store.mark_loose("m1", 1, 0, "p")
        timeline = await world.store.timeline("m1")
        (turn,) = timeline.turns
        (call,) = turn.calls

        assert (turn.round, turn.text, turn.input_tokens, turn.output_tokens) == (1, "look", 10, 2)
        assert turn.origin == "chat:m@http://x"
        assert (call.name, call.effect, call.status, call.result, call.executor, call.loose) == (
            "a",
            "write",
            "done",
            "found",
            "p",
            True,
        )
        assert call.started_at <= call.finished_at
        assert [seq for seq, _ in timeline.updates] == [1, 2, 3]
        assert (timeline.position, timeline.status, timeline.owner, timeline.attempt) == (1, "queued", "p", 0)

    play(scenario)


def test_a_loose_write_holds_its_conversation_while_its_process_lives(play) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        asked = world.turn("a")
        await world.save(fence, state, world.running(state, asked, "started"))
        assert not await world.store.loose_write("u", "c")
        await world.store.mark_loose("m1", 1, 0, "p")
        assert await world.store.loose_write("u", "c")
        assert not await world.store.loose_write("u", "other")
        await world.store.record_late("m1", 1, 0, "p", "late\0\ud800")
        assert not await world.store.loose_write("u", "c")
        await world.store.mark_loose("m1", 1, 0, "p")
        await world.store.mark_dead("p")
        assert not await world.store.loose_write("u", "c")

    play(scenario)


def test_a_late_result_is_kept_beside_the_one_that_counts(play) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        await world.round(fence, state, world.turn("a"), Result("timed out", is_error=True))
        await world.store.mark_loose("m1", 1, 0, "p")
        await world.store.record_late("m1", 1, 0, "p", "late\0\ud800")
        call = (await world.store.timeline("m1")).turns[0].calls[0]

        assert (call.result, call.late_result, call.loose) == ("timed out", "late\0\ud800", False)
        assert (await world.store.load("m1")).state.sequence[0].results == (Result("timed out", is_error=True),)

    play(scenario)


def test_what_the_start_resolved_is_kept_as_it_was_first(play) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        assert (await world.store.load("m1")).resolved is None
        first = await world.save(fence, state, state, resolved='{"model":"a"}')
        second = await world.save(replace(fence, version=first.version), state, state)
        await world.save(replace(fence, version=second.version), state, state, resolved='{"model":"b"}')

        assert (await world.store.load("m1")).resolved == '{"model":"a"}'

    play(scenario)


def test_counts_say_where_messages_stand(play) -> None:
    async def scenario(world) -> None:
        now = await world.store.now()
        await world.accept("ready", "c1", submitted_at=now - 50)
        await world.accept("parked", "c1")
        await world.begin("running", "c2")
        fence, state = await world.begin("handed", "c3")
        await world.round(fence, state, world.turn("a"), Result("1"), then=HandOn())
        await world.store.register("q", "host", 2, 60.0)
        await world.accept("orphan", "c4")
        await world.claim("orphan", "q")
        await world.store.renew("q", -1.0)
        await world.begin("ended", "c5")
        await world.end("ended")
        counts = await world.store.counts()

        assert (counts.ready, counts.running, counts.parked, counts.postponed) == (2, 2, 1, 0)
        assert (counts.running_without_worker, counts.ended, counts.processes) == (1, 1, 1)
        assert 49 < counts.oldest_ready < 60

    play(scenario)


def test_pruning_takes_whole_ended_messages_and_nothing_else(play) -> None:
    async def scenario(world) -> None:
        store = world.store
        for number in range(3):
            fence, state = await world.begin(f"m{number}", f"c{number}")
            await world.round(fence, state, world.turn("a"), Result("1"))
        await world.end("m0")
        await world.end("m1")
        await world.accept("m1b", "c1")
        now = await store.now()
        assert await store.prune(now - 60, 10) == 0
        assert await store.prune(now + 1, 1) == 1
        assert await store.prune(now + 1, 10) == 1
        assert await store.prune(now + 1, 10) == 0

        assert await store.load("m0") is None
        for table, left in (("turns", 1), ("calls", 1), ("updates", 1), ("messages", 2), ("conversations", 2)):
            rows = await store._driver.fetch(f"SELECT count(*) FROM roundelay_{table}")
            assert (table, rows[0][0]) == (table, left)
        assert (await world.accept("m0", "c0")).after is None
        assert (await world.accept("m1c", "c1")).after == "m1b"

    play(scenario)


def test_processes_long_dead_are_forgotten(play) -> None:
    async def scenario(world) -> None:
        await world.store.register("q", "host", 2, -100.0)
        await world.store.release_lost(10)
        await world.store._driver.fetch("UPDATE roundelay_processes SET lost_at = lost_at - 100 WHERE id = 'q'")
        await world.store.release_lost(10)
        now = await world.store.now()
        await world.store.prune(now + 1, 10)
        rows = await world.store._driver.fetch("SELECT id FROM roundelay_processes")

        assert [row[0] for row in rows] == ["p"]

    play(scenario)


def test_the_outbox_of_web_apps_is_read_and_emptied(play) -> None:
    async def scenario(world) -> None:
        for number in range(3):
            await world.store._driver.fetch(
                "INSERT INTO roundelay_outbox (message_id, submission, created_at)"
                f" VALUES ('m{number}', '{{}}', {9 - number})"
            )
        rows = await world.store.outbox_rows(2)
        await world.store.delete_outbox([row.message_id for row in rows])

        assert [row.message_id for row in rows] == ["m2", "m1"]
        assert [row.message_id for row in await world.store.outbox_rows(9)] == ["m0"]
        assert await world.store.outbox_rows(9, {"m0"}) == ()

    play(scenario)


def test_the_database_keeps_its_id(play) -> None:
    async def scenario(world) -> None:
        other = await Store.open(world.url)
        first, second = await asyncio.gather(world.store.database_id(), other.database_id())
        await other.close()

        assert first == second == await world.store.database_id()

    play(scenario)


def test_a_lease_is_renewed_from_another_thread(play) -> None:
    async def scenario(world) -> None:
        await world.store.register("q", "host", 2, -1.0)
        said = []
        renewed, done = threading.Event(), threading.Event()

        def keep() -> None:
            keeper = world.store.lease("q", 60.0)
            said.append(keeper.renew())
            renewed.set()
            done.wait(10)
            said.append(keeper.renew())
            keeper.close()

        thread = threading.Thread(target=keep)
        thread.start()
        assert await asyncio.to_thread(renewed.wait, 10)
        assert await world.store.release_lost(1) == ()
        await world.store.retire("q")
        done.set()
        await asyncio.to_thread(thread.join)

        assert said == [True, False]

    play(scenario)
