"""A message that may be deadly runs alone, and only its own doing speaks against it there."""

import os
import signal

import pytest
from harness.services import postgres_at
from harness.waiting import eventually
from harness.words import call

from roundelay.names import Status

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

LOST_ONCE = "UPDATE roundelay_messages SET losses = 1 WHERE ended_at IS NULL"


def test_who_is_frozen_told_to_go_or_left_alone_in_quarantine_is_run_again(deploy):  # A14, rule 10
    place = deploy(ROUNDELAY_SHUTDOWN_GRACE="1")
    first = place.start()
    names = {"frozen": 2, "told": 2, "killed": 3, "orphan": 2}
    jobs = [place.ask(call("linger", tag=name, times=n), {"text": "fine"}, name=name) for name, n in names.items()]
    leaving = place.ask(call("leave", tag="leaving"), {"text": "no"}, name="leaving")
    for name in (*names, "leaving"):
        place.began(name)
    postgres_at(place.env["ROUNDELAY_DATABASE_URL"], LOST_ONCE)
    first.kill()
    second = place.start()
    alone = {name: place.began(name, 2) for name in names}

    os.kill(alone["frozen"], signal.SIGSTOP)
    os.kill(alone["told"], signal.SIGTERM)
    again = [place.began(name, 3) for name in ("frozen", "told")]
    eventually(lambda: not _lives(alone["frozen"]), "a child that lost its lease is killed")
    second.kill()
    os.kill(alone["killed"], signal.SIGKILL)
    place.let_go("orphan")
    third = place.start()
    again.append(place.began("killed", 3))
    third.terminate()
    fourth = place.start()
    answers = place.settled(*jobs)
    (left,) = place.settled(leaving)

    assert [answer.status for answer in answers] == ["answered"] * 4
    assert third.ended() == 0
    workers = {first.pid, second.pid, third.pid, fourth.pid}
    assert len({*workers, *alone.values(), *again, place.began("killed", 4)}) == 4 + 4 + 3 + 1
    assert len(place.effects("orphan", "began")) == 2
    assert _ending(left) == ("failed", "worker_lost")
    assert len(place.effects("leaving", "began")) == 2
    place.sound_at_rest()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _ending(answer) -> tuple[Status, str | None]:
    return answer.status, answer.error and answer.error.code
