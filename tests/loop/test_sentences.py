"""What SPEC.md says of the loop, sentence by sentence, where the core decides it."""

from itertools import chain, repeat

import pytest
from playing import DEADLINE, SOFT, Play, asks, is_running, says
from worlds import USED

from roundelay_worker.loop.effects import AskModel
from roundelay_worker.loop.events import CancelAsked, Condemned, Started, TimePassed
from roundelay_worker.loop.history import Call, Native, Result, Turn, TurnUsage
from roundelay_worker.loop.state import Asking, Ended, Failure, Limits, State
from roundelay_worker.loop.step import step, todo
from roundelay_worker.loop.texts import NOT_EXECUTED, closing_instruction

STALLED = Failure("model_stalled", "The model stalled.", retryable=True)
DOWN = Failure("model_unreachable", "The model could not be reached.", retryable=True)
REJECTED = Failure("bad_request", "The request was refused.")


def looks(count: int) -> list[Turn]:
    """Return turns that call and never the same thing twice."""
    return [asks(f"look:{number}") for number in range(count)]


# The loop, 1 and 2


def test_a_turn_without_calls_ends_the_message_its_own_text_is_the_answer() -> None:
    play = Play([says("42")])
    assert play.run() == Ended("answered", "42", 1.0)
    assert len(play.requests) == 1


def test_decide_from_the_content_never_from_the_stop_reason_alone() -> None:
    play = Play([asks("look", finish="paused", note="pause_turn"), says("done")])
    play.run()
    assert play.runs == ["look"]
    assert play.ended.text == "done"


def test_each_call_is_run_and_gets_exactly_one_result_and_the_model_is_asked_again() -> None:
    play = Play([asks("look:1", "put", "look:2"), says("done")])
    play.run()
    assert play.runs == ["look", "put", "look"]
    assert play.results == [["found by look", "found by put", "found by look"]]
    assert [request.round for request in play.requests] == [1, 2]


def test_text_that_the_model_writes_beside_its_calls_is_progress_never_the_answer() -> None:
    play = Play(chain([asks("look", text="let me look that up")] * 3, repeat(Turn(finish="refused"))), Limits(0))
    play.run()
    assert "let me" not in play.ended.text


# 3: the cap


@pytest.mark.parametrize("cap", [0, 1, 2, 10])
def test_at_most_n_rounds_of_tools_so_at_most_n_plus_2_turns(cap: int) -> None:
    play = Play([*looks(cap + 1), says("so far")], Limits(max_rounds=cap))
    assert play.run() == Ended("round_limit", "so far", 1.0)
    assert (len(play.requests), len(play.runs), play.state.rounds) == (cap + 2, cap, cap)


@pytest.mark.parametrize("cap", [0, 1, 2, 10])
def test_an_answer_that_arrives_as_turn_n_plus_1_is_a_normal_answer(cap: int) -> None:
    play = Play([*looks(cap), says("just in time")], Limits(max_rounds=cap))
    assert play.run() == Ended("answered", "just in time", 1.0)
    assert (len(play.requests), len(play.runs)) == (cap + 1, cap)


def test_a_paused_turn_uses_one_of_the_n() -> None:
    paused = Turn("thinking", finish="paused", native=Native("a", "[]"))
    play = Play([paused, paused, paused, says("so far")], Limits(max_rounds=2))
    play.run()
    assert play.ended.status == "round_limit"
    assert (len(play.requests), play.state.rounds) == (4, 2)
    assert [exchange.turn for exchange in play.state.sequence] == [paused] * 3


def test_a_paused_turn_goes_back_as_it_came_and_the_model_goes_on() -> None:
    paused = Turn("half", finish="paused")
    play = Play([paused, says("whole")])
    assert play.run() == Ended("answered", "whole", 1.0)
    assert play.state.sequence[0].results == ()
    assert play.state.rounds == 1


def test_not_counted_failed_attempts_discarded_replies_the_turn_at_the_cap_the_closing_turn() -> None:
    cut = asks("look", finish="cut")
    leaked = Turn("<tool_call>", finish="malformed")
    replies = [DOWN, says(""), leaked, asks("look:1"), cut, asks("look:2"), DOWN, asks("look:3"), says("so far")]
    play = Play(replies, Limits(max_rounds=2))
    play.run()
    assert (play.ended.status, play.ended.text, play.state.rounds) == ("round_limit", "so far", 2)
    assert len(play.requests) == len(replies)


def test_with_0_calls_are_answered_unexecuted_then_closing() -> None:
    play = Play([asks("look"), says("I may not look")], Limits(max_rounds=0))
    play.run()
    assert play.runs == []
    assert [request.closing for request in play.requests] == [None, "round_limit"]
    assert play.results == [["Not executed: the step limit for this answer was reached."]]


