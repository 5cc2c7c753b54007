"""The laws of the loop, each over every state that can be reached under small limits."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module

import pytest
from worlds import (
    DEADLINE,
    ESTIMATE,
    FAILURES,
    SOFT,
    TURNS,
    WORLDS,
    Explored,
    begin,
    events,
    explore,
    fitting_events,
    kind_of,
    outside_events,
    run_out,
    started,
)

from roundelay_worker.loop.effects import AskModel, RunCall, VerifyCall
from roundelay_worker.loop.events import (
    AttemptBegan,
    CallFinished,
    CallStarted,
    CallVerified,
    Event,
    OwnerLost,
    TurnArrived,
    TurnFailed,
)
from roundelay_worker.loop.history import Result
from roundelay_worker.loop.state import Asking, CallState, Ended, Queued, Running, Stage, State
from roundelay_worker.loop.step import step, todo

EVENTS: tuple[Event, ...] = (
    *outside_events(1.0),
    started(),
    AttemptBegan(1, 9, 0, 1.0),
    TurnArrived(1, 1, *TURNS[0], 1.0),
    TurnFailed(1, 1, FAILURES[0], 1.0, 0.5),
    CallStarted(1, 0, 1.0),
    CallFinished(1, 0, Result("late"), 1.0),
    CallVerified(1, 0, "done", True, 1.0, Result("seen")),
)
"""One event of each kind."""


@pytest.fixture(params=WORLDS, ids=lambda world: world.name, scope="module")
def explored(request: pytest.FixtureRequest) -> Explored:
    return explore(request.param)


@pytest.fixture
def states(explored: Explored) -> tuple[State, ...]:
    return explored.states


def test_the_worlds_are_large_enough_to_mean_something() -> None:
    worlds = [state for world in WORLDS for state in explore(world).states]
    assert {type(state.stage).__name__ for state in worlds} == {"Queued", "Asking", "Running", "Ended"}
    assert len(worlds) > 9_000
    statuses = {state.stage.status for state in worlds if isinstance(state.stage, Ended)}
    assert statuses == {
        "answered", "round_limit", "token_limit", "timed_out", "no_progress", "refused", "cancelled", "failed"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["effects", "events", "history", "moves", "state"])
def test_whatever_the_loop_knows_is_a_value_that_nothing_changes(name: str) -> None:
    module = import_module(f"roundelay_worker.loop.{name}")
    values = [value for value in vars(module).values() if isinstance(value, type) and is_dataclass(value)]
    assert values
    for value in values:
        assert value.__dataclass_params__.frozen, value  # type: ignore[attr-defined]
        assert "__slots__" in vars(value), value


def test_law_1_an_ended_message_absorbs_every_event(states: tuple[State, ...]) -> None:
    for state in states:
        if isinstance(state.stage, Ended):
            for event in EVENTS:
                made = step(state, event)
                assert made.state is state
                assert made.notes == ()
            assert todo(state) == ()


def test_law_2_a_repeated_event_changes_nothing(explored: Explored) -> None:
    for state, event, once in explored.moves:
        twice = step(once.state, event)
        assert twice.notes == (), (state, event)
        assert twice.state is once.state or twice.state == once.state, (state, event)


def test_law_3_an_event_of_an_earlier_round_or_attempt_changes_nothing(states: tuple[State, ...]) -> None:
    for state in states:
        for event in _stale(state):
            made = step(state, event)
            assert (made.state, made.notes) == (state, ()), (state, event)


def _stale(state: State) -> Iterator[Event]:
    before = state.round - 1
    attempt = state.stage.attempt if isinstance(state.stage, Asking) else 99
    yield AttemptBegan(before, 99, ESTIMATE, 1.0)
    yield AttemptBegan(state.round, attempt, ESTIMATE, 1.0)
    for round_, number in ((before, attempt), (state.round, attempt - 1), (state.round + 1, attempt)):
        yield TurnArrived(round_, number, *TURNS[0], 1.0)
        yield TurnFailed(round_, number, FAILURES[3], 1.0, 0.5)
    calls = len(state.stage.calls) if isinstance(state.stage, Running) else 0
    for round_, position in ((before, 0), (state.round + 1, 0), (state.round, calls)):
        yield CallStarted(round_, position, 1.0)
        yield CallFinished(round_, position, Result("late"), 1.0)
        yield CallVerified(round_, position, "done", True, 1.0, Result("late"))


def test_an_event_that_does_not_belong_to_the_stage_changes_nothing(states: tuple[State, ...]) -> None:
    for state in states:
        stage, attempt = state.stage, getattr(state.stage, "attempt", 1)
        if not isinstance(stage, Queued):
            assert step(state, started(state.limits)).state is state
        if not (isinstance(stage, Asking) and stage.begun):
            assert step(state, TurnArrived(state.round, attempt, *TURNS[0], 1.0)).state is state
            assert step(state, TurnFailed(state.round, attempt, FAILURES[0], 1.0, 0.5)).state is state
        for position, call in enumerate(stage.calls) if isinstance(stage, Running) else ():
            if call.status != "started":
                assert step(state, CallFinished(state.round, position, Result("x"), 1.0)).state is state
            if VerifyCall(state.round, position) not in todo(state):
                assert step(state, CallVerified(state.round, position, "done", True, 1.0, Result("x"))).state is state
            if RunCall(state.round, position) not in todo(state):
                assert step(state, CallStarted(state.round, position, 1.0)).state is state


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
            if state.stage.closing is not None:
                assert state.stage.failures + state.stage.discards < state.limits.closing_attempts
        _check_tokens(state)


def _check_tokens(state: State) -> None:
    most = state.limits.max_total_tokens
    if most is None or not isinstance(state.stage, Asking) or not state.stage.begun:
        return
    (effect,) = todo(state)
    assert isinstance(effect, AskModel)
    assert state.stage.reserved == ESTIMATE + effect.max_output_tokens
    assert state.spent.tokens + state.reserved + state.stage.reserved <= most


def test_nothing_is_reserved_but_for_an_attempt_under_way(states: tuple[State, ...]) -> None:
    for state in states:
        if isinstance(state.stage, Asking) and not state.stage.begun:
            assert state.stage.reserved == 0
        if state.limits.max_total_tokens is None:
            assert state.reserved == 0


def test_law_7_the_order_in_which_results_arrive_does_not_matter() -> None:
    turn, plans = TURNS[3]
    state = step(begin(), AttemptBegan(1, 1, ESTIMATE, 1.0)).state
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
    lost = {kind_of(made): made for state in states if (made := step(state, OwnerLost(1.0)).state) is not state}
    for state in lost.values():
        for choice in (0, 2):
            assert isinstance(run_out(state, choice).stage, Ended)


def test_what_was_done_stays_done(explored: Explored) -> None:
    for state, event, made in explored.moves:
        assert made.state.sequence[: len(state.sequence)] == state.sequence, (state, event)
        assert made.state.rounds >= state.rounds
        assert made.state.spent.model_calls >= state.spent.model_calls


def test_nothing_but_a_result_makes_a_call_done(explored: Explored) -> None:
    for state in explored.states:
        for call in state.stage.calls if isinstance(state.stage, Running) else ():
            assert (call.result is not None) == (call.status == "done")


def test_only_a_tool_that_says_not_done_makes_a_call_wait_that_had_begun(explored: Explored) -> None:
    for state, event, made in explored.moves:
        before, after = state.stage, made.state.stage
        for old, new in zip(_calls(before), _calls(after), strict=False) if isinstance(after, Running) else ():
            if old.status != "requested" and new.status == "requested":
                assert isinstance(event, CallVerified)
                assert (event.verdict, event.executor_dead) == ("not_done", True)


def test_of_the_calls_of_a_turn_that_is_over_exactly_those_that_never_began_are_not_executed(
    explored: Explored,
) -> None:
    for state, _, made in explored.moves:
        if isinstance(state.stage, Running) and not isinstance(made.state.stage, Running):
            for call, result in zip(_calls(state.stage), made.state.sequence[-1].results, strict=True):
                assert (result.outcome == "not_executed") == (call.status == "requested")


def _calls(stage: Stage) -> tuple[CallState, ...]:
    return stage.calls if isinstance(stage, Running) else ()


def test_while_no_limit_was_met_every_exchange_is_a_round(states: tuple[State, ...]) -> None:
    for state in states:
        match state.stage:
            case Running() | Asking(closing=None) | Ended(status="answered" | "refused"):
                assert state.rounds == len(state.sequence)
            case _:
                assert len(state.sequence) - 1 <= state.rounds <= len(state.sequence)


def test_every_request_is_under_way_or_its_tokens_are_told_or_it_counts_as_untold(explored: Explored) -> None:
    for state, event, made in explored.moves:
        before, after = state.spent, made.state.spent
        told = isinstance(event, TurnArrived) and event.turn.usage is not None and made.state is not state
        assert after.model_calls - before.model_calls == (
            _under_way(made.state) - _under_way(state) + after.calls_without_usage - before.calls_without_usage + told
        ), (state, event)
        assert (after.tokens > before.tokens) == told


def _under_way(state: State) -> bool:
    return isinstance(state.stage, Asking) and state.stage.begun


def test_a_call_is_counted_each_time_it_begins(explored: Explored) -> None:
    for state, event, made in explored.moves:
        began = isinstance(event, CallStarted) and made.state is not state
        assert made.state.spent.tool_calls - state.spent.tool_calls == began


def test_a_write_is_never_under_way_beside_another_call(states: tuple[State, ...]) -> None:
    for state in states:
        if isinstance(state.stage, Running):
            begun = [call for call in state.stage.calls if call.status in {"started", "in_doubt"}]
            assert len(begun) <= state.limits.parallel_reads
            assert len(begun) == 1 or all(call.plan.effect == "read" for call in begun)


def test_every_end_has_a_text_and_the_right_company(states: tuple[State, ...]) -> None:
    for state in states:
        if isinstance(state.stage, Ended):
            assert state.stage.text.strip()
            assert (state.stage.failure is not None) == (state.stage.status in {"failed", "refused"})
            assert state.repairs == ()


def test_numbers_of_notes_have_no_hole(explored: Explored) -> None:
    for state, _, made in explored.moves:
        assert made.state.seq == state.seq + len(made.notes)


def test_the_end_is_noted_exactly_once_and_last(explored: Explored) -> None:
    for state, _, made in explored.moves:
        ended = not isinstance(state.stage, Ended) and isinstance(made.state.stage, Ended)
        kinds = [note.kind for note in made.notes]
        assert kinds.count("ended") == int(ended)
        assert not ended or kinds[-1] == "ended"


def test_a_call_that_was_said_to_begin_is_said_to_be_over_in_its_round(explored: Explored) -> None:
    for state, _, made in explored.moves:
        if isinstance(state.stage, Running) and not isinstance(made.state.stage, Running):
            begun = {i for i, call in enumerate(state.stage.calls) if call.status in {"started", "in_doubt"}}
            assert {note.call for note in made.notes if note.kind == "tool_finished"} == begun


def test_a_closing_turn_follows_every_soft_stop_that_has_time_for_it(explored: Explored) -> None:
    for state, event, made in explored.moves:
        if isinstance(made.state.stage, Ended) and made.state.stage.status in {"round_limit", "no_progress"}:
            assert (isinstance(state.stage, Asking) and state.stage.closing is not None) or event.now > SOFT


def test_nothing_is_asked_for_again_when_its_time_is_over(explored: Explored) -> None:
    for state, event, made in explored.moves:
        if made.state is state or not isinstance(state.stage, Asking) or isinstance(event, OwnerLost):
            continue
        if event.now >= DEADLINE and state.stage.closing is not None:
            assert isinstance(made.state.stage, Ended), (state, event)
        if event.now >= SOFT and isinstance(made.state.stage, Asking):
            assert made.state.stage.closing is not None or made.state.round > state.round, (state, event)


def test_a_worker_that_obeys_finds_every_event_of_its_own_fitting() -> None:
    state = begin()
    fitting = list(fitting_events(state, 1.0, TURNS, FAILURES))
    assert fitting == [AttemptBegan(1, 1, ESTIMATE, 1.0), AttemptBegan(1, 2, ESTIMATE, 1.0)]
    assert all(step(state, event).state is not state for event in fitting)
    assert len(list(events(state, WORLDS[0]))) > len(fitting)
