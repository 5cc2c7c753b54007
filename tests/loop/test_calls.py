"""How calls are run: order, barriers, doubt, and turns that repeat themselves."""

from dataclasses import replace

import pytest
from playing import SOFT, Play, asks, is_running, says

from roundelay_worker.loop.effects import RunCall, VerifyCall
from roundelay_worker.loop.events import (
    CallFinished,
    CallStarted,
    CallVerified,
    CancelAsked,
    Condemned,
    OwnerLost,
    TimePassed,
    TurnArrived,
)
from roundelay_worker.loop.history import Call, Result, Turn
from roundelay_worker.loop.state import CallPlan, Failure, Limits
from roundelay_worker.loop.step import todo
from roundelay_worker.loop.texts import REPEAT_NOTE


def at_calls(*names: str, limits: Limits | None = None) -> Play:
    """Return a play whose first turn made these calls, none of which has begun."""
    play = Play([asks(*names), says("done")], limits or Limits())
    play.run(until=is_running)
    return play


def begin_all(play: Play) -> list[int]:
    """Begin whatever may begin; return the positions."""
    begun = []
    for effect in todo(play.state):
        assert isinstance(effect, RunCall)
        play.feed(CallStarted(effect.round, effect.position, 1.0))
        begun.append(effect.position)
    return begun


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


# Doubt


def lost_while(*names: str, begun: int) -> Play:
    """Return a play whose worker was lost while the call at ``begun`` was under way; earlier ones are done."""
    play = at_calls(*names)
    play.run(until=lambda state: is_running(state) and state.stage.calls[begun].status == "started")  # type: ignore[union-attr]
    play.feed(OwnerLost(2.0))
    return play


def test_a_read_may_run_again() -> None:
    play = lost_while("look", begun=0)
    assert play.statuses == ["requested"]
    play.run()
    assert (play.runs, play.ended.status) == (["look", "look"], "answered")


def test_an_idempotent_write_runs_at_least_once() -> None:
    play = lost_while("safe", begun=0)
    assert play.statuses == ["requested"]
    play.run()
    assert (play.runs, play.ended.status) == (["safe", "safe"], "answered")


def test_a_write_that_began_and_whose_outcome_is_unknown_is_not_run_again_the_model_is_told() -> None:
    play = lost_while("look", "put", "look", begun=1)
    assert play.statuses == ["done", "in_doubt", "requested"]
    assert todo(play.state) == (VerifyCall(1, 1),)
    play.run()
    assert play.runs == ["look", "put", "look"]
    doubtful = play.state.sequence[0].results[1]
    assert (doubtful.outcome, doubtful.is_error) == ("unknown", True)
    assert "whether it took effect is unknown" in doubtful.text
    assert "outcome_unknown" in doubtful.text


def test_what_had_not_begun_when_the_worker_was_lost_is_run_in_turn() -> None:
    play = lost_while("put:1", "put:2", begun=0)
    assert play.statuses == ["in_doubt", "requested"]
    play.run()
    assert play.runs == ["put", "put"]
    assert [result.outcome for result in play.state.sequence[0].results] == ["unknown", "done"]


def test_verify_may_turn_unknown_into_done() -> None:
    play = lost_while("put", begun=0)
    play.feed(CallVerified(1, 0, "done", False, 2.0, Result("row 7 is there")))
    assert play.results == [["row 7 is there"]]
    assert [note.seconds for note in play.notes if note.kind == "tool_finished"] == [0.0]
    assert play.state.sequence[0].results[0].outcome == "done"


def test_done_without_a_result_is_not_believed() -> None:
    play = lost_while("put", begun=0)
    play.feed(CallVerified(1, 0, "done", False, 2.0))
    assert play.state.sequence[0].results[0].outcome == "unknown"


