"""Rolling deploys: old and new workers side by side, with other tools and other models, forwards and back."""

import pytest
from harness.words import call

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

NEW = {"ROUNDELAY_TOOL_MODULES": "harness.effects,harness.newer"}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_old_and_new_workers_side_by_side_answer_everything(deploy, database):
    """The newer ones have one tool more, another schema of a second, and a third that was a read before."""
    place = deploy(database, ROUNDELAY_CONCURRENCY="4")
    place.start()
    place.start(**NEW)
    jobs = [
        place.ask(call("look", tag=f"d{n}"), call("act", tag=f"d{n}"), {"text": f"told {n}"}, name=f"d-{n}")
        for n in range(40)
    ]

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == [f"told {n}" for n in range(40)]
    assert [len(place.effects(f"d{n}")) for n in range(40)] == [1] * 40


@pytest.mark.parametrize(("first", "second"), [(NEW, {}), ({}, NEW)], ids=["back", "forwards"])
def test_what_is_under_way_goes_on_when_every_worker_is_exchanged(deploy, first, second):
    place = deploy("sqlite")
    before = place.start(**first)
    jobs = [
        place.ask(call("look", tag=f"x{n}", seconds=1), call("act", tag=f"x{n}"), {"text": "told"}, name=f"x-{n}")
        for n in range(10)
    ]
    for n in range(10):
        place.began(f"x{n}")
    before.kill()
    place.start(**second)

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == ["told"] * 10
    assert [len(place.effects(f"x{n}")) for n in range(10)] == [1] * 10


def test_a_call_of_a_tool_that_is_gone_gets_an_error_result_and_the_message_goes_on(deploy):
    place = deploy("sqlite")
    before = place.start(**NEW)
    job = place.ask(call("look", tag="gone", seconds=1), call("greet", who="Ana"), {"text": "told"}, name="gone")
    place.began("gone")
    before.kill()
    place.start()

    (answer,) = place.settled(job)

    assert answer.text == "told"
    (_, greeted) = [given for turn in place.show(job.message_id).turns for given in turn.calls]
    assert "unknown_tool" in greeted.result


def test_a_tool_that_the_caller_named_is_left_to_the_worker_that_has_it(deploy):
    place = deploy("sqlite")
    place.start()
    place.start(**NEW)
    jobs = [
        place.ask(call("greet", who="Ana"), {"text": f"told {n}"}, name=f"named-{n}", tools=["greet"])
        for n in range(12)
    ]

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == [f"told {n}" for n in range(12)]
    assert {answer.usage.model_calls for answer in answers} == {2}


def test_a_tool_that_the_caller_named_and_that_nobody_has_fails_the_message_at_its_start(deploy):
    place = deploy("sqlite")
    place.start()
    gone = place.start(**NEW)
    gone.kill()
    place.eventually(lambda: not place.stored(lambda store: _offered(store, "tool:greet")), "the lease runs out")

    (answer,) = place.settled(place.ask({"text": "no"}, name="nobody", tools=["greet"]))

    assert (answer.status, answer.error.code) == ("failed", "unknown_tool")


def test_a_model_whose_key_only_the_new_workers_have_is_left_to_them(deploy):
    place = deploy("sqlite")
    place.start()
    place.start(ANTHROPIC_API_KEY="sk-test", ANTHROPIC_BASE_URL=place.fake.url)
    jobs = [place.ask({"text": "told"}, name=f"model-{n}", model="anthropic:claude") for n in range(8)]

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == ["told"] * 8


async def _offered(store, name: str) -> bool:
    return any(name in offered for offered in await store.offered())
