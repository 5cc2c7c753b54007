"""What happens where two rules meet: the cap, the limits of tokens and time, cancel, repetition, retries, closing."""

from itertools import count

import pytest
from playing import DEADLINE, SOFT, Play, asks, is_running, says
from worlds import USED

from roundelay_worker.loop.events import CancelAsked, Condemned, OwnerLost, TimePassed
from roundelay_worker.loop.history import Call, Result, Turn
from roundelay_worker.loop.state import Asking, Failure, Limits, State
from roundelay_worker.loop.summary import deeds

DOWN = Failure("model_unreachable", "The model could not be reached.", retryable=True)
LOST = Failure("worker_lost", "The worker was lost.")
NOTHING = Turn("", usage=USED)


def closes(state: State) -> bool:
    """Say whether the closing turn is wanted, or under way."""
    return isinstance(state.stage, Asking) and state.stage.closing is not None


def is_closing(state: State) -> bool:
    """Say whether the closing turn is under way."""
    return closes(state) and isinstance(state.stage, Asking) and state.stage.begun


def outcomes(play: Play) -> list[str]:
    """Return what became of each call, in order."""
    return [result.outcome for exchange in play.state.sequence for result in exchange.results]


# The cap


def test_at_the_cap_without_tokens_for_a_closing_turn_the_summary_ends_it_as_round_limit() -> None:
    limits = Limits(max_rounds=1, max_total_tokens=8_192 + 50 + 120)
    play = Play([asks("look"), asks("put", usage=None)], limits)
    play.run()
    assert (play.ended.status, len(play.requests), play.runs) == ("round_limit", 2, ["look"])
    assert "What was not done:\n- put" in play.ended.text


@pytest.mark.parametrize(("arrives", "requests"), [(SOFT, 2), (DEADLINE - 1, 2), (DEADLINE, 1)])
def test_a_turn_at_the_cap_that_arrives_in_the_reserve_is_closed_if_there_is_time(
    arrives: float, requests: int
) -> None:
    play = Play([asks("put"), says("so far")], Limits(max_rounds=0))
    play.run(until=lambda state: isinstance(state.stage, Asking) and state.stage.begun)
    play.now = arrives
    play.run()
    assert (play.ended.status, len(play.requests), play.runs) == ("round_limit", requests, [])
    assert (play.ended.text == "so far") == (requests == 2)


@pytest.mark.parametrize("turn", [Turn("hm", finish="paused"), asks("put", finish="paused")])
def test_a_paused_turn_at_the_cap_is_kept_runs_nothing_and_is_closed(turn: Turn) -> None:
    play = Play([asks("look"), turn, says("so far")], Limits(max_rounds=1))
    play.run()
    assert (play.ended.status, play.ended.text, play.runs) == ("round_limit", "so far", ["look"])
    assert (play.state.sequence[1].turn, play.state.rounds) == (turn, 1)
    assert play.results[1] == ["Not executed: the step limit for this answer was reached."] * len(turn.calls)


def test_a_turn_at_the_cap_that_is_cut_twice_is_token_limit_and_closed() -> None:
    cut = asks("put", finish="cut")
    play = Play([asks("look"), cut, cut, says("so far")], Limits(max_rounds=1))
    play.run()
    assert (play.ended.status, play.ended.text, play.runs) == ("token_limit", "so far", ["look"])
    assert [(r.closing, r.max_output_tokens) for r in play.requests[1:]] == [
        (None, 8_192), (None, 16_384), ("token_limit", 8_192)
    ]  # fmt: skip


def test_empty_replies_after_the_last_round_are_asked_for_again_and_may_end_it_as_any_other() -> None:
    play = Play([asks("look"), NOTHING, NOTHING, says("done")], Limits(max_rounds=1))
    play.run()
    assert (play.ended.status, len(play.requests)) == ("answered", 4)
    play = Play([asks("look"), NOTHING, NOTHING, NOTHING], Limits(max_rounds=1))
    play.run()
    assert (play.ended.status, len(play.requests)) == ("failed", 4)


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_the_requests_of_a_message_are_bounded_whatever_fails_at_every_turn(cap: int) -> None:
    def replies() -> object:
        for number in count():
            yield from (DOWN, DOWN, DOWN, NOTHING, NOTHING, asks("put", finish="cut"), asks(f"look:{number}"))

    play = Play(replies(), Limits(max_rounds=cap))  # type: ignore[arg-type]
    play.run()
    assert (play.ended.status, play.state.rounds, len(play.runs)) == ("round_limit", cap, cap)
    assert len(play.requests) == 7 * (cap + 1) + 2
    assert play.state.spent.model_calls == len(play.requests)


