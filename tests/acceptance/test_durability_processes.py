"""Worker processes that freeze, hang, leak, are deadly to be near, are told to go, or must not start."""

import re
import time

import pytest
from harness.services import postgres_at, send
from harness.waiting import eventually
from harness.words import STREAMED, call

from roundelay_worker.process.lease import EXIT_LEASE_LOST, EXIT_WEDGED
from roundelay_worker.settings import EXIT_UNFIT
from roundelay_worker.testing.fake_llm import script
from roundelay_worker.wiring import EXIT_LOOSE

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


def shown(job) -> str:
    """Return the text that a reader has at the end: what came since the last reset."""
    text = ""
    for update in job.follow():
        text = "" if update.kind == "text_reset" else text + (update.text if update.kind == "text_delta" else "")
    return text


def test_a_frozen_worker_is_replaced_and_does_nothing_when_it_thaws(
    deploy,
):  # D12, D16, D36, D42, E3, F27, rules 3-6, 12
    place = deploy()
    frozen = place.start()
    jobs = [
        place.ask(call("act", tag="ice-write", before=1), {"text": "a"}, name="ice-write", conversation_id="a"),
        place.ask(call("act", tag="ice-2", after=3), call("act", tag="ice-3"), {"text": "b"}, name="ice-more"),
        place.ask({"text": "word " * 60, "pace": 0.05}, name="ice-stream"),
        place.ask(call("act_checked", tag="ice-checked", before=50), {"text": "d"}, name="ice-checked"),
    ]
    place.began("ice-write"), place.began("ice-checked")
    eventually(lambda: place.effects("ice-2"), "a write is done and not told yet")
    eventually(lambda: place.fake.count("ice-stream"), "a reply is under way")
    frozen.freeze()
    taker = place.start()

    answers = place.settled(*jobs)
    frozen.thaw()

    assert frozen.ended() in {EXIT_LEASE_LOST, EXIT_WEDGED}
    assert [answer.status for answer in answers] == ["answered"] * 4
    assert [len(place.effects(tag)) for tag in ("ice-2", "ice-3")] == [1, 1]
    assert len(place.effects("ice-write")) <= 1
    assert [len(answer.uncertain) for answer in answers] == [1, 1, 0, 1]
    assert len(place.effects("ice-checked", "began")) == 1, "not done, by one who may be about to do it"
    assert {pid for _, pid, _ in place.effects("ice-3")} == {taker.pid}
    assert shown(jobs[2]) in {"", "word " * 60}
    place.sound_at_rest()


def test_a_message_that_kills_its_process_every_time_fails_and_harms_no_neighbour(deploy):  # A14, A17, D3, rule 10
    place = deploy()
    once = place.ask(call("die", tag="once", times=1), {"text": "alive"}, name="once")
    place.start().ended()  # before the deadly one is there: were its only death one alone, it would count as deadly
    workers = [place.start()]
    neighbour = place.ask(
        *[call("look_async", tag="n", seconds=0.2 + i / 100) for i in range(8)], {"text": "fine"}, name="neighbour"
    )
    slow = place.ask({"text": "word " * 40, "pace": 0.1}, name="slow-neighbour")
    deadly = place.ask(call("die", tag="deadly"), {"text": "no"}, name="deadly", conversation_id="c")
    waiting = place.ask({"text": "next"}, name="after-deadly", conversation_id="c")

    def supervised() -> bool:
        if workers[-1].code is not None:
            workers.append(place.start())
        return bool(place.redis.exists(f"{place.prefix}:answer:{deadly.message_id}"))

    eventually(supervised, "the deadly one is given up")
    while workers[-1].code is not None:
        workers.append(place.start())
    answer, *others = place.settled(deadly, waiting, neighbour, slow, once)

    assert (answer.status, answer.error and answer.error.code) == ("failed", "worker_lost")
    assert 1 <= len(place.effects("deadly", "began")) <= 3
    assert len(workers) <= 4
    assert [other.status for other in others] == ["answered"] * 4
    assert workers[-1].code is None
    place.sound_at_rest()


