"""Whole messages as they went wrong elsewhere, each with the exact number of requests it may take."""

from itertools import chain, count, repeat

import pytest
from playing import Play, asks, says
from worlds import USED

from roundelay_worker.loop.events import CancelAsked, OwnerLost
from roundelay_worker.loop.history import Call, Result, Turn
from roundelay_worker.loop.state import Asking, Failure, Limits, Running

CUT_OFF = Failure("reply_cut_off", "The connection ended in the middle of the reply.", retryable=True)
FAILED = Failure("provider_error", "The provider failed.", retryable=True)


def test_a_model_that_asks_for_a_tool_on_every_turn_takes_twelve_requests_and_ends_with_a_text() -> None:
    replies = [asks(f"look:{number}", text="let me see") for number in range(11)]
    play = Play([*replies, says("this is what I found")])
    play.run()
    assert (len(play.requests), len(play.runs), play.state.rounds) == (12, 10, 10)
    assert [request.closing for request in play.requests] == [None] * 11 + ["round_limit"]
    assert play.results[10] == ["Not executed: the step limit for this answer was reached."]
    assert play.ended.text == "this is what I found"


def test_a_model_that_even_asks_for_tools_when_it_may_not_takes_twelve_requests_too() -> None:
    play = Play(asks(f"put:{number}", text="let me") for number in count())
    play.run()
    assert (len(play.requests), len(play.runs)) == (12, 10)
    assert play.ended.status == "round_limit"
    assert play.ended.text.startswith("I stopped before finishing")


@pytest.mark.parametrize(("cap", "requests"), [(0, 1), (1, 2), (2, 3), (10, 11)])
def test_an_answer_exactly_after_the_last_round_needs_no_closing(cap: int, requests: int) -> None:
    play = Play([*(asks(f"look:{n}") for n in range(cap)), says("done")], Limits(max_rounds=cap))
    play.run()
    assert (len(play.requests), play.ended.status) == (requests, "answered")


def test_the_closing_call_fails_twice_then_the_local_summary_tells_what_was_done_and_is_undone() -> None:
    play = Play([asks("look"), asks("put"), FAILED, FAILED], Limits(max_rounds=1))
    play.run()
    assert len(play.requests) == 4
    assert "look: found by look" in play.ended.text
    assert "What was not done:\n- put" in play.ended.text


def test_a_turn_at_the_cap_that_is_cut_in_the_middle_of_a_call_is_a_failed_call_not_a_half_one() -> None:
    cut = asks("put", finish="cut")
    play = Play([asks("look"), cut, asks("put"), says("so far")], Limits(max_rounds=1))
    play.run()
    assert (len(play.requests), play.runs) == (4, ["look"])
    assert [exchange.turn.finish for exchange in play.state.sequence] == ["complete", "complete"]
    assert play.ended.status == "round_limit"


def test_a_cut_text_at_the_cap_is_not_complete_either() -> None:
    play = Play([asks("look"), Turn("half a sen", finish="cut", usage=USED), says("whole")], Limits(max_rounds=1))
    play.run()
    assert (play.ended.status, play.ended.text, len(play.requests)) == ("answered", "whole", 3)


def test_several_calls_pending_at_the_cap_are_each_answered_exactly_once_in_order() -> None:
    play = Play([asks("look", "put:1", "put:2", "who"), says("so far")], Limits(max_rounds=0))
    play.run()
    (exchange,) = play.state.sequence
    assert [call.name for call in exchange.turn.calls] == ["look", "put", "put", "who"]
    assert [result.outcome for result in exchange.results] == ["not_executed"] * 4
    assert len(play.requests) == 2


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_the_tools_of_the_last_round_are_read_by_a_call_that_follows(cap: int) -> None:
    play = Play((asks(f"put:{n}") for n in count()), Limits(max_rounds=cap))
    play.run(until=lambda state: state.rounds == cap)
    assert len(play.requests) == cap
    play.run(until=lambda state: isinstance(state.stage, Asking) and state.stage.closing is not None)
    assert len(play.requests) == cap + 1
    assert len(play.runs) == cap


def test_two_rounds_are_two_different_turns() -> None:
    play = Play([asks("look:1"), asks("look:2"), says("done")])
    play.run()
    assert [exchange.turn.calls[0].arguments for exchange in play.state.sequence] == ['{"at": "1"}', '{"at": "2"}']
    assert len(play.requests) == 3


def test_a_stream_that_ends_without_its_end_is_a_failed_attempt_and_nothing_runs() -> None:
    play = Play([CUT_OFF, asks("put"), says("done")])
    play.run()
    assert (play.runs, len(play.requests), play.state.rounds) == (["put"], 3, 1)


