"""What lies on a disk that others share is its owner's alone."""

import asyncio
import os
import stat
from pathlib import Path

from roundelay_worker.store import Store


def modes(folder: Path) -> set[str]:
    return {oct(stat.S_IMODE(file.stat().st_mode)) for file in folder.glob("db*")}


def test_a_new_sqlite_file_is_readable_by_its_owner_only(tmp_path: Path):
    async def story() -> set[str]:
        store = await Store.open(f"sqlite:///{tmp_path}/db")
        await store.migrate()
        try:
            return modes(tmp_path)
        finally:
            await store.close()

    before = os.umask(0o022)
    try:
        assert asyncio.run(story()) == {"0o600"}
    finally:
        os.umask(before)
