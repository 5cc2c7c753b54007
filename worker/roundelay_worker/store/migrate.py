"""Bring a database up to date: Alembic writes the SQL, the store's own driver runs it.

Safe when several processes do it at once: each looks at the version again under a lock. A database that a
newer version has migrated is left as it is, since migrations only add.
"""

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from roundelay_worker import migrations
from roundelay_worker.store.driver import Dialect, Driver, Query, Script

VERSION_TABLE: Final = "roundelay_version"
_FOLDER: Final = str(Path(migrations.__file__).parent)

_EXISTS: Final = {
    "postgresql": "SELECT 1 FROM pg_class WHERE oid = to_regclass($1)",
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1",
}
_CURRENT: Final = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 - a constant
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('roundelay_migrate'))"


def newest() -> str:
    """Return the revision that this version of the code wants."""
    return str(ScriptDirectory(_FOLDER).get_current_head())


def upgrade_sql(dialect: Dialect, current: str | None) -> Iterator[str]:
    """Yield the statements that lead from revision ``current`` (None: an empty database) to the newest."""
    written = StringIO()
    config = Config(output_buffer=written, attributes={"dialect": dialect, "version_table": VERSION_TABLE})
    config.set_main_option("script_location", _FOLDER)
    command.upgrade(config, f"{current}:head" if current else "head", sql=True)
    for statement in re.split(r";\s*\n", written.getvalue()):
        code = "\n".join(line for line in statement.splitlines() if not line.startswith("--")).strip()
        if code:
            yield code


async def migrate(driver: Driver) -> str:
    """Bring the database up to date; return its revision."""
    known = {revision.revision for revision in ScriptDirectory(_FOLDER).walk_revisions()}
    return await driver.run(lambda: _migration(driver.dialect, known))


def _migration(dialect: Dialect, known: set[str]) -> Script[str]:
    if dialect == "postgresql":
        yield Query(_LOCK)
    current = yield from _current(dialect)
    if current == newest() or (current is not None and current not in known):
        return current
    for statement in upgrade_sql(dialect, current):
        yield Query(statement)
    return newest()


def _current(dialect: Dialect) -> Script[str | None]:
    if not (yield Query(_EXISTS[dialect], (VERSION_TABLE,))):
        return None
    rows = yield Query(_CURRENT)
    return str(rows[0][0]) if rows else None


async def revision(driver: Driver) -> str | None:
    """Return the database's revision, None if it was never migrated."""
    return await driver.run(lambda: _current(driver.dialect), reading=True)
