"""How calls are run: order, barriers, places."""

from dataclasses import replace

import pytest
from playing import Play, asks, at_calls, begin_all, says

from roundelay_worker.loop.events import CallFinished, CallStarted, OwnerLost, TurnArrived
from roundelay_worker.loop.history import Call, Result, Turn
from roundelay_worker.loop.state import CallPlan, Failure, Limits
from roundelay_worker.loop.step import todo

# Order


def test_consecutive_reads_may_run_together_and_a_write_runs_alone_in_order() -> None:
    play = at_calls("look:1", "look:2", "put", "look:3", "look:4")
    assert begin_all(play) == [0, 1]
    play.feed(play.finish(1))
    assert todo(play.state) == ()
    play.feed(play.finish(0))
    assert begin_all(play) == [2]
    assert todo(play.state) == ()
    play.feed(play.finish(2))
    assert begin_all(play) == [3, 4]


def test_an_unknown_tool_runs_alone_in_order() -> None:
    play = at_calls("look", "who_knows", "look")
    assert begin_all(play) == [0]
    play.feed(play.finish(0))
    assert begin_all(play) == [1]


def test_never_more_reads_at_once_than_allowed() -> None:
    play = at_calls(*[f"look:{n}" for n in range(6)])
    assert begin_all(play) == [0, 1, 2, 3]
    assert todo(play.state) == ()
    play.feed(play.finish(2))
    assert begin_all(play) == [4]
    play.feed(play.finish(0))
    play.feed(play.finish(1))
    assert begin_all(play) == [5]


def test_parallel_reads_of_one_means_one_by_one() -> None:
    play = at_calls("look:1", "look:2", limits=Limits(parallel_reads=1))
    assert begin_all(play) == [0]
    assert todo(play.state) == ()
    play.feed(play.finish(0))
    assert begin_all(play) == [1]


def test_results_are_in_the_order_of_the_calls_whatever_finished_first() -> None:
    play = at_calls("look:1", "look:2", "look:3")
    begin_all(play)
    for position in (2, 0, 1):
        play.feed(CallFinished(1, position, Result(f"result {position}"), 1.0))
    assert play.results == [["result 0", "result 1", "result 2"]]


def test_two_calls_of_one_name_without_ids_are_told_apart_by_their_place() -> None:
    play = at_calls("look", "look")
    begin_all(play)
    play.feed(CallFinished(1, 1, Result("second"), 1.0))
    play.feed(CallFinished(1, 0, Result("first"), 1.0))
    assert play.results == [["first", "second"]]


def test_one_id_used_twice_in_a_turn_and_again_in_a_later_round_is_run_each_time() -> None:
    same = replace(asks("look"), calls=(Call("put", wire_id="c1"), Call("put", wire_id="c1")))
    play = Play([same, replace(same, calls=(Call("look", wire_id="c1"),)), says("done")])
    play.run()
    assert play.runs == ["put", "put", "look"]
    assert play.ended.status == "answered"


def test_the_seconds_of_a_call_are_told_to_the_microsecond() -> None:
    play = at_calls("look")
    begin_all(play)
    play.feed(CallFinished(1, 0, Result("found"), 1.0, 0.123_456_7))
    assert [note.seconds for note in play.notes if note.kind == "tool_finished"] == [0.123_457]


def test_parallel_reads_one_fails_the_others_complete() -> None:
    play = Play(
        [asks("look:1", "look:bad", "look:3"), says("done")],
        tool=lambda call: Result('{"error": {}}', is_error=True) if "bad" in call.arguments else Result("ok"),
    )
    play.run()
    assert [result.is_error for result in play.state.sequence[0].results] == [False, True, False]
    assert play.ended.status == "answered"
    assert [note.ok for note in play.notes if note.kind == "tool_finished"] == [True, False, True]


@pytest.mark.parametrize("fault", ["bad JSON", "an array", "null"])
def test_a_call_that_cannot_be_read_is_an_error_result_and_the_loop_goes_on(fault: str) -> None:
    turn = Turn(calls=(Call("look", fault=fault),))
    play = Play([turn, says("done")], tool=lambda call: Result(call.fault, is_error=bool(call.fault)))
    play.run()
    assert (play.results, play.ended.status) == ([[fault]], "answered")


# Retries


def test_round_1_writes_round_2_has_a_network_error_the_write_is_not_repeated() -> None:
    down = Failure("model_unreachable", "down", retryable=True)
    play = Play([asks("put"), down, down, says("done")])
    play.run()
    assert (play.runs, len(play.requests)) == (["put"], 4)


def test_a_saved_turn_is_never_asked_again() -> None:
    play = at_calls("put", "look")
    play.feed(OwnerLost(2.0))
    play.run()
    assert [request.round for request in play.requests] == [1, 2]
    assert play.state.sequence[0].turn.calls == asks("put", "look").calls


def test_a_plan_counts_as_a_write_unless_something_else_is_known() -> None:
    assert CallPlan() == CallPlan("write", idempotent=False, polling=False)
    play = at_calls("look", "look")
    assert isinstance(play.next_event(), CallStarted)
    assert not isinstance(play.next_event(), TurnArrived)
