"""``roundelay healthz``: for probes; one line, and an exit code."""

import asyncio
import socket
import sys
from collections.abc import Mapping

import redis
from redis.exceptions import RedisError

from roundelay.names import alive_key
from roundelay_worker.cli.connecting import connect_redis
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.storing import open_existing
from roundelay_worker.process.heartbeat import frozen, silent_after
from roundelay_worker.settings import Settings
from roundelay_worker.store.errors import StoreError


def run(options: Options, env: Mapping[str, str]) -> int:
    """Exit 0 if Redis and database answer and a worker process is alive, else 1 with the reason.

    With ``--live`` only this is asked: whether a worker process of this machine is frozen, and must be ended.
    """
    settings = Settings.from_env(env)
    if options.live:
        return _live(silent_after(settings.lease))
    reason = _redis_reason(settings) or asyncio.run(_store_reason(settings))
    sys.stdout.write(f"{reason or 'ok'}\n")
    return 1 if reason else 0


def _live(silent: float) -> int:
    stuck = list(frozen(silent))
    sys.stdout.write("frozen: a worker process runs no Python any more\n" if stuck else "ok\n")
    return 1 if stuck else 0


def _redis_reason(settings: Settings) -> str:
    try:
        with connect_redis(settings) as connection:
            connection.ping()
            return _worker_reason(connection, settings)
    except (RedisError, OSError) as exc:
        return f"redis_unreachable: {type(exc).__name__}"


def _worker_reason(connection: redis.Redis, settings: Settings) -> str:
    """Return what is wrong with the worker processes of this machine, by what they show of themselves."""
    own = alive_key(settings.prefix, f"{socket.gethostname()}-*")
    conditions = [connection.get(key) for key in connection.scan_iter(own, count=1000)]
    if "consuming" in conditions:
        return ""
    return "not_consuming: a worker process lives but takes no work" if conditions else ""


async def _store_reason(settings: Settings) -> str:
    try:
        store = await open_existing(settings)
    except StoreError as exc:
        return f"database_unreachable: {type(exc).__name__}"
    try:
        return "" if (await store.counts()).processes else "no_worker: no worker process has a live lease"
    except StoreError as exc:
        return f"database_unusable: {type(exc).__name__}"
    finally:
        await store.close()
