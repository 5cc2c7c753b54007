"""``roundelay healthz``: for probes; one line, and an exit code."""

import asyncio
import sys
from collections.abc import Mapping

from redis.exceptions import RedisError

from roundelay_worker.cli.checks import connect_redis
from roundelay_worker.cli.parser import Options
from roundelay_worker.settings import Settings
from roundelay_worker.store.errors import StoreError
from roundelay_worker.store.store import Store


def run(options: Options, env: Mapping[str, str]) -> int:  # noqa: ARG001  # every command is called alike
    """Exit 0 if Redis and database answer and a worker process is alive, else 1 with the reason."""
    settings = Settings.from_env(env)
    reason = _redis_reason(settings) or asyncio.run(_store_reason(settings))
    sys.stdout.write(f"{reason or 'ok'}\n")
    return 1 if reason else 0


def _redis_reason(settings: Settings) -> str:
    try:
        with connect_redis(settings) as connection:
            connection.ping()
    except (RedisError, OSError) as exc:
        return f"redis_unreachable: {type(exc).__name__}"
    return ""


async def _store_reason(settings: Settings) -> str:
    try:
        store = await Store.open(settings.database_url)
    except StoreError as exc:
        return f"database_unreachable: {type(exc).__name__}"
    try:
        return "" if (await store.counts()).processes else "no_worker: no worker process has a live lease"
    except StoreError as exc:
        return f"database_unusable: {type(exc).__name__}"
    finally:
        await store.close()
