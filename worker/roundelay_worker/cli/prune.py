"""``roundelay prune``: deletes what ended long ago; worker processes do the same by themselves."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Final

from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.storing import opened
from roundelay_worker.settings import Settings

_AT_ONCE: Final = 500


def run(options: Options, env: Mapping[str, str]) -> int:
    """Delete messages that ended longer ago than asked for, in small transactions."""
    settings = Settings.from_env(env)
    age = settings.retention if options.older_than is None else options.older_than
    sys.stdout.write(f"{asyncio.run(_prune(settings, age))} messages deleted\n")
    return 0


async def _prune(settings: Settings, age: float) -> int:
    async with opened(settings) as store:
        before, deleted = await store.now() - age, 0
        while pruned := await store.prune(before, _AT_ONCE):
            deleted += pruned
        return deleted
