"""A message that may be deadly runs alone, and only its own doing speaks against it there."""

import os
import signal

import pytest
from harness.services import postgres_at
from harness.words import call

from roundelay.names import Status

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

LOST_ONCE = "UPDATE roundelay_messages SET losses = 1 WHERE ended_at IS NULL"


def test_what_befalls_a_process_speaks_against_no_message_that_runs_alone_in_it(deploy):  # A14, rule 10
    place = deploy(ROUNDELAY_SHUTDOWN_GRACE="1")
    workers = [place.start()]
    frozen = place.ask(call("linger", tag="frozen", times=2), {"text": "fine"}, name="frozen")
    unlucky = place.ask(call("linger", tag="unlucky", times=3), {"text": "fine"}, name="unlucky")
    deadly = place.ask(call("leave", tag="deadly"), {"text": "no"}, name="deadly")
    for tag in ("frozen", "unlucky", "deadly"):
        place.began(tag)
    postgres_at(place.env["ROUNDELAY_DATABASE_URL"], LOST_ONCE)
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


def _ending(answer) -> tuple[Status, str | None]:
    return answer.status, answer.error and answer.error.code
