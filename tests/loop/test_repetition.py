"""Turns that repeat themselves: told, then not run, then stopped."""

from playing import Play, asks, says

from roundelay_worker.loop.history import Call, Result, Turn
from roundelay_worker.loop.state import Limits
from roundelay_worker.loop.texts import REPEAT_NOTE


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
    wrong = [Call("look", fault="x"), Call("look", fault="y")]
    calls = [*wrong, Call("look"), Call("look", '{"a": 1}'), Call("look", '{"a": 1.0}'), Call("put")]
    play = Play(
        [*(Turn(calls=(call,)) for call in calls), says("done")], Limits(repeat_limit=2), tool=lambda c: Result("")
    )
    play.run()
    assert play.ended.status == "answered"
    assert {exchange.note for exchange in play.state.sequence} == {""}


def test_the_cap_goes_before_repetition() -> None:
    play = Play([*[asks("look")] * 5, says("so far")], Limits(max_rounds=4))
    play.run()
    assert (play.ended.status, len(play.runs)) == ("round_limit", 4)


def test_a_pause_between_resets_it() -> None:
    paused = Turn(finish="paused")
    play = Play([*[asks("look")] * 3, paused, *[asks("look")] * 3, says("done")])
    play.run()
    assert (play.ended.status, len(play.runs)) == ("answered", 6)