# Closing


@pytest.mark.parametrize("waits", [True, False])
def test_a_cancel_while_the_closing_turn_is_wanted_or_under_way_wins(waits: bool) -> None:
    play = Play([asks("look"), asks("put"), says("too late")], Limits(max_rounds=1))
    play.run(until=closes if waits else is_closing)
    play.feed(CancelAsked(2.0))
    assert (play.ended.status, outcomes(play)) == ("cancelled", ["done", "not_executed"])
    assert play.state.spent.calls_without_usage == (0 if waits else 1)
    play.run()
    assert play.ended.status == "cancelled"


def test_a_worker_that_is_lost_for_good_while_closing_leaves_the_record_in_the_text() -> None:
    play = Play([asks("look"), asks("put")], Limits(max_rounds=1))
    play.run(until=is_closing)
    play.feed(OwnerLost(2.0))
    play.feed(Condemned(LOST, 2.0))
    assert (play.ended.status, play.ended.failure) == ("failed", LOST)
    assert "look: found by look" in play.ended.text


def test_the_reason_of_a_closing_turn_is_the_first_whatever_comes_after() -> None:
    play = Play([asks("put"), says("so far")], Limits(max_rounds=0))
    play.run(until=is_closing)
    play.feed(TimePassed(SOFT))
    assert is_closing(play.state)
    play.run()
    assert (play.ended.status, play.ended.text) == ("round_limit", "so far")


def test_a_closing_turn_has_attempts_and_room_of_its_own_whatever_its_turn_has_used() -> None:
    used = [DOWN, DOWN, DOWN, NOTHING, NOTHING, asks("put", finish="cut")]
    play = Play([*used, NOTHING, says("so far")])
    play.run(until=lambda state: len(play.requests) == len(used))
    play.feed(TimePassed(SOFT))
    play.now = SOFT
    play.run()
    assert (play.ended.status, play.ended.text) == ("timed_out", "so far")
    assert [(r.max_output_tokens, r.nudge) for r in play.requests[len(used) :]] == [(8_192, ""), (8_192, "")]
    assert [r.attempt for r in play.requests] == list(range(1, len(used) + 3))


def test_a_closing_turn_that_is_cut_gets_no_more_than_the_tokens_that_are_left() -> None:
    cut = Turn("ha", finish="cut", usage=USED)
    play = Play([asks("look"), cut, says("so far")], Limits(max_total_tokens=8_300))
    play.run()
    assert (play.ended.status, play.ended.text) == ("token_limit", "so far")
    assert [r.max_output_tokens for r in play.requests] == [8_192, 8_300 - 120 - 50, 8_300 - 240 - 50]


@pytest.mark.parametrize(
    ("turn", "code"),
    [
        (NOTHING, "empty_reply"),
        (Turn("ha", finish="cut"), "reply_cut"),
        (Turn("<tool_call>", finish="malformed"), "malformed_reply"),
        (Turn("odd", finish="unknown"), "unknown_finish"),
    ],
)
def test_a_closing_turn_that_is_asked_for_again_is_told_with_what_was_wrong(turn: Turn, code: str) -> None:
    play = Play([asks("put"), turn, says("so far")], Limits(max_rounds=0))
    play.run()
    assert [(note.code, note.delay) for note in play.notes if note.kind == "retrying"] == [(code, 0.0)]
    assert play.now == 1.0


# Pauses between attempts


