"""Migrations as SQL: ``python -m roundelay_worker.migrations.render DIALECT [REVISION]`` prints a JSON list.

The one module of the worker that imports Alembic, and so SQLAlchemy.
"""

import json
import re
import sys
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


if __name__ == "__main__":
    named, *after = sys.argv[1:]
    sys.stdout.write(json.dumps([*upgrade_sql(named, after[0] if after else None)]))
