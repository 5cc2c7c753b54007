"""Bring a database up to date: Alembic writes the SQL, the store's own driver runs it.

Safe when several processes do it at once: each looks at the version again under a lock. A database that a
newer version has migrated is left as it is, since migrations only add.
"""

import json
import subprocess
import sys
from functools import cache
from typing import Final

from roundelay_worker.migrations import REVISIONS, VERSION_TABLE
from roundelay_worker.store.driver import Dialect, Driver, Query, Script

_EXISTS: Final = {
    "postgresql": "SELECT 1 FROM pg_class WHERE oid = to_regclass($1)",
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1",
}
_CURRENT: Final = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 - a constant
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('roundelay_migrate'))"


async def migrate(driver: Driver) -> str:
    """Bring the database up to date; return its revision."""
    current = await revision(driver)
    return current if current is not None and _good(current) else await driver.run(lambda: _migration(driver.dialect))


async def revision(driver: Driver) -> str | None:
    """Return the database's revision, None if it was never migrated."""
    return await driver.run(lambda: _current(driver.dialect), reading=True)


def _good(current: str) -> bool:
    """Say whether a revision is the newest, or of a newer version than this one."""
    return current == REVISIONS[-1] or current not in REVISIONS


def _migration(dialect: Dialect) -> Script[str]:
    if dialect == "postgresql":
        yield Query(_LOCK)
    current = yield from _current(dialect)
    if current is not None and _good(current):
        return current
    for statement in _statements(dialect, current):
        yield Query(statement)
    return REVISIONS[-1]


@cache
def _statements(dialect: Dialect, current: str | None) -> tuple[str, ...]:
    """Have Alembic write the SQL in a process of its own: here it would stay in memory, 20 MB with SQLAlchemy."""
    command = [sys.executable, "-m", "roundelay_worker.migrations.render", dialect, *([current] if current else [])]
    written = subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own module
    return tuple(json.loads(written.stdout))


def _current(dialect: Dialect) -> Script[str | None]:
    if not (yield Query(_EXISTS[dialect], (VERSION_TABLE,))):
        return None
    rows = yield Query(_CURRENT)
    return str(rows[0][0]) if rows else None