@pytest.mark.parametrize("cap", [0, 10])
def test_only_a_pause_that_the_provider_asks_for_is_held_against_max_retry_delay(cap: int) -> None:
    wishes = Failure("rate_limited", "later", retryable=True, delay=0.2)
    for failure, waits in ((DOWN, True), (wishes, False)):
        play = Play([asks("look"), failure, says("done")], Limits(max_rounds=cap, max_retry_delay=0.1))
        play.run()
        assert (play.ended.text == "done") == waits
        if not waits and cap:
            assert play.ended.failure is not None
            assert play.ended.failure.code == "rate_limited"


# Unknown outcomes


@pytest.mark.parametrize("reason", ["round_limit", "token_limit", "timed_out", "no_progress"])
@pytest.mark.parametrize("closing", [says("so far"), asks("look")])
def test_a_write_of_unknown_outcome_is_listed_after_every_soft_stop(reason: str, closing: Turn) -> None:
    repeated = [asks("look")] * (6 if reason == "no_progress" else 1)
    tokens = 8_400 if reason == "token_limit" else None
    limits = Limits(max_rounds=1 if reason == "round_limit" else 10, max_total_tokens=tokens)
    play = Play([asks("look:first", "put"), *repeated, closing], limits)
    play.run(until=lambda state: is_running(state) and state.stage.calls[1].status == "started")  # type: ignore[union-attr]
    play.feed(OwnerLost(2.0))
    if reason == "timed_out":
        play.now = SOFT
        play.feed(TimePassed(SOFT))
    play.run()
    assert play.ended.status == reason
    assert [deed.call.name for deed in deeds(play.state) if deed.outcome == "unknown"] == ["put"]
    assert closing.calls == () or "What may or may not have been done (please check):\n- put" in play.ended.text


# Repetition


def test_errors_that_repeat_count_as_any_other_result() -> None:
    play = Play([*[asks("look")] * 6, says("so far")], tool=lambda call: Result('{"error": {}}', is_error=True))
    play.run()
    assert (play.ended.status, len(play.runs)) == ("no_progress", 4)


def test_arguments_that_are_wrong_in_another_way_each_time_are_corrected_up_to_the_cap() -> None:
    wrong = [Turn(calls=(Call("look", fault=f"wrong at column {n}"),)) for n in range(8)]
    play = Play([*wrong, says("done")], tool=lambda call: Result(call.fault, is_error=True))
    play.run()
    assert (play.ended.status, len(play.runs)) == ("answered", 8)


def test_one_outcome_that_becomes_an_error_breaks_the_row() -> None:
    flags = iter([False, False, False, True, False, False, False])
    play = Play([*[asks("look")] * 7, says("done")], tool=lambda call: Result("same", is_error=next(flags)))
    play.run()
    assert (play.ended.status, len(play.runs)) == ("answered", 7)


def test_parallel_reads_repeat_themselves_whatever_ends_first() -> None:
    play = Play([*[asks("look:1", "look:2")] * 6, says("so far")])
    while not play.run(until=lambda state: is_running(state) and _all_begun(state)):
        play.feed(play.finish(1 if play.state.rounds % 2 else 0))
        play.run(until=lambda state: not is_running(state))
    assert (play.ended.status, len(play.runs)) == ("no_progress", 8)


def _all_begun(state: State) -> bool:
    return all(call.status == "started" for call in state.stage.calls)  # type: ignore[union-attr]


def test_reads_in_another_order_are_another_turn() -> None:
    turns = [asks("look:1", "look:2"), asks("look:2", "look:1")] * 4
    play = Play([*turns, says("done")])
    play.run()
    assert (play.ended.status, len(play.runs)) == ("answered", 16)


def test_an_id_that_comes_again_makes_no_difference_to_what_is_the_same() -> None:
    same = [Turn(calls=(Call("look", wire_id=f"call_{n % 2}"),)) for n in range(6)]
    play = Play([*same, says("so far")])
    play.run()
    assert (play.ended.status, len(play.runs)) == ("no_progress", 4)


def test_repetition_and_the_cap_at_one_turn_is_the_caps() -> None:
    for cap, status in ((5, "round_limit"), (6, "no_progress")):
        play = Play([*[asks("look")] * 6, says("so far")], Limits(max_rounds=cap))
        play.run()
        assert (play.ended.status, len(play.runs)) == (status, 4)
