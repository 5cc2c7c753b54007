"""A worker process that dies: what it held goes on elsewhere, and the world is changed at most once."""

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

RECOVERED = 25.0
"""Seconds; LEASE + SWEEP is 2.3, the rest is for a loaded machine."""


def call(name: str, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def test_a_message_is_answered_by_real_processes(deploy):
    place = deploy()
    place.start()

    job = place.ask(call("act", tag="a"), call("look", tag="a"), {"text": "both done"}, name="plain")
    (answer,) = place.settled(job)

    assert (answer.status, answer.text, answer.rounds) == ("answered", "both done", 2)
    assert len(place.effects("a")) == 1
    assert [place.fake.count("plain", step) for step in range(3)] == [1, 1, 1]
    place.sound_at_rest()
