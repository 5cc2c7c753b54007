"""Crash after step k, for every k, in a real worker process: whatever the point, the story ends in the same way."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from harness.words import call

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

AT_ONCE = 4


def crash_at(deploy, point: int) -> bool:
    """Tell one story with a crash at its k-th point; say whether the story has such a point."""
    place = deploy("sqlite", HARNESS_CRASH=str(point), ROUNDELAY_SETUP="harness.crash:setup", ROUNDELAY_LEASE="1")
    worker = place.start()
    first = place.ask(
        call("act", tag="w"), call("look", tag="r"), {"text": "one"}, name=f"k{point}", conversation_id="c"
    )
    second = place.ask({"text": "two"}, name=f"k{point}-next", conversation_id="c")
    place.eventually(lambda: worker.code is not None or _answered(place, second), "an end or a crash")
    crashed = worker.code is not None
    if crashed:
        worker = place.start()

    answers = place.settled(first, second)

    assert [answer.status for answer in answers] == ["answered", "answered"], point
    assert [answer.text for answer in answers] == ["one", "two"], point
    done, uncertain = len(place.effects("w")), len(answers[0].uncertain)
    assert done == 1 or (done == 0 and uncertain == 1), (point, done, uncertain)
    assert sum(place.fake.count(f"k{point}", step) for step in range(3)) <= 4, point
    assert place.fake.count(f"k{point}-next") <= 2, point
    place.sound_at_rest()
    worker.close()
    return crashed


def _answered(place, job) -> bool:
    return bool(place.redis.exists(f"{place.prefix}:answer:{job.message_id}"))


def test_a_crash_at_any_step_ends_in_the_same_final_state(deploy):  # law 10, A8, H10, G8, S78
    points = count(1)
    reached = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while all(
            batch := list(pool.map(lambda point: crash_at(deploy, point), [next(points) for _ in range(AT_ONCE)]))
        ):
            reached += len(batch)
    reached += sum(batch)

    assert reached >= 12