def test_not_done_allows_a_new_run_only_when_the_old_executor_is_known_to_be_dead() -> None:
    play = lost_while("put", begun=0)
    play.feed(CallVerified(1, 0, "not_done", True, 2.0))
    assert play.statuses == ["requested"]
    play.run()
    assert (play.runs, play.ended.status) == (["put", "put"], "answered")
    play = lost_while("put", begun=0)
    play.feed(CallVerified(1, 0, "not_done", False, 2.0, Result("not to be shown")))
    assert [result.outcome for result in play.state.sequence[0].results] == ["unknown"]
    assert "not to be shown" not in play.results[0][0]


@pytest.mark.parametrize("dead", [True, False])
def test_a_write_of_which_its_tool_knows_nothing_or_that_was_done_is_never_run_again(dead: bool) -> None:
    for verdict, result, outcome in (("unknown", None, "unknown"), ("done", Result("there"), "done")):
        play = lost_while("put", begun=0)
        play.feed(CallVerified(1, 0, verdict, dead, 2.0, result))  # type: ignore[arg-type]
        assert [result.outcome for result in play.state.sequence[0].results] == [outcome]
        play.run()
        assert play.runs == ["put"]


def test_a_late_result_of_a_lost_worker_does_not_count() -> None:
    play = lost_while("put", begun=0)
    before = play.state
    assert play.feed(play.finish(0)) is before


def test_a_result_that_came_before_the_loss_stays() -> None:
    play = at_calls("put:1", "put:2")
    begin_all(play)
    play.feed(play.finish(0))
    play.feed(OwnerLost(2.0))
    assert play.statuses == ["done", "requested"]


# Every open call gets a result that says what is known


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (CancelAsked(2.0), "cancelled by user"),
        (TimePassed(SOFT), "interrupted"),
        (Condemned(Failure("worker_lost", "lost"), 2.0), "interrupted"),
    ],
)
def test_killed_or_cancelled_while_tools_run_every_open_call_gets_a_result_that_says_what_is_known(
    ending: CancelAsked | TimePassed | Condemned, words: str
) -> None:
    for name, outcome in (("look", "done"), ("put", "unknown"), ("safe", "unknown")):
        play = at_calls(name, "put:later")
        begin_all(play)
        play.feed(ending)
        begun, waiting = play.state.sequence[0].results
        assert (begun.outcome, begun.is_error) == (outcome, True)
        assert words in begun.text
        assert (waiting.outcome, waiting.is_error) == ("not_executed", False)
        assert play.state.rounds == 1
        told = [(note.kind, note.tool, note.call, note.ok) for note in play.notes if note.kind.startswith("tool_f")]
        assert told == [("tool_finished", name, 0, False)]


def test_a_call_in_doubt_when_the_message_is_cancelled_stays_unknown() -> None:
    play = lost_while("look", "put", "look", begun=1)
    play.feed(CancelAsked(3.0))
    assert [result.outcome for result in play.state.sequence[0].results] == ["done", "unknown", "not_executed"]
    assert play.results[0][0] == "found by look"


def test_calls_of_which_none_had_begun_make_no_round() -> None:
    play = at_calls("put", "look")
    play.feed(CancelAsked(2.0))
    assert play.results == [["Not executed: cancelled by user."] * 2]
    assert play.state.rounds == 0
    assert "round_ended" not in [note.kind for note in play.notes]


def test_a_message_that_failed_says_so_for_the_calls_that_did_not_run() -> None:
    play = at_calls("put")
    play.feed(Condemned(Failure("internal_error", "ours"), 2.0))
    assert play.results == [["Not executed: the answer ended with an error before this step."]]


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


# Repetition


def test_the_third_result_carries_a_note_the_fourth_runs_the_fifth_is_not_run_the_sixth_ends_no_progress() -> None:
    play = Play([*[asks("look")] * 6, says("so far")])
    play.run()
    assert len(play.runs) == 4
    assert [exchange.note for exchange in play.state.sequence] == ["", "", REPEAT_NOTE, "", REPEAT_NOTE, ""]
    assert [texts[0].startswith("Not executed") for texts in play.results] == [False] * 4 + [True] * 2
    assert [exchange.results[0].outcome for exchange in play.state.sequence][4:] == ["not_executed"] * 2
    assert (play.ended.status, play.ended.text) == ("no_progress", "so far")
    assert (len(play.requests), play.state.rounds) == (7, 5)