def test_a_worker_told_to_go_finishes_in_its_grace_or_hands_over(deploy):  # D19, D20, rule 10
    place = deploy(ROUNDELAY_SHUTDOWN_GRACE="2")
    leaving = place.start()
    short = place.ask(call("act", tag="short", before=1), {"text": "short"}, name="short")
    long = place.ask(call("look_async", tag="long", seconds=8), {"text": "long"}, name="long")
    stream = place.ask({"times": 1, **STREAMED, "then": {"text": "again"}}, name="handed")
    for tag in ("short", "long"):
        place.began(tag)
    eventually(lambda: place.fake.count("handed"), "a reply is under way")
    staying = place.start()

    leaving.terminate()
    late = place.ask({"text": "late"}, name="late")
    code = leaving.ended()
    answers = place.settled(short, long, stream, late)

    assert code == 0
    assert [answer.text for answer in answers] == ["short", "long", "again", "late"]
    assert len(place.effects("short")) == 1
    assert not answers[0].uncertain
    assert [place.show(job.message_id).losses for job in (short, long, stream, late)] == [0] * 4
    assert {pid for _, pid, _ in place.effects("long", "began")} == {leaving.pid, staying.pid}
    place.sound_at_rest()


def test_a_worker_whose_event_loop_hangs_ends_and_another_goes_on(deploy):  # D25, H6, rule 4
    place = deploy(ROUNDELAY_LEASE="1")
    wedged = place.start()
    job = place.ask(call("block", tag="wedge", seconds=60), {"text": "free"}, name="wedge")
    assert place.began("wedge") == wedged.pid
    place.start()

    assert wedged.ended() == EXIT_WEDGED
    assert place.settled(job)[0].text == "free"


def test_a_worker_full_of_loose_threads_ends_in_good_order(deploy):  # B3, rule 4
    place = deploy(ROUNDELAY_MAX_LOOSE="3", ROUNDELAY_SHUTDOWN_GRACE="5")
    full = place.start()
    jobs = [
        place.ask(call("overrun", tag=f"t{n}", seconds=60), {"text": "went on"}, name=f"loose{n}") for n in range(4)
    ]

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == ["went on"] * 4
    assert full.ended() == EXIT_LOOSE
    place.start()
    assert place.settled(place.ask({"text": "fresh"}, name="fresh"))[0].text == "fresh"


def test_a_worker_without_a_usable_setup_or_database_ends_with_one_line_that_says_why(deploy):
    place = deploy("sqlite", ROUNDELAY_SETUP="harness.impatient:no_such_function")
    broken = place.worker()
    raising = place.worker(ROUNDELAY_SETUP="json:loads")
    homeless = place.worker(ROUNDELAY_SETUP="", ROUNDELAY_DATABASE_URL=f"sqlite:///{place.home}/nowhere/x.db")

    assert (broken.ended(), raising.ended(), homeless.ended()) == (EXIT_UNFIT, EXIT_UNFIT, 1)
    assert "roundelay: ROUNDELAY_SETUP names no_such_function, which is not a function" in broken.said
    assert "roundelay: ROUNDELAY_SETUP: json:loads failed: TypeError" in raising.said
    assert "roundelay: The database cannot be used (the SQLite file cannot be used" in homeless.said
    assert "Traceback" not in broken.said + raising.said + homeless.said