# 4: the turn at the cap


def test_when_the_turn_after_the_last_round_still_asks_for_tools_nothing_of_it_runs() -> None:
    play = Play([asks("put:1"), asks("look:2", "put", "look:3"), says("so far")], Limits(max_rounds=1))
    play.run()
    assert play.runs == ["put"]


def test_each_pending_call_gets_the_result_not_executed_which_is_not_an_error() -> None:
    play = Play([asks("look:1", "put", "unknown"), says("so far")], Limits(max_rounds=0))
    play.run()
    text = "Not executed: the step limit for this answer was reached."
    assert play.state.sequence[0].results == (Result(text, is_error=False, outcome="not_executed"),) * 3


def test_the_closing_instruction_says_the_limit_what_was_left_undone_and_asks_in_the_users_language() -> None:
    for reason, words in {
        "round_limit": "limit of steps", "token_limit": "limit of tokens", "timed_out": "time limit",
        "no_progress": "repeated without progress",
    }.items():  # fmt: skip
        text = closing_instruction(reason)  # type: ignore[arg-type]
        assert words in text
        for part in ("what you know", "left undone", "whether to go on", "language of the user's last message"):
            assert part in text


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


# 7: status


def test_exactly_one_status_written_once_whatever_was_written_first_wins() -> None:
    play = Play([says("first")])
    play.run()
    first = play.state
    for late in (CancelAsked(2.0), TimePassed(DEADLINE), Condemned(REJECTED, 2.0)):
        assert play.feed(late) is first


def test_the_status_is_refused_when_the_model_declines() -> None:
    play = Play([asks("look"), Turn("no", finish="refused", note="safety")])
    play.run()
    assert (play.ended.status, play.ended.text) == ("refused", "I cannot help with this request.")
    assert play.ended.failure == Failure("refused", "The model or its provider declined to answer (safety).")
    assert len(play.requests) == 2


def test_a_refusal_without_a_reason_says_so() -> None:
    play = Play([Turn(finish="refused")])
    play.run()
    assert play.ended.failure is not None
    assert "(no reason given)" in play.ended.failure.message


def test_the_status_is_cancelled_when_the_user_cancels() -> None:
    play = Play([asks("look")])
    play.feed(CancelAsked(1.0))
    assert play.ended == Ended("cancelled", "This answer was cancelled.", 1.0)


def test_the_status_is_failed_with_an_error_code() -> None:
    play = Play([asks("look"), REJECTED])
    play.run()
    assert play.ended.status == "failed"
    assert play.ended.failure == REJECTED
    assert "look: found by look" in play.ended.text
    assert play.ended.text.endswith("Please try again.")


def test_a_message_that_waited_too_long_is_failed_with_queue_timeout() -> None:
    made = step(State(seq=1), Condemned(Failure("queue_timeout", "It waited too long."), 9.0))
    assert isinstance(made.state.stage, Ended)
    assert made.state.stage.failure == Failure("queue_timeout", "It waited too long.")
    assert made.state.started_at is None


# 8: empty and cut replies


def test_an_empty_reply_is_discarded_and_asked_for_again_a_bounded_number_of_times_without_running_tools_again() -> (
    None
):
    play = Play([asks("put"), says(""), says(" \n"), says("done")])
    play.run()
    assert (play.ended.text, play.runs) == ("done", ["put"])
    assert [request.nudge for request in play.requests] == ["", "", "empty_reply", "empty_reply"]
    play = Play([asks("put"), says(""), says(""), says(""), says("too late")])
    play.run()
    assert play.ended.failure is not None
    assert (play.ended.status, play.ended.failure.code) == ("failed", "empty_reply")
    assert (len(play.requests), play.runs) == (4, ["put"])


def test_empty_replies_are_asked_for_again_with_back_off() -> None:
    play = Play([says(""), says(""), says("done")])
    play.run()
    assert [note.delay for note in play.notes if note.kind == "retrying"] == [0.0, 0.5]


def test_a_reply_cut_by_the_output_limit_is_discarded_and_asked_for_once_more_with_twice_the_room() -> None:
    play = Play([asks("put", finish="cut"), says("done")])
    play.run()
    assert (play.ended.text, play.runs, play.state.sequence) == ("done", [], ())
    assert [(request.max_output_tokens, request.nudge) for request in play.requests] == [
        (8192, ""), (16384, "reply_cut")
    ]  # fmt: skip


def test_cut_again_it_is_token_limit() -> None:
    play = Play([asks("look"), *[asks("put", finish="cut")] * 2, says("so far")])
    play.run()
    assert (play.ended.status, play.ended.text, play.runs) == ("token_limit", "so far", ["look"])
    assert len(play.requests) == 4


