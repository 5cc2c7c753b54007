"""What SPEC.md says of the loop, of the closing turn, sentence by sentence."""

import pytest
from playing import DEADLINE, SOFT, Play, asks, is_running, says
from worlds import USED

from roundelay_worker.loop.events import TimePassed
from roundelay_worker.loop.history import Turn
from roundelay_worker.loop.state import Asking, Ended, Failure, Limits
from roundelay_worker.loop.step import todo
from roundelay_worker.loop.texts import NOT_EXECUTED

DOWN = Failure("model_unreachable", "The model could not be reached.", retryable=True)
REJECTED = Failure("bad_request", "The request was refused.")


# 5: the closing turn


def stopped(reason: str, *closing: Turn | Failure) -> Play:
    """Return a play that runs into a soft stop after one round, and then gets these replies."""
    repeated = [asks("look")] * (6 if reason == "no_progress" else 1)
    limits = Limits(max_rounds=1 if reason == "round_limit" else 10)
    if reason == "token_limit":
        limits = Limits(max_total_tokens=8_300)
    ordinary = [*repeated, asks("put")] if reason == "round_limit" else repeated
    play = Play([*ordinary, *closing], limits)
    if reason == "timed_out":
        play.run(until=lambda state: state.rounds == 1)
        play.now = SOFT
    return play


SOFT_STOPS = ("round_limit", "token_limit", "timed_out", "no_progress")


@pytest.mark.parametrize("reason", SOFT_STOPS)
def test_the_closing_turn_follows_every_soft_stop(reason: str) -> None:
    play = stopped(reason, says("what I know"))
    play.run()
    assert (play.ended.status, play.ended.text) == (reason, "what I know")
    assert [request.closing for request in play.requests][-2:] == [None, reason]


@pytest.mark.parametrize(
    ("reason", "words"),
    [("timed_out", "time limit"), ("token_limit", "token limit"), ("no_progress", "repetition limit")],
)
def test_the_result_then_says_time_limit_token_limit_repetition_limit(reason: str, words: str) -> None:
    assert NOT_EXECUTED[reason] == f"Not executed: the {words} for this answer was reached."


def test_a_call_that_the_time_limit_caught_says_time_limit() -> None:
    play = Play([asks("look:1", "put", "look:2"), says("so far")])
    play.run(until=is_running)
    play.feed(TimePassed(SOFT))
    play.run()
    assert play.results == [["Not executed: the time limit for this answer was reached."] * 3]
    assert play.state.rounds == 0


@pytest.mark.parametrize("reason", SOFT_STOPS)
def test_it_has_2_attempts(reason: str) -> None:
    play = stopped(reason, DOWN, says("what I know"))
    play.run()
    assert play.ended.text == "what I know"
    play = stopped(reason, DOWN, DOWN, says("too late"))
    play.run()
    assert play.ended.status == reason
    assert "too late" not in play.ended.text
    assert [request.closing for request in play.requests].count(reason) == 2  # type: ignore[arg-type]


def test_it_has_time_kept_aside() -> None:
    play = Play([asks("look"), says("in the reserve")])
    play.run(until=lambda state: state.rounds == 1)
    play.now = SOFT
    play.run()
    assert (play.ended.status, play.ended.text) == ("timed_out", "in the reserve")
    assert len(play.requests) == 2


def test_before_the_reserve_begins_an_ordinary_turn_may_still_begin() -> None:
    play = Play([says("in time")], now=SOFT - 0.01)
    assert play.run() == Ended("answered", "in time", SOFT - 0.01)


