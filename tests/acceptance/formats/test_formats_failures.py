"""Servers that fail, on every format: what is tried again, how long it is waited for, and what a person is told."""

from collections.abc import Callable
from itertools import product

import pytest
from formats_stage import MODELS, PATIENCE, Stage, call

pytestmark = [pytest.mark.services]
FORMATS = tuple(MODELS)
OK = {"text": "It is done."}


@pytest.fixture(scope="module")
def hasty(build: Callable[..., Stage]) -> Stage:
    """A worker that waits for nobody."""
    return build(idle_timeout=2, model_attempts=2)


def outcome(answer):
    return answer.status, answer.error.code if answer.error else "", answer.text if answer.status == "answered" else ""


def test_a_rate_limit_is_waited_out_as_long_as_the_server_asks(stage: Stage):
    step = {"error": "rate_limited", "retry_after": 0.3, "times": 1, "then": OK}

    answers = stage.answers(step, name="rate-limited")

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, ("answered", "", "It is done."))
        (retry,) = [update for update in stage.updates(answer.message_id) if update.kind == "retrying"]
        assert retry.code == "rate_limited"
        assert 0.3 <= retry.delay < 1.5  # a whole second in one header, and spread
        first, second = stage.requests(f"{wire}-rate-limited")
        assert second.at - first.at >= 0.3


def test_a_longer_wait_than_allowed_ends_at_once_with_its_seconds(stage: Stage):
    answers = stage.answers({"error": "rate_limited", "retry_after": 3600}, name="long-wait")

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, ("failed", "rate_limited", ""))
        assert "max_retry_delay" in answer.error.message
        assert answer.error.retry_after == 3600
        assert stage.fake.count(f"{wire}-long-wait") == 1


def test_a_wait_of_seconds_frees_the_slot_and_is_a_due_time(stage: Stage):
    step = {"error": "rate_limited", "retry_after": 2, "times": 1, "then": OK}

    answers = stage.answers(step, name="postponed")

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, ("answered", "", "It is done."))
        first, second = stage.requests(f"{wire}-postponed")
        assert second.at - first.at >= 1.9


@pytest.mark.parametrize(
    ("where", "formats"), [("error", FORMATS), ("in_stream_error", ("openai", "anthropic", "google"))]
)
def test_spent_quota_is_never_tried_again(stage: Stage, where: str, formats: tuple[str, ...]):
    """Not for chat inside a stream: there a 429 says no more than that."""
    add = {"calls": [call("add", a=1, b=2)]}

    for wire, answer in stage.answers(add, {where: "quota"}, name=f"quota-{where}", formats=formats).items():
        assert (wire, outcome(answer)) == (wire, ("failed", "quota", ""))
        assert stage.fake.count(f"{wire}-quota-{where}", 1) == 1
        assert "3" in answer.text


def test_a_passing_failure_is_tried_again_and_no_round_is_repeated(stage: Stage):
    add = {"calls": [call("add", a=1, b=2)]}
    kinds = ("overloaded", "unavailable", "server_error", "timeout", "gateway", "rate_limited")
    jobs = {kind: stage.asked(add, {"error": kind, "times": 1, "then": OK}, name=f"passing-{kind}") for kind in kinds}

    for kind, asked in jobs.items():
        for wire, job in asked.items():
            answer = job.wait(PATIENCE)
            assert (wire, kind, outcome(answer)) == (wire, kind, ("answered", "", "It is done."))
            assert [stage.fake.count(f"{wire}-passing-{kind}", n) for n in (0, 1)] == [1, 2]
            assert (answer.usage.tool_calls, answer.usage.model_calls, answer.usage.calls_without_usage) == (1, 3, 1)


