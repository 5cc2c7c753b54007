"""The laws of the loop, each over every state that can be reached under small limits."""

import pytest
from worlds import FAILURES, TURNS, WORLDS, begin, events, every_state, run_out

from roundelay_worker.loop.effects import AskModel, RunCall
from roundelay_worker.loop.events import AttemptBegan, CallFinished, CallStarted, OwnerLost, TurnArrived, TurnFailed
from roundelay_worker.loop.history import Result
from roundelay_worker.loop.state import Asking, Ended, Running, State
from roundelay_worker.loop.step import step, todo


@pytest.fixture(params=WORLDS, ids=lambda w: f"cap{w.max_rounds}{'-tokens' if w.tokens else ''}", scope="module")
def states(request: pytest.FixtureRequest) -> tuple[State, ...]:
    return every_state(request.param)


def test_the_worlds_are_large_enough_to_mean_something() -> None:
    worlds = [state for world in WORLDS for state in every_state(world)]
    assert {type(state.stage).__name__ for state in worlds} == {"Queued", "Asking", "Running", "Ended"}
    assert len(worlds) > 2_000
    statuses = {state.stage.status for state in worlds if isinstance(state.stage, Ended)}
    assert statuses == {
        "answered", "round_limit", "token_limit", "timed_out", "no_progress", "refused", "cancelled", "failed"
    }  # fmt: skip


def test_law_1_an_ended_message_absorbs_every_event(states: tuple[State, ...]) -> None:
    everything = [event for state in states[:300] for event in events(state)]
    for state in states:
        if isinstance(state.stage, Ended):
            assert all(step(state, event).state is state for event in everything[:400])
            assert todo(state) == ()


def test_law_2_a_repeated_event_changes_nothing(states: tuple[State, ...]) -> None:
    for state in states:
        for event in events(state):
            once = step(state, event).state
            twice = step(once, event)
            assert (twice.state, twice.notes) == (once, ()), (state, event)


def test_law_3_an_event_of_an_earlier_round_or_attempt_changes_nothing(states: tuple[State, ...]) -> None:
    for state in states:
        for event in _stale(state):
            made = step(state, event)
            assert (made.state, made.notes) == (state, ()), (state, event)


def _stale(state: State) -> list[object]:
    turn, plans = TURNS[0]
    before = state.round - 1
    attempt = state.stage.attempt if isinstance(state.stage, Asking) else 99
    rounds = [
        AttemptBegan(before, 99, 50, 1.0),
        TurnArrived(before, attempt, turn, plans, 1.0),
        TurnFailed(before, attempt, FAILURES[0], 1.0, 0.5),
        CallStarted(before, 0, 1.0),
        CallFinished(before, 0, Result("late"), 1.0),
    ]
    attempts = [
        AttemptBegan(state.round, attempt, 50, 1.0),
        TurnArrived(state.round, attempt - 1, turn, plans, 1.0),
        TurnFailed(state.round, attempt - 1, FAILURES[2], 1.0, 0.5),
    ]
    return rounds + attempts


def test_law_4_effects_follow_from_the_state_alone_and_only_what_may_begin_begins(states: tuple[State, ...]) -> None:
    for state in states:
        effects = todo(state)
        assert effects == todo(state)
        for effect in effects:
            if isinstance(effect, RunCall):
                made = step(state, CallStarted(effect.round, effect.position, 1.0)).state
                assert effect not in todo(made)


def test_law_5_whatever_has_not_ended_has_something_to_do_or_waits_for_calls_under_way(
    states: tuple[State, ...],
) -> None:
    for state in states:
        if not todo(state) and not isinstance(state.stage, Ended):
            assert isinstance(state.stage, Running)
            assert any(call.status == "started" for call in state.stage.calls)


def test_law_6_rounds_attempts_and_tokens_stay_within_their_limits(states: tuple[State, ...]) -> None:
    for state in states:
        assert state.rounds <= state.limits.max_rounds
        assert len(state.sequence) <= state.limits.max_rounds + 1
        if isinstance(state.stage, Asking):
            assert state.stage.failures < state.limits.model_attempts
            assert state.stage.discards <= max(state.limits.discards, state.limits.closing_attempts)
        _check_tokens(state)


def _check_tokens(state: State) -> None:
    most = state.limits.max_total_tokens
    if most is None or not isinstance(state.stage, Asking) or not state.stage.begun:
        return
    (effect,) = todo(state)
    assert isinstance(effect, AskModel)
    assert state.spent.tokens + 50 + effect.max_output_tokens <= most


def test_law_7_the_order_in_which_results_arrive_does_not_matter() -> None:
    turn, plans = TURNS[3]
    state = step(begin(), AttemptBegan(1, 1, 50, 1.0)).state
    reads = turn.calls[:1] * 3
    state = step(state, TurnArrived(1, 1, type(turn)(calls=reads), plans[:1] * 3, 1.0)).state
    state = step(step(state, CallStarted(1, 0, 1.0)).state, CallStarted(1, 1, 1.0)).state
    first, second = (CallFinished(1, i, Result(f"r{i}"), 1.0) for i in (0, 1))
    assert step(step(state, first).state, second).state == step(step(state, second).state, first).state


def test_law_8_every_history_pairs_each_call_with_exactly_one_result(states: tuple[State, ...]) -> None:
    for state in states:
        for exchange in state.sequence:
            assert len(exchange.results) == len(exchange.turn.calls)
            assert exchange.turn.calls or exchange.turn.finish == "paused"
            assert exchange.turn.finish not in {"cut", "refused", "malformed", "overflow", "unknown"}


def test_law_10_after_a_lost_owner_a_message_still_comes_to_an_end(states: tuple[State, ...]) -> None:
    for state in states:
        lost = step(state, OwnerLost(1.0)).state
        for choice in (0, 2):
            assert isinstance(run_out(lost, choice).stage, Ended)


def test_every_end_has_a_text_and_the_right_company(states: tuple[State, ...]) -> None:
    for state in states:
        if isinstance(state.stage, Ended):
            assert state.stage.text.strip()
            assert (state.stage.failure is not None) == (state.stage.status in {"failed", "refused"})


def test_numbers_of_notes_have_no_hole(states: tuple[State, ...]) -> None:
    for state in states:
        for event in events(state):
            made = step(state, event)
            assert made.state.seq == state.seq + len(made.notes)


def test_the_end_is_noted_exactly_once(states: tuple[State, ...]) -> None:
    for state in states:
        for event in events(state):
            made = step(state, event)
            ended = not isinstance(state.stage, Ended) and isinstance(made.state.stage, Ended)
            assert [note.kind for note in made.notes].count("ended") == int(ended)
