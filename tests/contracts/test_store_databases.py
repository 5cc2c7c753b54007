"""Databases themselves: migrations, versions, connections that break, what a round costs them."""

import asyncio
import json
import sqlite3
from dataclasses import replace

import asyncpg
import pytest

from roundelay_worker.loop.history import Result
from roundelay_worker.migrations import REVISIONS
from roundelay_worker.store import Store, StoreUnavailable, UnsuitableDatabase
from roundelay_worker.store.migrate import revision
from roundelay_worker.store.records import HandOn


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
