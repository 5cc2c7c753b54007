"""The outbox, the timeline, loose writes, counts, pruning, leases, migrations."""

import asyncio
import json
import sqlite3
import threading
from dataclasses import replace

import asyncpg
import pytest

from roundelay_worker.loop.history import Result, TurnUsage
from roundelay_worker.loop.state import CallPlan
from roundelay_worker.migrations import REVISIONS
from roundelay_worker.store import Store, StoreUnavailable, UnsuitableDatabase
from roundelay_worker.store.migrate import revision
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


def test_many_migrate_at_once(postgres_server, tmp_path, fresh_postgres) -> None:
    async def migrate(url: str) -> None:
        stores = [await Store.open(url) for _ in range(3)]
        assert await asyncio.gather(*(store.migrate() for store in stores)) == [REVISIONS[-1]] * 3
        assert await revision(stores[0]._driver) == REVISIONS[-1]
        for store in stores:
            await store.close()

    asyncio.run(migrate(fresh_postgres))
    asyncio.run(migrate(f"sqlite:///{tmp_path / 'new.db'}"))


def test_a_database_of_a_newer_version_is_left_as_it_is(play) -> None:
    async def scenario(world) -> None:
        await world.store._driver.fetch("UPDATE roundelay_version SET version_num = '9999'")

        found = await world.store.migrate()
        await world.store._driver.fetch("UPDATE roundelay_version SET version_num = $1", REVISIONS[-1])

        assert found == "9999"

    play(scenario)


def test_a_database_that_was_never_migrated_is_said_to_be_so(tmp_path, fresh_postgres) -> None:
    async def ask(url: str) -> None:
        store = await Store.open(url)
        with pytest.raises(UnsuitableDatabase):
            await store.load("m1")
        await store.close()

    asyncio.run(ask(f"sqlite:///{tmp_path / 'new.db'}"))
    asyncio.run(ask(fresh_postgres))


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///", "postgresql"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(UnsuitableDatabase):
        asyncio.run(Store.open(url))


def test_a_server_that_is_not_there_is_unavailable(tmp_path) -> None:
    with pytest.raises(StoreUnavailable):
        asyncio.run(Store.open(f"postgresql:///x?host={tmp_path}"))


def test_a_store_heals_after_its_connections_were_cut(play_postgres) -> None:
    async def scenario(world) -> None:
        await world.accept("m1")
        keeper = world.store.lease("p", 60.0)
        assert await asyncio.to_thread(keeper.renew)
        await asyncio.gather(*(world.store.load("m1") for _ in range(4)))
        admin = await asyncpg.connect(world.url)
        await admin.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'roundelay' AND datname = current_database()"
        )
        await admin.close()

        assert (await world.store.load("m1")).message_id == "m1"
        await world.claim("m1")
        assert await asyncio.to_thread(keeper.renew)
        await asyncio.to_thread(keeper.close)

    play_postgres(scenario)


def test_a_statement_cut_in_the_middle_is_not_repeated_unless_harmless(play_postgres) -> None:
    async def scenario(world) -> None:
        driver = world.store._driver
        cut = "SELECT pg_terminate_backend(pg_backend_pid()) FROM (SELECT count(*) FROM roundelay_processes) AS c"
        with pytest.raises(StoreUnavailable):
            await driver.fetch(cut)
        assert await world.store.now() > 0

    play_postgres(scenario)


def test_a_cancelled_statement_does_not_spoil_the_pool(play_postgres) -> None:
    async def scenario(world) -> None:
        for _ in range(10):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await world.store._driver.fetch("SELECT pg_sleep(5)")
        answers = await asyncio.gather(*(world.store.now() for _ in range(20)))

        assert len(answers) == 20

    play_postgres(scenario)


def test_a_file_held_by_another_process_is_busy_and_then_is_not(play_sqlite, tmp_path) -> None:
    async def scenario(world) -> None:
        other = sqlite3.connect(tmp_path / "roundelay.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        accepting = asyncio.create_task(world.accept("m1"))
        await asyncio.sleep(1.6)
        other.execute("COMMIT")
        other.close()

        assert (await accepting).fresh

    play_sqlite(scenario)


def test_a_rounds_updates_touch_no_index(play_fresh_postgres) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        fence, state, saved = await world.round(fence, state, world.turn("a"), Result("1"), then=HandOn())
        before = await _updates(world, 2)
        for _ in range(10):
            claim = await world.claim("m1", dispatch=saved.dispatches[0].dispatch)
            fence, state, saved = await world.round(claim.fence, state, world.turn("a"), Result("1"), then=HandOn())
        total, hot = await _updates(world, before[0] + 20)

        assert total - before[0] == 20
        assert hot - before[1] == 20

    async def _updates(world, wanted: int) -> tuple[int, int]:
        sql = (
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables, pg_stat_force_next_flush()"
            " WHERE relname = 'roundelay_messages'"
        )
        for _ in range(200):
            rows = await world.store._driver.fetch(sql)
            if rows[0][0] >= wanted:
                return rows[0][0], rows[0][1]
            await asyncio.sleep(0.02)
        raise AssertionError(rows)

    play_fresh_postgres(scenario)


def test_bodies_of_updates_come_back_byte_for_byte(play) -> None:
    async def scenario(world) -> None:
        fence, state = await world.begin("m1")
        body = '{"b": 1, "a":[ 1.0, "é\\u0000" ],  "z":null}'
        await world.save(fence, state, replace(state, seq=2), updates=((2, body),))
        publication = await world.store.publication("m1", 1)

        assert publication.updates == ((2, body),)
        assert json.loads(body)["a"][0] == 1.0

    play(scenario)
