"""The database goes away and comes back: what was done is neither lost nor done again."""

import time

import pytest
from harness.services import create_database, postgres_at
from harness.waiting import eventually
from harness.words import call

from roundelay_worker.embedded.postgres import running_postgres

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


@pytest.mark.parametrize("away", [1.0, 5.0])
def test_a_restart_of_the_database_loses_and_repeats_nothing(deploy, folder, away):  # D23, F22, H10, S78
    """Down for less and for more than a lease, in the middle of writes, replies and conversations."""
    home = folder / f"postgres-{away:g}"
    with running_postgres(home) as url:
        place = deploy(create_database(url, "restarted"))
        workers = [place.start(), place.start()]
        jobs = [
            place.ask(call("act", tag=f"pg-act{away:g}", before=away / 2), {"text": "acted"}, name=f"pg-act{away:g}"),
            place.ask({"text": "slept", "delay": away / 2 + 0.5}, name=f"pg-model{away:g}", conversation_id="c"),
            place.ask({"text": "after"}, name=f"pg-after{away:g}", conversation_id="c"),
        ]
        place.began(f"pg-act{away:g}")
        eventually(lambda: place.fake.count(f"pg-model{away:g}"), "a reply is under way")
        late = place.client
    time.sleep(away)
    new = late.submit(place.scripted({"text": "late"}, name=f"pg-late{away:g}"))
    with running_postgres(home):
        answers = place.settled(*jobs, new)

        assert [answer.text for answer in answers] == ["acted", "slept", "after", "late"]
        assert len(place.effects(f"pg-act{away:g}")) == 1
        assert [answer.uncertain for answer in answers] == [()] * 4
        assert place.fake.count(f"pg-act{away:g}", 0) == 1
        assert place.fake.count(f"pg-model{away:g}") == 1
        assert [place.show(job.message_id).losses for job in jobs] == [0, 0, 0]
        assert [worker.code for worker in workers] == [None, None]
        place.sound_at_rest()


def test_connections_that_break_all_the_time_lose_and_repeat_nothing(deploy):  # F22
    """Every connection of the worker is cut again and again, whatever it is doing."""
    place = deploy()
    place.start()
    url = place.env["ROUNDELAY_DATABASE_URL"]
    jobs = [
        place.ask(*[call("act", tag=f"cut{n}-{i}") for i in range(4)], {"text": f"t{n}"}, name=f"cut{n}")
        for n in range(8)
    ]
    for _ in range(15):
        postgres_at(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        time.sleep(0.1)

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == [f"t{n}" for n in range(8)]
    assert all(len(place.effects(f"cut{n}-{i}")) <= 1 for n in range(8) for i in range(4))
    assert [answer.uncertain for answer in answers] == [()] * 8
    assert all(len(place.effects(f"cut{n}-{i}")) == 1 for n in range(8) for i in range(4))


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_save_whose_reply_was_lost_is_found_to_have_happened(deploy, database):  # F22, S78
    place = deploy(database, ROUNDELAY_SETUP="harness.lossy:setup")
    place.start()
    name = f"lossy-{database}"
    job = place.ask(*[call("act", tag=f"{name}{i}", after=0.1) for i in range(3)], {"text": "saved"}, name=name)

    (answer,) = place.settled(job)

    assert (answer.text, answer.uncertain) == ("saved", ())
    assert [len(place.effects(f"{name}{i}")) for i in range(3)] == [1, 1, 1]
    assert [place.fake.count(name, step) for step in range(4)] == [1, 1, 1, 1]
