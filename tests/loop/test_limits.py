"""What SPEC.md says of the loop, of tokens, attempts and what is told, sentence by sentence."""

import pytest
from playing import SOFT, Play, asks, says
from worlds import USED

from roundelay_worker.loop.effects import AskModel
from roundelay_worker.loop.events import CancelAsked, Started, TurnFailed
from roundelay_worker.loop.history import Call, Turn, TurnUsage
from roundelay_worker.loop.state import Asking, Ended, Failure, Limits, State
from roundelay_worker.loop.step import step, todo

STALLED = Failure("model_stalled", "The model stalled.", retryable=True)
DOWN = Failure("model_unreachable", "The model could not be reached.", retryable=True)
REJECTED = Failure("bad_request", "The request was refused.")


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


@pytest.mark.parametrize(("jitter", "delay"), [(0.0, 0.5), (1 / 3, 5 / 12), (0.5, 0.375), (0.999_999, 0.25)])
def test_jitter_takes_up_to_half_of_a_backoff_and_what_is_told_is_rounded(jitter: float, delay: float) -> None:
    play = Play([says("done")])
    play.run(until=lambda state: state.spent.model_calls == 1)
    play.feed(TurnFailed(1, 1, DOWN, 7.0, jitter))
    (wanted,) = todo(play.state)
    assert isinstance(wanted, AskModel)
    assert wanted.due_at == pytest.approx(7.0 + delay, abs=1e-6)
    assert play.notes[-1].delay == round(delay, 3)


def test_the_servers_delay_is_honoured_up_to_max_retry_delay_beyond_it_failed_with_its_seconds() -> None:
    wishes = Failure("rate_limited", "later", retryable=True, delay=60.0)
    play = Play([wishes, says("done")])
    play.run()
    assert (play.ended.text, play.now) == ("done", 61.0)
    play = Play([Failure("rate_limited", "later", retryable=True, delay=60.1)])
    play.run()
    assert play.ended.failure is not None
    assert (play.ended.status, play.ended.failure.code) == ("failed", "rate_limited")
    assert "60 s" in play.ended.failure.message
    assert play.ended.failure.delay == 60.1


@pytest.mark.parametrize(("wish", "due"), [(0.0, 0.5), (0.2, 0.5), (2.0, 2.0)])
def test_a_servers_wish_is_a_floor_for_our_own_back_off(wish: float, due: float) -> None:
    play = Play([says("done")])
    play.run(until=lambda state: state.spent.model_calls == 1)
    play.feed(TurnFailed(1, 1, Failure("rate_limited", "later", retryable=True, delay=wish), 7.0, 0.0))
    (wanted,) = todo(play.state)
    assert isinstance(wanted, AskModel)
    assert wanted.due_at == pytest.approx(7.0 + due)


def test_messages_that_were_turned_away_together_do_not_come_back_at_one_instant() -> None:
    waits = set()
    for jitter in (0.0, 0.3, 0.9):
        play = Play([says("done")])
        play.run(until=lambda state: state.spent.model_calls == 1)
        play.feed(TurnFailed(1, 1, Failure("rate_limited", "later", retryable=True, delay=4.0), 7.0, jitter))
        waits.add(play.notes[-1].delay)
    assert len(waits) == 3
    assert min(waits) == 4.0


def test_a_pause_that_would_outlast_the_time_is_not_waited_for() -> None:
    wishes = Failure("rate_limited", "later", retryable=True, delay=60.0)
    play = Play([wishes, says("so far")], now=SOFT - 60.0)
    play.run()
    assert (play.ended.status, play.ended.text) == ("timed_out", "so far")
    assert play.now == SOFT - 60.0
    assert [note.kind for note in play.notes][2:4] == ["retrying", "turn_started"]


def test_a_failed_turn_is_retried_alone_rounds_already_done_stay_done() -> None:
    play = Play([asks("put"), DOWN, says("done")])
    play.run()
    assert play.runs == ["put"]
    assert [request.round for request in play.requests] == [1, 2, 2]


def test_a_repair_is_tried_once_and_costs_no_attempt() -> None:
    repairable = Failure("bad_request", "unsupported", repair="drop:temperature")
    play = Play([repairable, says("done")], Limits(model_attempts=1))
    play.run()
    assert (play.ended.text, len(play.requests), play.now) == ("done", 2, 1.0)
    assert [note.delay for note in play.notes if note.kind == "retrying"] == [0.0]
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


@pytest.mark.parametrize("cap", [0, 10])
def test_a_request_that_never_left_is_no_request_and_costs_nothing(cap: int) -> None:
    play = Play([asks("look")], Limits(max_rounds=cap, max_total_tokens=20_000))
    play.run(until=lambda state: state.sequence != () and isinstance(state.stage, Asking) and state.stage.begun)
    large = Failure("request_too_large", "The message is larger than a request may be.")
    play.feed(TurnFailed(2, 1, large, 1.0, 0.0, sent=False))
    assert play.ended.status == ("failed" if cap else "round_limit")
    spent = play.state.spent
    assert (spent.model_calls, spent.calls_without_usage, spent.tokens, play.state.reserved) == (1, 0, 120, 0)


def test_a_message_begins_once_with_its_limits_and_deadlines() -> None:
    made = step(State(seq=1), Started(5.0, Limits(max_rounds=3), "pt", 100.0, 20.0))
    state = made.state
    assert (state.started_at, state.soft_deadline, state.deadline) == (5.0, 85.0, 105.0)
    assert (state.limits.max_rounds, state.language, state.seq) == (3, "pt", 3)
    assert [(note.kind, note.turn) for note in made.notes] == [("started", None), ("turn_started", 1)]
    assert todo(state) == (AskModel(1, 0, False, 8192),)
    assert todo(State()) != ()


def test_each_round_is_told_with_its_calls_and_its_cost() -> None:
    play = Play([asks("look:1", "put"), says("done")])
    play.run()
    told = [(note.kind, note.turn, note.round, note.tool, note.call, note.ok) for note in play.notes]
    assert told == [
        ("started", None, None, None, None, None),
        ("turn_started", 1, None, None, None, None),
        ("tool_started", 1, 1, "look", 0, None),
        ("tool_finished", 1, 1, "look", 0, True),
        ("tool_started", 1, 1, "put", 1, None),
        ("tool_finished", 1, 1, "put", 1, True),
        ("turn_ended", 1, 1, None, None, None),
        ("turn_started", 2, None, None, None, None),
        ("turn_ended", 2, None, None, None, None),
        ("ended", None, None, None, None, None),
    ]
    spent = [note.spent for note in play.notes if note.kind == "turn_ended"]
    assert spent[0] is not None
    assert (spent[0].tokens, spent[0].tool_calls) == (120, 2)
    assert [note.seconds for note in play.notes if note.kind == "tool_finished"] == [0.1, 0.1]


def test_a_closing_turn_is_told_with_its_reason_and_a_retry_with_its_code_and_attempt() -> None:
    play = Play([DOWN, asks("look"), says("so far")], Limits(max_rounds=0))
    play.run()
    told = [(note.kind, note.turn, note.round, note.attempt, note.code or note.closing) for note in play.notes]
    assert told == [
        ("started", None, None, None, None),
        ("turn_started", 1, None, None, None),
        ("retrying", 1, None, 1, "model_unreachable"),
        ("turn_ended", 1, None, None, None),
        ("turn_started", 2, None, None, "round_limit"),
        ("turn_ended", 2, None, None, None),
        ("ended", None, None, None, None),
    ]
