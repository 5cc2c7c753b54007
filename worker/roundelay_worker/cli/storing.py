"""The database, for commands that look at it or tidy it up."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from roundelay_worker.cli.failed import CommandFailed
from roundelay_worker.settings import Settings
from roundelay_worker.store.errors import StoreError, UnsuitableDatabase
from roundelay_worker.store.store import Store, file_of


async def open_existing(settings: Settings) -> Store:
    """Open the store without making what is not there: whoever only looks leaves no empty database behind."""
    file = file_of(settings.database_url)
    if file is not None and not os.path.exists(file):  # noqa: PTH110, ASYNC240  # one look, and nothing else runs
        raise UnsuitableDatabase(f"there is no SQLite file {file}: the first worker makes it")
    return await Store.open(settings.database_url)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    """Keep the store open; raise CommandFailed with what to mend if it cannot be used."""
    try:
        store = await open_existing(settings)
        try:
            yield store
        finally:
            await store.close()
    except StoreError as exc:
        raise CommandFailed(f"{exc}; check ROUNDELAY_DATABASE_URL, or ask roundelay doctor") from exc
