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


def test_what_befalls_a_process_speaks_against_no_message_that_runs_alone_in_it(deploy):  # A14, rule 10
    place = deploy(ROUNDELAY_SHUTDOWN_GRACE="1")
    workers = [place.start()]
    frozen = place.ask(call("linger", tag="frozen", times=2), {"text": "fine"}, name="frozen")
    unlucky = place.ask(call("linger", tag="unlucky", times=4), {"text": "fine"}, name="unlucky")
    deadly = place.ask(call("leave", tag="deadly"), {"text": "no"}, name="deadly")
    for tag in ("frozen", "unlucky", "deadly"):
        place.began(tag)
    postgres_at(place.env["ROUNDELAY_DATABASE_URL"], LOST_ONCE)
    workers[-1].kill()
    workers.append(place.start())

    os.kill(place.began("frozen", 2), signal.SIGSTOP)
    os.kill(place.began("unlucky", 2), signal.SIGTERM)  # as a service manager tells all processes of a worker
    with_its_worker = place.began("unlucky", 3)
    place.began("frozen", 3)
    eventually(lambda: not _lives(place.began("frozen", 2)), "a child that lost its lease is killed")
    workers[-1].kill()
    os.kill(with_its_worker, signal.SIGKILL)
    workers.append(place.start())
    place.began("unlucky", 4)
    workers[-1].terminate()
    workers.append(place.start())
    answers = place.settled(frozen, unlucky, deadly)

    assert [_ending(answer) for answer in answers] == [("answered", None)] * 2 + [("failed", "worker_lost")]
    assert workers[2].ended() == 0
    assert [len(place.effects(tag, "began")) for tag in ("frozen", "unlucky", "deadly")] == [3, 5, 2]
    alone = [pid for tag in ("frozen", "unlucky", "deadly") for _, pid, _ in place.effects(tag, "began")[1:]]
    assert len({*alone, *(worker.pid for worker in workers)}) == 7 + 4
    place.sound_at_rest()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _ending(answer) -> tuple[Status, str | None]:
    return answer.status, answer.error and answer.error.code
