"""Sockets that nobody answers and nobody closes, as a lost network leaves them, and a server that freezes."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.proxy import proxied
from harness.services import create_database, health
from harness.waiting import eventually
from harness.words import call

from roundelay.names import control_channel
from roundelay_worker.embedded.postgres import running_postgres
from roundelay_worker.process.lease import EXIT_LEASE_LOST

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


def listeners(place) -> int:
    return place.redis.pubsub_numsub(control_channel(place.prefix))[0][1]


def quick(place, name: str):
    return [place.ask({"text": "quick"}, name=f"{name}{n}") for n in range(8)]


@contextmanager
def frozen(cluster: Path) -> Iterator[None]:
    """Stop a PostgreSQL server with all its processes; its sockets stay open, and new ones are not answered."""
    server = int((cluster / "postmaster.pid").read_text().split()[0])
    os.kill(server, signal.SIGSTOP)
    pids = [server, *map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split())]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_worker_whose_redis_is_a_black_hole_delays_nobody_and_heals(deploy, valkey):  # A18, A19, D6, rule 19
    """All of Redis is lost to one worker; another, elsewhere, only does not hear its broker any more."""
    place, elsewhere = deploy(), deploy("sqlite")
    with proxied(valkey) as proxy:
        cut_off = place.start(ROUNDELAY_REDIS_URL=proxy.url)
        deaf = elsewhere.start(ROUNDELAY_BROKER_URL=proxy.url)
        held = place.ask(call("act", tag="dark", before=3), {"text": "held"}, name="dark")
        assert place.began("dark") == cut_off.pid
        other = place.start()
        steps = [call("look_async", tag=f"deaf{n}", seconds=0.2) for n in range(12)]
        rounds = [elsewhere.ask(*steps, {"text": "went on"}, name=f"deaf{n}", max_rounds=20) for n in range(3)]
        elsewhere.began("deaf0")
        eventually(lambda: health(elsewhere) == (0, "ok"), "the probe is content")

        proxy.blackhole()
        assert {answer.text for answer in place.settled(*quick(place, "dark"), patience=10)} == {"quick"}
        assert place.settled(held, patience=15)[0].text == "held"
        assert [answer.text for answer in elsewhere.settled(*rounds, patience=15)] == ["went on"] * 3
        eventually(lambda: health(elsewhere) == (1, "not_consuming"), "the probe fails", 20)
        other.kill()
        proxy.heal()

        eventually(lambda: listeners(place) == 1, "it listens again", 15)
        after = place.ask(call("act", tag="light"), {"text": "light"}, name="light")
        heard = elsewhere.ask({"text": "heard"}, name="heard")
        assert [answer.text for answer in (after.wait(12), heard.wait(12))] == ["light", "heard"]
        eventually(lambda: health(elsewhere) == (0, "ok"), "the probe is content", 5)
        assert [worker.code for worker in (cut_off, deaf)] == [None, None]
        assert [len(place.effects(tag)) for tag in ("dark", "light")] == [1, 1]
        place.sound_at_rest()


def test_a_worker_whose_database_is_a_black_hole_delays_nobody_and_ends(deploy):  # D6, rule 6
    place = deploy()
    with proxied(place.env["ROUNDELAY_DATABASE_URL"]) as proxy:
        cut_off = place.start(ROUNDELAY_DATABASE_URL=proxy.url)
        held = place.ask(call("look_async", tag="hole", seconds=2), {"text": "held"}, name="hole")
        assert place.began("hole") == cut_off.pid
        place.start()

        proxy.blackhole()
        assert {answer.text for answer in place.settled(*quick(place, "hole"), patience=10)} == {"quick"}
        assert place.settled(held, patience=10)[0].text == "held"
        proxy.heal()

        assert cut_off.ended() == EXIT_LEASE_LOST
        place.sound_at_rest()


def test_a_lone_worker_outlives_a_database_that_was_a_black_hole(deploy):  # D6
    place = deploy()
    with proxied(place.env["ROUNDELAY_DATABASE_URL"]) as proxy:
        worker = place.start(ROUNDELAY_DATABASE_URL=proxy.url)
        place.settled(*[place.ask({"text": "before", "delay": 0.5}, name=f"before{n}") for n in range(8)])
        proxy.blackhole()
        eventually(lambda: "lease_not_renewed" in worker.said, "it notices")
        proxy.heal()

        assert {answer.text for answer in place.settled(*quick(place, "lone"), patience=10)} == {"quick"}
        assert worker.code is None


def test_a_frozen_database_that_thaws_loses_and_repeats_nothing(deploy, folder):  # D6, D23
    home = folder / "postgres-frozen"
    with running_postgres(home) as url:
        place = deploy(create_database(url, "frozen"))
        workers = [place.start(), place.start()]
        writing = place.ask(call("act", tag="ice", before=1), {"text": "wrote"}, name="ice")
        place.began("ice")
        with frozen(home / "cluster"):
            thinking = place.ask({"text": "thought", "delay": 2}, name="ice-model")
            for worker in workers:
                eventually(lambda worker=worker: worker.said.count("lease_not_renewed") > 1, "it has lost its lease")

        answers = place.settled(writing, thinking, *quick(place, "ice"), patience=15)

        assert [answer.text for answer in answers] == ["wrote", "thought", *["quick"] * 8]
        assert len(place.effects("ice")) == 1
        assert [answer.uncertain for answer in answers] == [()] * 10
        assert [worker.code for worker in workers] == [None, None]
        place.sound_at_rest()
