"""What others saw, gathered at the end: the only witness of ours is the timeline, which is held against them."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import redis

from roundelay_worker.store.records import Timeline
from roundelay_worker.store.store import Store
from soak.chaos import Blow
from soak.journal import read
from soak.listener import Heard
from soak.webapp import Submitted

Json = dict[str, Any]


@dataclass(frozen=True)
class Evidence:
    """All records of a run."""

    submitted: tuple[Submitted, ...]
    last: tuple[Submitted, ...]
    """The further message that each conversation got at the end."""
    blows: tuple[Blow, ...]
    heard: tuple[Heard, ...]
    kept: dict[str, bytes]
    """The answers that Redis keeps, by message."""
    streams: dict[str, tuple[tuple[str, Json], ...]]
    """The updates that Redis keeps, by message: id and update."""
    lasting: tuple[str, ...]
    """Keys of Redis that never expire."""
    ran: tuple[Json, ...]
    """What the tools noted."""
    asked: tuple[Json, ...]
    """The requests that the model got."""
    refusals: tuple[Json, ...]
    timelines: dict[str, Timeline | None]
    strays: tuple[str, ...]
    """Messages of the database that no submit told of."""


def gather(
    *,
    redis_url: str,
    database_url: str,
    prefix: str,
    model_url: str,
    effects: Path,
    requests: Path,
    submitted: Sequence[Submitted],
    last: Sequence[Submitted],
    blows: Sequence[Blow],
    heard: Sequence[Heard],
    known: Sequence[str],
) -> Evidence:
    """Gather everything."""
    ids = [each.message_id for each in (*submitted, *last)]
    with redis.Redis.from_url(redis_url, socket_timeout=30) as client:
        kept = {each: body for each in ids if (body := client.get(f"{prefix}:answer:{each}")) is not None}
        streams = {each: _stream(client, f"{prefix}:updates:{each}") for each in ids}
        lasting = _lasting(client)
    timelines = asyncio.run(_timelines(database_url, ids))
    return Evidence(
        submitted=tuple(submitted),
        last=tuple(last),
        blows=tuple(blows),
        heard=tuple(heard),
        kept=kept,
        streams=streams,
        lasting=lasting,
        ran=tuple(read(effects)),
        asked=tuple(read(requests)),
        refusals=tuple(_look(model_url, "refusals")),
        timelines=timelines,
        strays=tuple(sorted(set(known) - set(ids))),
    )


def _look(url: str, what: str) -> list[Json]:
    with urlopen(f"{url}/_fake/{what}", timeout=30) as reply:
        found: list[Json] = json.loads(reply.read())
    return found


def _stream(client: redis.Redis, key: str) -> tuple[tuple[str, Json], ...]:
    entries: Any = client.xrange(key)
    return tuple((entry.decode(), json.loads(fields[b"update"])) for entry, fields in entries)


def _lasting(client: redis.Redis) -> tuple[str, ...]:
    return tuple(sorted(key.decode() for key in client.scan_iter(count=1000) if client.ttl(key) == -1))


async def _timelines(url: str, ids: Sequence[str]) -> dict[str, Timeline | None]:
    store = await Store.open(url)
    try:
        return {each: await store.timeline(each) for each in ids}
    finally:
        await store.close()
