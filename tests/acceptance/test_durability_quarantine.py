"""A message that may be deadly runs alone, and only its own doing speaks against it there."""

import os
import signal
from contextlib import suppress

import pytest
from harness.services import postgres_at
from harness.waiting import eventually
from harness.words import call

from roundelay.names import Status

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

UNDER_WAY = "SELECT count(*) FROM roundelay_calls WHERE status = 'started'"
LOST_ONCE = "UPDATE roundelay_messages SET losses = 1 WHERE ended_at IS NULL"


def test_what_befalls_a_process_speaks_against_no_message_that_runs_alone_in_it(deploy):  # A14, rule 10
    place = deploy(ROUNDELAY_SHUTDOWN_GRACE="1")
    workers = [place.start()]
    frozen = place.ask(call("linger", tag="frozen", times=2), {"text": "fine"}, name="frozen")
    unlucky = place.ask(call("linger", tag="unlucky", times=3), {"text": "fine"}, name="unlucky")
    deadly = place.ask(call("leave", tag="deadly"), {"text": "no"}, name="deadly")
    for tag in ("frozen", "unlucky", "deadly"):
        place.began(tag)
    _lost_once(place, 3)
    workers[-1].kill()
    workers.append(place.start())

    os.kill(place.began("frozen", 2), signal.SIGSTOP)
    place.began("unlucky", 2)
    (given_up,) = place.settled(deadly)
    workers.append(place.start())
    workers[1].terminate()
    with_its_worker = place.began("unlucky", 3)
    gone_on = place.settled(frozen)
    assert workers[1].ended() == 0, "also from a child that cannot hear that it is to go"
    workers[2].kill()
    os.kill(with_its_worker, signal.SIGKILL)
    workers.append(place.start())
    gone_on += place.settled(unlucky)

    assert [_ending(answer) for answer in (given_up, *gone_on)] == [
        ("failed", "worker_lost"),
        *[("answered", None)] * 2,
    ]
    assert [len(place.effects(tag, "began")) for tag in ("frozen", "unlucky", "deadly")] == [3, 4, 2]
    alone = [pid for tag in ("frozen", "unlucky", "deadly") for _, pid, _ in place.effects(tag, "began")[1:]]
    assert len({*alone, *(worker.pid for worker in workers)}) == 6 + 4
    place.sound_at_rest()


def test_a_message_that_takes_all_down_with_it_every_time_is_given_up(deploy):  # A17, rule 10
    place = deploy()
    workers = [place.start()]
    cursed = place.ask(call("linger", tag="cursed", times=9), {"text": "no"}, name="cursed")
    place.began("cursed")
    _lost_once(place, 1)
    for number in (1, 2, 3):
        pid = place.began("cursed", number)
        workers[-1].kill()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        workers.append(place.start())

    (given_up,) = place.settled(cursed)

    assert _ending(given_up) == ("failed", "worker_lost")
    assert len(place.effects("cursed", "began")) == 3
    place.sound_at_rest()


def _lost_once(place, calls: int) -> None:
    """Have each message lost once already at its step, which is the call that is under way."""
    url = place.env["ROUNDELAY_DATABASE_URL"]
    eventually(lambda: postgres_at(url, UNDER_WAY)[0][0] == calls, "the calls are saved")
    postgres_at(url, LOST_ONCE)


def _ending(answer) -> tuple[Status, str | None]:
    return answer.status, answer.error and answer.error.code