def test_a_different_turn_resets_it() -> None:
    different = [asks("look:other"), asks("look", "look"), asks("look", "put")]
    for other in different:
        play = Play([*[asks("look")] * 4, other, *[asks("look")] * 4, says("done")])
        play.run()
        assert (play.ended.status, len(play.runs)) == ("answered", 8 + len(other.calls))


def test_a_different_turn_after_the_one_that_was_not_run_goes_on() -> None:
    play = Play([*[asks("look")] * 5, asks("put"), says("done")])
    play.run()
    assert (play.ended.status, play.runs[-1], len(play.runs)) == ("answered", "put", 5)
    assert play.state.streak == 1


def test_polling_opts_out() -> None:
    play = Play([*[asks("poll")] * 9, says("done")])
    play.run()
    assert (play.ended.status, len(play.runs)) == ("answered", 9)
    assert not any(exchange.note for exchange in play.state.sequence)


def test_polling_beside_another_call_does_not_opt_out() -> None:
    play = Play([*[asks("poll", "look")] * 6, says("so far")])
    play.run()
    assert play.ended.status == "no_progress"


def test_polling_before_does_not_count_for_what_comes_after() -> None:
    play = Play([*[asks("poll")] * 4, *[asks("look")] * 4, says("done")])
    play.run()
    assert [bool(exchange.note) for exchange in play.state.sequence] == [False] * 6 + [True, False]


def test_the_same_calls_with_other_results_do_not_count() -> None:
    numbers = iter(range(99))
    play = Play([*[asks("look")] * 9, says("done")], tool=lambda call: Result(str(next(numbers))))
    play.run()
    assert (play.ended.status, len(play.runs)) == ("answered", 9)


def test_results_that_change_after_the_note_begin_a_new_count() -> None:
    texts = iter("aaabbbbb")
    play = Play([*[asks("look")] * 8, says("done")], tool=lambda call: Result(next(texts)))
    play.run()
    assert [bool(exchange.note) for exchange in play.state.sequence] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert len(play.runs) == 7


def test_arguments_are_the_same_whatever_their_order_and_spaces() -> None:
    spellings = ['{"a": 1, "b": 2}', '{"b":2,"a":1}'] * 3
    play = Play([*(Turn(calls=(Call("look", text, wire_id=text),)) for text in spellings), says("so far")])
    play.run()
    assert play.ended.status == "no_progress"


def test_other_arguments_other_names_and_other_faults_are_other_calls() -> None:
    calls = [Call("look"), Call("look", '{"a": 1}'), Call("look", '{"a": 1.0}'), Call("look", fault="x"), Call("put")]
    play = Play(
        [*(Turn(calls=(call,)) for call in calls), says("done")], Limits(repeat_limit=2), tool=lambda c: Result("")
    )
    play.run()
    assert play.ended.status == "answered"
    assert {exchange.note for exchange in play.state.sequence} == {""}


def test_arguments_nested_too_deep_to_be_read_are_compared_as_text() -> None:
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    play = Play([*[Turn(calls=(Call("look", deep),))] * 6, says("so far")])
    play.run()
    assert play.ended.status == "no_progress"


def test_the_cap_goes_before_repetition() -> None:
    play = Play([*[asks("look")] * 5, says("so far")], Limits(max_rounds=4))
    play.run()
    assert (play.ended.status, len(play.runs)) == ("round_limit", 4)


def test_a_pause_between_resets_it() -> None:
    paused = Turn(finish="paused")
    play = Play([*[asks("look")] * 3, paused, *[asks("look")] * 3, says("done")])
    play.run()
    assert (play.ended.status, len(play.runs)) == ("answered", 6)


def test_a_plan_counts_as_a_write_unless_something_else_is_known() -> None:
    assert CallPlan() == CallPlan("write", idempotent=False, polling=False)
    play = at_calls("look", "look")
    assert isinstance(play.next_event(), CallStarted)
    assert not isinstance(play.next_event(), TurnArrived)