def test_a_cut_reply_with_several_calls_some_whole_runs_none() -> None:
    play = Play([asks("put", "look", finish="cut"), asks("look"), says("done")])
    play.run()
    assert (play.runs, len(play.requests)) == (["look"], 3)


def test_a_final_text_that_is_cut_is_never_passed_off_as_whole() -> None:
    half = Turn("The answer is fo", finish="cut", usage=USED)
    play = Play([half, half, half, half])
    play.run()
    assert (play.ended.status, len(play.requests)) == ("token_limit", 4)
    assert "The answer is fo" not in play.ended.text


@pytest.mark.parametrize(
    ("reply", "status", "requests"),
    [
        (Turn("wait", finish="paused"), "answered", 2),
        (Turn("no", finish="refused"), "refused", 1),
        (Turn("", finish="overflow"), "answered", 2),
        (Turn("half", finish="cut"), "answered", 2),
        (Turn("<tool_call>", finish="malformed"), "answered", 2),
        (Turn("odd", finish="unknown"), "answered", 2),
        (Turn("whole"), "answered", 1),
    ],
)
def test_each_way_of_ending_has_its_own_meaning(reply: Turn, status: str, requests: int) -> None:
    play = Play([reply, says("done")])
    play.run()
    assert (play.ended.status, len(play.requests)) == (status, requests)


def test_pauses_for_ever_count_as_rounds() -> None:
    play = Play(chain(repeat(Turn("hm", finish="paused"), 11), [says("so far")]))
    play.run()
    assert (play.ended.status, len(play.requests), play.state.rounds) == ("round_limit", 12, 10)


def test_the_cap_holds_across_retries_and_resumes() -> None:
    lost = 0
    play = Play(chain.from_iterable((FAILED, asks(f"look:{n}")) for n in range(6)), Limits(max_rounds=5))
    while len(play.runs) < 5 or isinstance(play.state.stage, Running):
        play.feed(play.next_event())
        if isinstance(play.state.stage, Asking) and not play.state.stage.begun:
            play.feed(OwnerLost(1.0))
            lost += 1
    play.run(until=lambda state: isinstance(state.stage, Asking) and state.stage.closing is not None)
    assert (play.state.rounds, len(play.runs), len(play.requests)) == (5, 5, 12)
    assert lost > 5


def test_a_tool_that_raises_beside_others_gets_an_error_result_and_the_others_are_kept() -> None:
    def tool(call: Call) -> Result:
        failed = Result('{"error": {"code": "tool_failed", "message": "KeyError", "recovery": ""}}', is_error=True)
        return failed if "bad" in call.arguments else Result("fine")

    play = Play([asks("look:a", "look:bad", "look:c"), says("done")], tool=tool)
    play.run()
    assert play.results[0][0] == play.results[0][2] == "fine"
    assert (len(play.requests), play.ended.status) == (2, "answered")


def test_on_a_retry_a_model_that_would_ask_with_other_arguments_is_not_asked() -> None:
    play = Play([asks("put:1"), asks("put:2"), says("done")])
    play.run(until=lambda state: isinstance(state.stage, Running))
    play.feed(OwnerLost(1.0))
    play.run(until=lambda state: state.rounds == 1)
    assert [exchange.turn.calls[0].arguments for exchange in play.state.sequence] == ['{"at": "1"}']
    assert len(play.requests) == 1


def test_cancelled_while_a_tool_runs_the_history_has_a_result_that_says_cancelled_by_user() -> None:
    play = Play([asks("put", "look")])
    play.run(until=lambda state: isinstance(state.stage, Running) and state.stage.calls[0].status == "started")
    play.feed(CancelAsked(2.0))
    assert ["cancelled by user" in text for text in play.results[0]] == [True, True]
    assert play.ended.status == "cancelled"
    assert "What may or may not have been done (please check):\n- put" in play.ended.text


def test_a_third_call_that_would_break_the_budget_is_refused_before_it_is_sent() -> None:
    each = [Turn(calls=(Call("look", f'{{"n": {n}}}'),), usage=USED) for n in range(3)]
    play = Play([*each, says("so far")], Limits(max_total_tokens=2_400, max_output_tokens=1_000), estimate=1_100)
    play.run()
    assert [request.closing for request in play.requests] == [None, None, None, "token_limit"]
    assert play.requests[-1].max_output_tokens == 940
    assert play.state.spent.tokens <= 2_400
