"""Redis is away for a while: who submits is told at once, what runs goes on, and all begins again when it is back."""

import asyncio
import io
import time
from contextlib import redirect_stdout

import pytest
from harness.proxy import proxied
from harness.waiting import eventually
from harness.words import call

from roundelay import AsyncClient, ServiceUnavailable
from roundelay_worker.cli import healthz
from roundelay_worker.cli.parser import parser
from roundelay_worker.embedded_valkey import running_valkey

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

AWAY = 8.0
"""Seconds, in which pauses that grow would have grown to six."""


def health(place) -> tuple[int, str]:
    """Return what a probe sees: the exit code, and the reason."""
    with redirect_stdout(io.StringIO()) as said:
        code = healthz.run(parser().parse_args(["healthz"]), place.env)
    return code, said.getvalue().partition(":")[0].strip()


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


def test_a_worker_that_does_not_hear_its_broker_says_so_and_consumes_again(deploy, valkey):  # A18, A19, D6
    """The broker's sockets alone are lost: all else of the worker shows that it is well."""
    with proxied(valkey) as proxy:
        place = deploy("sqlite")
        worker = place.start(ROUNDELAY_BROKER_URL=proxy.url)
        eventually(lambda: health(place) == (0, "ok"), "the probe is content", 5)

        proxy.blackhole()
        eventually(lambda: health(place) == (1, "not_consuming"), "the probe fails", 15)
        proxy.heal()

        assert place.settled(place.ask({"text": "heard"}, name="heard"), patience=12)[0].text == "heard"
        eventually(lambda: health(place) == (0, "ok"), "the probe is content", 5)
        assert worker.code is None
