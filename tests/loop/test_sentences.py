"""What SPEC.md says of the loop, sentence by sentence, where the core decides it."""

from itertools import chain, repeat

import pytest
from playing import DEADLINE, Play, asks, says

from roundelay_worker.loop.events import CancelAsked, Condemned, TimePassed
from roundelay_worker.loop.history import Native, Result, Turn
from roundelay_worker.loop.state import Ended, Failure, Limits, State
from roundelay_worker.loop.step import step
from roundelay_worker.loop.texts import closing_instruction

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
    assert play.ended.status == "refused"
    assert play.ended.text == "no\n\nWhat was found:\n- look: found by look"
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
    assert play.ended.text.endswith("changed its settings.")


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


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b\ufeff", "\0", "\u2028", "\ud83d"])
def test_a_reply_of_which_nobody_would_see_anything_is_empty(text: str) -> None:
    play = Play([says(text), says("👩\u200d🚀")])
    play.run()
    assert (play.ended.text, len(play.requests)) == ("👩\u200d🚀", 2)
    play = Play([asks("look"), says(text), says(text)], Limits(max_rounds=0))
    play.run()
    assert (play.ended.status, play.ended.text[:9], len(play.requests)) == ("round_limit", "I stopped", 3)


def test_empty_replies_are_asked_for_again_with_back_off() -> None:
    play = Play([says(""), says(""), says("done")])
    play.run()
    assert [note.delay for note in play.notes if note.kind == "retrying"] == [0.0, 0.5]
    assert play.now == 1.5


def test_a_reply_cut_by_the_output_limit_is_discarded_and_asked_for_once_more_with_twice_the_room() -> None:
    play = Play([asks("put", finish="cut"), says("done")])
    play.run()
    assert (play.ended.text, play.runs, play.state.sequence) == ("done", [], ())
    assert [note.delay for note in play.notes if note.kind == "retrying"] == [0.0]
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