def test_a_turn_after_a_cut_one_has_the_usual_room_again() -> None:
    play = Play([asks("put", finish="cut"), asks("look"), says("done")])
    play.run()
    assert [request.max_output_tokens for request in play.requests] == [8192, 16384, 8192]


# Tokens


def test_input_and_output_of_a_message_are_reserved_before_each_request() -> None:
    each = Turn(calls=(Call("look"),), usage=TurnUsage(3_000, 1_000))
    limits = Limits(max_total_tokens=10_000, max_output_tokens=1_000)
    play = Play([each, each, each, says("so far")], limits, estimate=3_000)
    play.run()
    assert play.ended.status == "token_limit"
    assert [request.closing for request in play.requests] == [None, None]
    assert play.state.spent.tokens == 8_000


def test_a_request_that_just_fits_is_sent() -> None:
    limits = Limits(max_total_tokens=8_242)
    assert Play([says("done")], limits).run() == Ended("answered", "done", 1.0)
    play = Play([says("closing")], Limits(max_total_tokens=8_241))
    play.run()
    assert [(r.closing, r.max_output_tokens) for r in play.requests] == [("token_limit", 8_191)]


def test_the_closing_turn_is_reserved_for_as_well_and_gets_what_is_left() -> None:
    play = Play([asks("look"), says("so far")], Limits(max_total_tokens=8_300))
    play.run()
    assert [(r.closing, r.max_output_tokens) for r in play.requests] == [(None, 8_192), ("token_limit", 8_130)]
    assert play.state.spent.tokens == 240


@pytest.mark.parametrize(("left", "requests"), [(256, 1), (255, 0)])
def test_a_closing_turn_without_room_for_a_sentence_is_not_asked_for(left: int, requests: int) -> None:
    play = Play([says("so far")], Limits(max_total_tokens=50 + left))
    play.run()
    assert play.ended.status == "token_limit"
    assert len(play.requests) == requests


def test_what_a_request_may_have_cost_stays_reserved_where_nobody_told() -> None:
    limits = Limits(max_total_tokens=20_000)
    play = Play([STALLED, STALLED, says("so far")], limits)
    play.run()
    assert play.state.reserved == 2 * (50 + 8_192)
    assert [(r.closing, r.max_output_tokens) for r in play.requests] == [
        (None, 8_192), (None, 8_192), ("token_limit", 3_466)
    ]  # fmt: skip


def test_a_server_that_tells_no_usage_is_held_to_the_token_limit_all_the_same() -> None:
    silent = [Turn(calls=(Call("look", f'{{"at": {n}}}'),)) for n in range(9)]
    play = Play([*silent[:3], says("so far")], Limits(max_total_tokens=30_000))
    play.run()
    assert play.ended.status == "token_limit"
    assert len(play.requests) == 4


def test_a_request_that_was_turned_away_costs_nothing() -> None:
    play = Play([DOWN, DOWN, says("done")], Limits(max_total_tokens=8_242))
    assert play.run() is not None
    assert play.ended.text == "done"
    assert play.state.reserved == 0


def test_without_a_token_limit_nothing_is_reserved() -> None:
    play = Play([STALLED, Turn("done")])
    play.run()
    assert play.state.reserved == 0
    assert play.state.spent.calls_without_usage == 2


# Attempts


def test_attempts_at_one_turn_transient_failures_only() -> None:
    play = Play([DOWN, DOWN, DOWN, says("done")])
    play.run()
    assert (play.ended.text, len(play.requests)) == ("done", 4)
    play = Play([DOWN] * 5)
    play.run()
    assert (play.ended.status, play.ended.failure, len(play.requests)) == ("failed", DOWN, 4)
    play = Play([REJECTED, says("never asked for")])
    play.run()
    assert (play.ended.failure, len(play.requests)) == (REJECTED, 1)


def test_backoff_doubles_up_to_eight_seconds() -> None:
    play = Play([*[DOWN] * 6, says("done")], Limits(model_attempts=7))
    play.run()
    assert [note.delay for note in play.notes if note.kind == "retrying"] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]


def test_the_servers_delay_is_honoured_up_to_max_retry_delay_beyond_it_failed_with_quota() -> None:
    wishes = Failure("rate_limited", "later", retryable=True, delay=60.0)
    play = Play([wishes, says("done")])
    play.run()
    assert (play.ended.text, play.now) == ("done", 61.0)
    play = Play([Failure("rate_limited", "later", retryable=True, delay=60.1)])
    play.run()
    assert play.ended.failure is not None
    assert (play.ended.status, play.ended.failure.code) == ("failed", "quota")


