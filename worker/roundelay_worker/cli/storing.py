"""The database, for commands that look at it or tidy it up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from roundelay_worker.cli.failed import CommandFailed
from roundelay_worker.settings import Settings
from roundelay_worker.store.errors import StoreError
from roundelay_worker.store.store import Store


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    """Keep the store open; raise CommandFailed with what to mend if it cannot be used."""
    try:
        store = await Store.open(settings.database_url)
        try:
            yield store
        finally:
            await store.close()
    except StoreError as exc:
        raise CommandFailed(f"{exc}; check ROUNDELAY_DATABASE_URL, or ask roundelay doctor") from exc