def test_a_failure_that_stays_ends_the_message_after_its_attempts(hasty: Stage):
    kinds = {"overloaded": "model_overloaded", "server_error": "provider_error", "rate_limited": "rate_limited"}
    add = {"calls": [call("add", a=1, b=2)]}
    jobs = {kind: hasty.asked(add, {"error": kind, "retry_after": 0.1}, name=f"staying-{kind}") for kind in kinds}

    for kind, code in kinds.items():
        for wire, answer in ((wire, job.wait(PATIENCE)) for wire, job in jobs[kind].items()):
            assert (wire, outcome(answer)) == (wire, ("failed", code, ""))
            assert hasty.fake.count(f"{wire}-staying-{kind}", 1) == 2
            assert "3" in answer.text


def test_a_stream_cut_before_its_end_is_a_failed_attempt_and_nothing_of_it_runs(stage: Stage):
    whole = {"text": "I write it down.", "calls": [call("note", text="x")]}
    jobs = {
        cut: stage.asked({**whole, "cut": cut, "times": 1, "then": whole}, OK, name=f"cut-{cut}")
        for cut in (True, "clean", 2, 3)
    }

    for cut, asked in jobs.items():
        for wire, job in asked.items():
            answer = job.wait(PATIENCE)
            assert (wire, cut, outcome(answer)) == (wire, cut, ("answered", "", "It is done."))
            assert (answer.usage.tool_calls, stage.fake.count(f"{wire}-cut-{cut}", 0)) == (1, 2)
            assert stage.retries(answer.message_id) == ["reply_cut_off"]


@pytest.mark.parametrize("wire", FORMATS)
def test_text_of_a_failed_attempt_is_taken_back_where_it_was_shown(stage: Stage, wire: str):
    whole = {"text": "An answer in several pieces, so that it is shown as it comes.", "pace": 0.1}
    job = stage.ask(wire, {**whole, "cut": "clean", "times": 1, "then": whole}, name=f"{wire}-reset")

    seen: list[str] = []
    for update in job.follow(timeout=PATIENCE):
        if update.kind == "text_delta":
            seen.append(update.text or "")
        elif update.kind == "text_reset":
            assert "".join(seen) == whole["text"]
            seen.clear()

    assert "".join(seen) == whole["text"]


def test_an_error_inside_a_200_is_that_error(stage: Stage):
    kinds = product(("overloaded", "server_error", "rate_limited", "unavailable"), ("", "-no-stream"))
    jobs = {
        kind + flag: stage.asked(
            {"text": "Half an ans", "in_stream_error": kind, "times": 1, "then": OK},
            name=f"inside-{kind}{flag}",
            flag=flag,
        )
        for kind, flag in kinds
    }

    for kind, asked in jobs.items():
        for wire, job in asked.items():
            answer = job.wait(PATIENCE)
            assert (wire, kind, outcome(answer)) == (wire, kind, ("answered", "", "It is done."))
            assert stage.retries(answer.message_id)[-1] in {"model_overloaded", "provider_error", "rate_limited"}


def test_a_page_of_html_is_no_answer(stage: Stage, hasty: Stage):
    page = "<html><body><h1>Welcome to our proxy</h1></body></html>"

    once = stage.answers({"status": 200, "body": page, "times": 1, "then": OK}, name="html-once")
    always = hasty.answers({"status": 200, "body": page}, name="html")
    forbidden = hasty.answers({"status": 403, "body": page}, name="html-403")

    for wire in FORMATS:
        assert (wire, outcome(once[wire])) == (wire, ("answered", "", "It is done."))
        assert (wire, outcome(always[wire])) == (wire, ("failed", "provider_error", ""))
        assert (wire, outcome(forbidden[wire])) == (wire, ("failed", "credentials", ""))
        assert "proxy" not in always[wire].error.message + forbidden[wire].error.message