def test_a_worker_of_celerys_own_command_tells_of_misspelt_settings_and_makes_its_home(deploy):
    place = deploy("sqlite")
    home = place.home / "of its own"
    env = {"ROUNDELAY_HOME": str(home), "ROUNDELAY_DATABASE_URL": "", "ROUNDELAY_PREFIX": f"{place.prefix}-own"}

    worker = place.start(**env, ROUNDELAY_MAX_ROUND="3")

    assert "ROUNDELAY_MAX_ROUND is not a setting; did you mean ROUNDELAY_MAX_ROUNDS?" in worker.said
    assert (home / "roundelay.db").exists()
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("pool", ["solo", "processes", "gevent"])
def test_other_pools_are_refused_at_start_with_a_reason(deploy, pool):  # B9
    place = deploy("sqlite")
    worker = place.worker(words=("-P", pool))

    assert worker.ended() != 0
    assert "the threads pool" in worker.said or f"No module named '{pool}'" in worker.said


def test_celerys_default_pool_is_taken_for_none_and_ours_is_used(deploy):  # B9
    assert "20 (rounds)" in deploy("sqlite").worker(words=("-P", "prefork")).ready().said


def test_a_worker_with_another_database_refuses_to_start(deploy):  # rule 17
    place = deploy("sqlite")
    place.start()

    stranger = place.worker(ROUNDELAY_DATABASE_URL=f"sqlite:///{place.home}/another.db")

    assert stranger.ended() != 0
    assert "another database" in stranger.said
    assert place.settled(place.ask({"text": "ok"}, name="other-db"))[0].status == "answered"


def test_what_a_newer_version_saved_is_left_to_it_and_can_still_be_ended(deploy):  # rule 18
    place = deploy()
    place.start()
    held = place.ask(call("look", tag="held", seconds=1), {"text": "no"}, name="newer", conversation_id="c")
    place.began("held")
    postgres_at(
        place.env["ROUNDELAY_DATABASE_URL"],
        "UPDATE roundelay_messages SET state_version = 99, version = version + 1, owner = NULL WHERE id = $1",
        held.message_id,
    )
    waiting = place.ask({"text": "next"}, name="after-newer", conversation_id="c")
    eventually(lambda: waiting.state().status == "waiting", "the next one waits")
    eventually(lambda: place.fake.open == 0, "nothing is under way")
    time.sleep(1)
    assert place.show(held.message_id).status == "running"

    assert held.cancel() is True

    assert held.wait(timeout=30).status == "cancelled"
    assert place.settled(waiting)[0].text == "next"
    assert place.fake.count("newer") == 1


def test_an_unknown_task_or_a_task_with_wrong_arguments_harms_nobody(deploy):  # rule 18
    place = deploy("sqlite")
    worker = place.start()
    send(place, "roundelay.round", ["no-such-message", 3, 9, "what a newer version adds"])
    send(place, "roundelay.of_a_newer_version", ["x"])
    send(place, "roundelay.answer", ["no-such-message"])

    assert place.settled(place.ask({"text": "ok"}, name="odd-tasks"))[0].text == "ok"
    assert worker.code is None
    eventually(lambda: place.queued() == 0, "the queues are empty")


def test_nothing_secret_and_no_word_of_the_user_is_logged_or_sent_to_the_broker(deploy):  # A25, S38
    place = deploy(ROUNDELAY_LOG_LEVEL="DEBUG")
    worker = place.start()
    fault = {"error": "server_error", "times": 1, "then": call("fail", tag="tool-secret-7531")}
    job = place.client.submit(
        f"my-secret-word-2468 {script(fault, {'text': 'answer-secret-8642'}, name='secrets')}",
        user_id="u1",
        context={"token": "context-secret-9753"},
        metadata={"note": "metadata-secret-1357"},
        system="system-secret-5555",
    )
    assert place.settled(job)[0].status == "answered"
    worker.terminate()
    worker.ended()

    for secret in ("my-secret", "tool-secret", "answer-secret", "context-secret", "metadata-secret", "system-secret"):
        assert secret not in worker.said, secret
    assert place.env["ROUNDELAY_CHAT_API_KEY"] not in worker.said
    assert not re.search(r"redis://[^ ]*:[^ *]+@", worker.said)
