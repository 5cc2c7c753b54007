"""Declarations and migrations come to the same tables, on both databases."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import asyncpg
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from roundelay_worker import migrations
from roundelay_worker.store import Store
from roundelay_worker.store.tables import METADATA, STORAGE

_CATALOG = """
SELECT 'column', table_name, column_name, data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '')
FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'roundelay_version'
UNION ALL
SELECT 'index', tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname = 'public' AND tablename <> 'roundelay_version'
UNION ALL
SELECT 'storage', relname, '', reloptions::text FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND reloptions IS NOT NULL
"""


def _declared(dialect) -> list[str]:
    statements = []
    for table in METADATA.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes]
    return statements


async def _migrated(url: str) -> None:
    store = await Store.open(url)
    await store.migrate()
    await store.close()


def test_on_postgresql(fresh_postgres) -> None:
    async def catalog(*statements: str) -> set[tuple[str, ...]]:
        connection = await asyncpg.connect(fresh_postgres)
        for statement in statements:
            await connection.execute(statement)
        rows = await connection.fetch(_CATALOG)
        await connection.close()
        return {tuple(row) for row in rows}

    asyncio.run(_migrated(fresh_postgres))
    migrated = asyncio.run(catalog())
    declared = asyncio.run(
        catalog(
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public",
            *_declared(postgresql.dialect()),
            *(f"ALTER TABLE {table} SET ({parameters})" for table, parameters in STORAGE.items()),
        )
    )

    assert len(migrated) > 80
    assert migrated == declared


def test_on_sqlite(tmp_path) -> None:
    def catalog(path: Path, *statements: str) -> dict[str, str]:
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        connection.close()
        return {name: "".join(sql.split()) for name, sql in rows if name != "roundelay_version"}

    asyncio.run(_migrated(f"sqlite:///{tmp_path / 'migrated.db'}"))
    migrated = catalog(tmp_path / "migrated.db")
    declared = catalog(tmp_path / "declared.db", *_declared(sqlite.dialect()))

    assert len(migrated) > 10
    assert migrated == declared


def test_the_list_of_revisions_is_that_of_the_files() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))

    assert [each.revision for each in scripts.walk_revisions()][::-1] == list(migrations.REVISIONS)


def test_a_worker_whose_database_is_up_to_date_loads_no_alembic(sqlite) -> None:
    code = """
import asyncio, sys
from roundelay_worker.store import Store

async def main(url):
    store = await Store.open(url)
    await store.migrate()
    await store.close()

asyncio.run(main(sys.argv[1]))
print({"alembic", "sqlalchemy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code, sqlite], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