def test_a_pause_that_would_outlast_the_time_is_not_waited_for() -> None:
    wishes = Failure("rate_limited", "later", retryable=True, delay=60.0)
    play = Play([wishes, says("so far")], now=SOFT - 60.0)
    play.run()
    assert (play.ended.status, play.ended.text) == ("timed_out", "so far")
    assert play.now == SOFT - 60.0
    assert [note.kind for note in play.notes][2:4] == ["retrying", "round_started"]


def test_a_failed_turn_is_retried_alone_rounds_already_done_stay_done() -> None:
    play = Play([asks("put"), DOWN, says("done")])
    play.run()
    assert play.runs == ["put"]
    assert [request.round for request in play.requests] == [1, 2, 2]


def test_a_repair_is_tried_once_and_costs_no_attempt() -> None:
    repairable = Failure("bad_request", "unsupported", repair="drop:temperature")
    play = Play([repairable, says("done")], Limits(model_attempts=1))
    play.run()
    assert (play.ended.text, len(play.requests)) == ("done", 2)
    play = Play([repairable, asks("look"), repairable, says("never")])
    play.run()
    assert (play.ended.failure, len(play.requests)) == (repairable, 3)


def test_on_a_context_overflow_there_is_one_retry_with_shrunk_results() -> None:
    overflow = Turn("", finish="overflow", usage=USED)
    play = Play([asks("look"), overflow, says("done")])
    play.run(until=lambda state: state.repairs != ())
    assert play.state.repairs == ("shrink",)
    play.run()
    assert play.ended.text == "done"
    play = Play([asks("look"), overflow, overflow])
    play.run()
    assert play.ended.failure is not None
    assert play.ended.failure.code == "context_overflow"


@pytest.mark.parametrize("finish", ["malformed", "unknown"])
def test_an_unusable_reply_is_asked_for_again_a_bounded_number_of_times_then_failed(finish: str) -> None:
    bad = Turn("odd", (Call("put"),), finish=finish)  # type: ignore[arg-type]
    play = Play([bad, bad, says("done")])
    play.run()
    assert (play.ended.text, play.runs) == ("done", [])
    play = Play([bad] * 4)
    play.run()
    assert play.ended.status == "failed"
    assert len(play.requests) == 3


# What is counted


def test_usage_adds_up_and_model_calls_are_requests_sent() -> None:
    play = Play([DOWN, asks("look:1", "look:2"), says("")])
    play.run(until=lambda state: state.spent.model_calls == 3 and isinstance(state.stage, Asking) and state.stage.begun)
    play.feed(CancelAsked(2.0))
    spent = play.state.spent
    assert (spent.input_tokens, spent.output_tokens, spent.cached_tokens, spent.reasoning_tokens) == (100, 20, 10, 5)
    assert (spent.model_calls, spent.tool_calls, spent.calls_without_usage) == (3, 2, 2)


def test_a_message_begins_once_with_its_limits_and_deadlines() -> None:
    made = step(State(seq=1), Started(5.0, Limits(max_rounds=3), "pt", 100.0, 20.0))
    state = made.state
    assert (state.started_at, state.soft_deadline, state.deadline) == (5.0, 85.0, 105.0)
    assert (state.limits.max_rounds, state.language, state.seq) == (3, "pt", 3)
    assert [(note.kind, note.round) for note in made.notes] == [("started", None), ("round_started", 1)]
    assert todo(state) == (AskModel(1, 0, False, 8192),)
    assert todo(State()) != ()


def test_each_round_is_told_with_its_calls_and_its_cost() -> None:
    play = Play([asks("look:1", "put"), says("done")])
    play.run()
    told = [(note.kind, note.round, note.tool, note.call, note.ok) for note in play.notes]
    assert told == [
        ("started", None, None, None, None),
        ("round_started", 1, None, None, None),
        ("tool_started", 1, "look", 0, None),
        ("tool_finished", 1, "look", 0, True),
        ("tool_started", 1, "put", 1, None),
        ("tool_finished", 1, "put", 1, True),
        ("round_ended", 1, None, None, None),
        ("round_started", 2, None, None, None),
        ("ended", None, None, None, None),
    ]
    spent = [note.spent for note in play.notes if note.kind == "round_ended"]
    assert spent[0] is not None
    assert (spent[0].tokens, spent[0].tool_calls) == (120, 2)
    assert [note.seconds for note in play.notes if note.kind == "tool_finished"] == [0.1, 0.1]


def test_a_closing_turn_is_told_with_its_reason_and_a_retry_with_its_code_and_attempt() -> None:
    play = Play([DOWN, asks("look"), says("so far")], Limits(max_rounds=0))
    play.run()
    told = [(note.kind, note.round, note.attempt, note.code) for note in play.notes]
    assert told == [
        ("started", None, None, None),
        ("round_started", 1, None, None),
        ("retrying", 1, 1, "model_unreachable"),
        ("round_started", 2, None, "round_limit"),
        ("ended", None, None, None),
    ]
