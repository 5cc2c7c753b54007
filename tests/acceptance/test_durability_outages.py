"""Redis is away for a while: who submits is told at once, what runs goes on, and all begins again when it is back."""

import asyncio
import time

import pytest
from harness.services import health
from harness.waiting import eventually
from harness.words import call

from roundelay import AsyncClient, ServiceUnavailable
from roundelay_worker.cli.checks import redis_findings
from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.settings import Settings

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

AWAY = 8.0
"""Seconds, in which pauses that grow would have grown to six."""


def refusal(submit) -> float:
    """Return after how many seconds a submission was refused."""
    began = time.monotonic()
    with pytest.raises(ServiceUnavailable, match="Redis cannot be reached"):
        submit()
    return time.monotonic() - began


def submit_async(place, name: str) -> None:
    async def submit() -> None:
        async with AsyncClient(place.redis_url, prefix=place.prefix) as client:
            await client.submit(place.scripted({"text": "no"}, name=name))

    asyncio.run(submit())


def test_redis_that_is_away_is_told_at_once_holds_up_nothing_and_is_used_again_within_seconds(deploy, folder):
    home = folder / "valkey-away"  # A11, A18, rule 19
    with running_valkey(home) as url:
        place = deploy(redis_url=url)
        worker = place.start()
        steps = [call("look_async", tag=f"away{n}", seconds=0.1) for n in range(12)]
        running = place.ask(*steps, {"text": "went on"}, name="away", max_rounds=20)
        place.began("away0")
    gone = time.monotonic()
    assert refusal(lambda: place.ask({"text": "no"}, name="away-sync")) < 2
    assert refusal(lambda: submit_async(place, "away-async")) < 2
    assert health(place) == (1, "redis_unreachable")
    eventually(lambda: place.show(running.message_id).status == "answered", "it ends in the database", AWAY)
    time.sleep(max(0, gone + AWAY - time.monotonic()))
    with running_valkey(home):
        after = place.ask({"text": "after"}, name="away-after")
        assert place.settled(after, patience=4)[0].text == "after"
        assert place.settled(running)[0].text == "went on"
        assert [place.fake.count(name) for name in ("away-sync", "away-async", "away-after")] == [0, 0, 1]
        eventually(lambda: health(place) == (0, "ok"), "the probe is content", 5)
        assert worker.code is None
        place.sound_at_rest()


def test_a_redis_that_may_evict_is_told_of_at_the_start_and_found_by_the_doctor(deploy, folder):  # A22
    with running_valkey(folder / "valkey-evicting") as url:
        place = deploy("sqlite", redis_url=url)
        place.redis.config_set("maxmemory-policy", "allkeys-lru")
        worker = place.start()

        assert "ERROR redis_evicts maxmemory_policy=allkeys-lru" in worker.said
        found = [finding for finding in redis_findings(Settings.from_env(place.env)) if finding.verdict == "fault"]
        assert [finding.text for finding in found] == ["maxmemory-policy is allkeys-lru"]
        assert place.settled(place.ask({"text": "still"}, name="evicting"))[0].text == "still"