@pytest.mark.parametrize("reason", SOFT_STOPS)
@pytest.mark.parametrize(
    "closing",
    [
        pytest.param([DOWN, DOWN], id="fails"),
        pytest.param([REJECTED], id="is refused by the server"),
        pytest.param([says(" "), says("")], id="is empty"),
        pytest.param([Turn("half a sen", finish="cut", usage=USED)] * 2, id="is cut"),
        pytest.param([Turn("no", finish="refused")], id="is refused"),
        pytest.param([asks("look", text="let me look again")], id="asks for tools again"),
        pytest.param([Turn("wait", finish="paused")], id="is paused"),
        pytest.param([Turn("<tool_call>", finish="malformed", usage=USED)] * 2, id="leaks"),
        pytest.param([Turn("odd", finish="unknown", usage=USED)] * 2, id="ends in an unknown way"),
        pytest.param([Turn("", finish="overflow", usage=USED)] * 2, id="overflows, and again when shrunk"),
    ],
)
def test_if_it_fails_the_answer_is_a_plain_summary_made_locally_from_the_record(
    reason: str, closing: list[Turn | Failure]
) -> None:
    play = stopped(reason, *closing)
    play.run()
    assert play.ended.status == reason
    assert play.ended.text.startswith("I stopped before finishing: ")
    assert "look: found by look" in play.ended.text
    assert play.ended.text.endswith("Shall I go on?")
    for never in ("half a sen", "let me look", "odd", "Traceback", "<tool_call>"):
        assert never not in play.ended.text
    assert len(play.requests) == len([r for r in play.requests if r.closing is None]) + len(closing)


def test_a_closing_turn_that_overflows_is_asked_for_again_with_less() -> None:
    play = stopped("round_limit", Turn("", finish="overflow"), says("in short"))
    play.run()
    assert (play.ended.text, play.state.limits.max_rounds) == ("in short", 1)


def test_a_closing_turn_that_was_cut_gets_twice_the_room_and_is_asked_to_be_concise() -> None:
    play = stopped("round_limit", Turn("ha", finish="cut"), says("in short"))
    play.run()
    assert [(r.max_output_tokens, r.nudge) for r in play.requests[-2:]] == [(8192, ""), (16384, "reply_cut")]


def test_a_closing_turn_is_not_waited_for_longer_than_max_retry_delay() -> None:
    later = Failure("rate_limited", "later", retryable=True, delay=60.5)
    play = stopped("round_limit", later)
    play.run()
    assert play.ended.status == "round_limit"
    assert play.now < 2


def test_a_closing_turn_waits_as_long_as_the_server_wishes() -> None:
    later = Failure("rate_limited", "later", retryable=True, delay=60.0)
    play = stopped("round_limit", later, says("so far"))
    play.run()
    assert (play.ended.text, play.now) == ("so far", 61.0)


def test_a_closing_turn_that_could_only_begin_after_the_deadline_is_not_waited_for() -> None:
    later = Failure("rate_limited", "later", retryable=True, delay=60.0)
    play = stopped("timed_out", later)
    play.run()
    assert play.ended.finished_at == SOFT
    assert play.ended.status == "timed_out"


def test_time_beats_all_others_a_closing_turn_that_still_runs_at_the_deadline_ends_by_summary() -> None:
    play = stopped("round_limit", says("too late"))
    play.run(until=lambda state: isinstance(state.stage, Asking) and state.stage.closing is not None)
    play.feed(TimePassed(DEADLINE - 0.01))
    assert todo(play.state)
    play.feed(TimePassed(DEADLINE))
    assert play.ended.status == "round_limit"
    assert play.ended.text.startswith("I stopped")


def test_after_the_deadline_no_attempt_begins() -> None:
    play = stopped("round_limit", says("too late"))
    play.run(until=lambda state: isinstance(state.stage, Asking) and state.stage.closing is not None)
    play.now = DEADLINE
    play.run()
    assert [request.closing for request in play.requests] == [None, None]
    assert play.ended.status == "round_limit"


def test_a_message_that_is_looked_at_after_its_deadline_ends_without_a_closing_turn() -> None:
    play = Play([asks("put")])
    play.run(until=is_running)
    play.feed(TimePassed(DEADLINE))
    assert play.ended.status == "timed_out"
    assert "put" in play.ended.text
