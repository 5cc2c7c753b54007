"""Migrations as SQL. The one module of the worker that imports Alembic, and so SQLAlchemy."""

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from alembic import command
from alembic.config import Config

from roundelay_worker.migrations import VERSION_TABLE


def upgrade_sql(dialect: str, current: str | None) -> Iterator[str]:
    """Yield the statements that lead from revision ``current`` (None: an empty database) to the newest."""
    written = StringIO()
    config = Config(output_buffer=written, attributes={"dialect": dialect, "version_table": VERSION_TABLE})
    config.set_main_option("script_location", str(Path(__file__).parent))
    command.upgrade(config, f"{current}:head" if current else "head", sql=True)
    for statement in re.split(r";\s*\n", written.getvalue()):
        code = "\n".join(line for line in statement.splitlines() if not line.startswith("--")).strip()
        if code:
            yield code
