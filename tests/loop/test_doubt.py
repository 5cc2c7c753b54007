"""What is said and done of calls whose outcome nobody may know: a lost worker, a cancel, a limit."""

import pytest
from playing import SOFT, Play, at_calls, begin_all, is_running

from roundelay_worker.loop.effects import RunCall, VerifyCall
from roundelay_worker.loop.events import CallVerified, CancelAsked, Condemned, OwnerLost, TimePassed
from roundelay_worker.loop.history import Result
from roundelay_worker.loop.state import Failure
from roundelay_worker.loop.step import todo


def lost_while(*names: str, begun: int) -> Play:
    """Return a play whose worker was lost while the call at ``begun`` was under way; earlier ones are done."""
    play = at_calls(*names)
    play.run(until=lambda state: is_running(state) and state.stage.calls[begun].status == "started")  # type: ignore[union-attr]
    play.feed(OwnerLost(2.0))
    return play


def test_a_read_may_run_again() -> None:
    play = lost_while("look", begun=0)
    assert todo(play.state) == (RunCall(1, 0),)
    play.run()
    assert (play.runs, play.ended.status) == (["look", "look"], "answered")


def test_reads_that_run_again_do_so_side_by_side_with_those_that_had_not_begun() -> None:
    play = at_calls(*[f"look:{n}" for n in range(6)])
    begin_all(play)
    play.feed(play.finish(1))
    play.feed(OwnerLost(2.0))
    assert begin_all(play) == [0, 2, 3, 4]
    assert todo(play.state) == ()
    assert play.state.spent.tool_calls == 8


def test_an_idempotent_write_runs_at_least_once() -> None:
    play = lost_while("safe", begun=0)
    assert todo(play.state) == (RunCall(1, 0),)
    play.feed(CallVerified(1, 0, "unknown", False, 2.0))
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


def test_not_done_allows_a_new_run_only_when_the_old_executor_is_known_to_be_dead() -> None:  # rule 12
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


@pytest.mark.parametrize("ending", [CancelAsked(3.0), TimePassed(SOFT), Condemned(Failure("worker_lost", "lost"), 3.0)])
def test_what_had_begun_when_its_worker_was_lost_is_never_told_as_not_executed(
    ending: CancelAsked | TimePassed | Condemned,
) -> None:
    for name, outcome in (("look", "done"), ("put", "unknown"), ("safe", "unknown")):
        play = lost_while(name, begun=0)
        play.feed(ending)
        assert [result.outcome for result in play.state.sequence[0].results] == [outcome]
        assert [(note.tool, note.ok) for note in play.notes if note.kind == "tool_finished"] == [(name, False)]
        assert play.state.rounds == 1


def test_a_write_that_its_tool_says_was_not_done_is_told_as_not_executed() -> None:
    play = lost_while("put", begun=0)
    play.feed(CallVerified(1, 0, "not_done", True, 2.0))
    play.feed(CancelAsked(3.0))
    assert [result.outcome for result in play.state.sequence[0].results] == ["not_executed"]


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
    assert [(note.turn, note.round) for note in play.notes if note.kind == "turn_ended"] == [(1, None)]


def test_a_message_that_failed_says_so_for_the_calls_that_did_not_run() -> None:
    play = at_calls("put")
    play.feed(Condemned(Failure("internal_error", "ours"), 2.0))
    assert play.results == [["Not executed: the answer ended with an error before this step."]]