def test_headers_and_then_nothing_is_a_stalled_model(hasty: Stage):
    step = {"text": "An answer of many words that never ends " * 3, "stall": 45}
    jobs = {after: hasty.asked({**step, "stall_after": after}, name=f"stall-{after}") for after in (0, 1, 4)}

    for after, asked in jobs.items():
        for wire, job in asked.items():
            answer = job.wait(PATIENCE)
            assert (wire, after, outcome(answer)) == (wire, after, ("failed", "model_stalled", ""))
            assert hasty.fake.count(f"{wire}-stall-{after}") == 2
    names = {f"{wire}-stall-{after}" for wire in FORMATS for after in jobs}
    assert hasty.fake.wait(lambda: sum(gone.request.name in names for gone in hasty.fake.disconnects) == 24)


def test_empty_pieces_and_the_same_piece_over_and_over_are_silence(hasty: Stage):
    step = {"text": "x", "repeat_piece": 2000, "every": 0.02}
    jobs = {piece: hasty.asked({**step, "piece": piece}, name=f"repeating-{piece}") for piece in ("", "no ")}

    for piece, asked in jobs.items():
        for wire, job in asked.items():
            assert (wire, piece, outcome(job.wait(PATIENCE))) == (wire, piece, ("failed", "model_stalled", ""))


def test_pings_and_slow_reasoning_are_life(hasty: Stage):
    pings = hasty.asked({**OK, "pings": 30, "every": 0.1}, name="pings")
    slow = hasty.asked({**OK, "thinking": "one thought after the other " * 5, "pace": 0.4}, name="slow")

    for wire in FORMATS:
        assert (wire, outcome(pings[wire].wait(PATIENCE))) == (wire, ("answered", "", "It is done."))
        assert (wire, outcome(slow[wire].wait(PATIENCE))) == (wire, ("answered", "", "It is done."))
        assert hasty.fake.count(f"{wire}-pings") == hasty.fake.count(f"{wire}-slow") == 1


def test_a_reply_that_drips_for_ever_ends_at_the_turn_timeout(build: Callable[..., Stage]):
    slow = build(turn_timeout=2, model_attempts=2)
    words = "An answer of so many words that it takes ages to arrive. " * 20

    dripping = slow.asked({"text": words, "drip": 0.2, "drip_bytes": 8}, name="drip")
    whole = slow.asked({"text": words, "stall": 60}, name="whole", flag="-no-stream")

    for wire in FORMATS:
        assert (wire, outcome(dripping[wire].wait(PATIENCE))) == (wire, ("failed", "model_timeout", ""))
        assert (wire, outcome(whole[wire].wait(PATIENCE))) == (wire, ("failed", "model_timeout", ""))
        assert slow.fake.count(f"{wire}-drip") == 2


def test_a_message_whose_time_is_over_while_its_model_stalls_is_closed(build: Callable[..., Stage]):
    step = {"text": "never", "stall": 60}

    answers = build(closing_reserve=6).answers(
        {"calls": [call("add", a=20, b=22)]}, step, name="over", closing={"text": "No time."}, message_timeout=12
    )

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text) == (wire, "timed_out", "No time.")


def test_a_server_that_is_not_there_is_unreachable(build: Callable[..., Stage]):
    nowhere = "http://127.0.0.1:9"
    urls = {f"{name}_BASE_URL": nowhere for name in ("OPENAI", "ANTHROPIC", "GEMINI")}
    lost = build(chat_base_url=nowhere, model_attempts=2, **urls)

    for wire, answer in lost.answers(OK, name="nowhere").items():
        assert (wire, outcome(answer)) == (wire, ("failed", "model_unreachable", ""))
        assert lost.retries(answer.message_id) == ["model_unreachable"]


@pytest.mark.parametrize("wire", FORMATS)
def test_cancelling_closes_the_socket_of_the_model(stage: Stage, wire: str):
    job = stage.ask(wire, {"text": "An endless answer " * 50, "pace": 0.2}, name=f"{wire}-cancelled")
    assert stage.fake.wait(lambda: stage.fake.count(f"{wire}-cancelled") == 1, PATIENCE)

    assert job.cancel()

    assert job.wait(PATIENCE).status == "cancelled"
    assert stage.fake.wait(lambda: any(g.request.name == f"{wire}-cancelled" for g in stage.fake.disconnects), 10)
