"""A worker may be lost after any step: what is stored is enough to come to the same end (laws 9 and 10)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Play, asks, says
from worlds import FAILURES, USED, WORLDS, World, begin, explore

from roundelay_worker.loop.events import OwnerLost
from roundelay_worker.loop.history import Call, Exchange, Native, Result, Turn
from roundelay_worker.loop.state import Asking, Ended, Failure, Limits, Spent, State
from roundelay_worker.loop.step import step
from roundelay_worker.store.changes import changes
from roundelay_worker.store.codec import decoded, encoded_head

DOWN = Failure("model_unreachable", "down", retryable=True)
NATIVE = Native("chat:m@u", '{"role": "assistant", "n": 1.0}')


def stored(state: State) -> State:
    """Return the state as a database gives it back."""
    rows = changes(State(), state)
    return decoded(encoded_head(state), rows.turns, rows.calls)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_law_9_every_state_survives_json(world: World) -> None:
    seen: set[object] = set()
    for state in explore(world).states:
        parts = {state.stage, state.sequence, state.repairs}
        if not parts <= seen:
            seen |= parts
            assert stored(state) == state


texts = st.text(st.characters(), max_size=20)
replies = st.one_of(
    st.builds(Turn, text=texts, usage=st.just(USED), native=st.none() | st.builds(Native, texts, texts), note=texts),
    st.builds(
        Turn,
        text=texts,
        calls=st.lists(st.sampled_from([Call("look"), Call("put", '{"a": "\\u00e9"}'), Call("who")]), min_size=1).map(
            tuple
        ),
        finish=st.sampled_from(["complete", "paused", "cut", "malformed"]),
    ),
    st.builds(Failure, texts, texts, st.booleans(), st.none() | st.floats(0, 99), st.sampled_from(["", "shrink", "x"])),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(replies, max_size=12), texts)
def test_law_9_holds_for_whatever_models_and_tools_say(script: list[Turn | Failure], found: str) -> None:
    play = Play([*script, *[Turn(finish="refused")] * 2], tool=lambda call: Result(found))
    while not isinstance(play.state.stage, Ended):
        assert stored(play.state) == play.state
        play.feed(play.next_event())
    assert stored(play.state) == play.state


SCRIPTS: dict[str, tuple[list[Turn | Failure], Limits]] = {
    "an answer": ([says("42")], Limits()),
    "rounds": ([asks("look:1", "look:2", native=NATIVE), asks("safe", "look"), says("done")], Limits()),
    "writes": ([asks("look", "put", "look"), asks("put", "put"), says("done")], Limits()),
    "failures": ([DOWN, asks("safe"), DOWN, says(""), Turn("ha", finish="cut"), says("done")], Limits()),
    "repairs": ([FAILURES[4], asks("look"), FAILURES[5], says("done")], Limits()),
    "the cap": ([asks("look"), asks("put", "safe"), says("so far")], Limits(max_rounds=1)),
    "no closing turn": ([asks("look"), asks("put"), DOWN, DOWN], Limits(max_rounds=1)),
    "repetition": ([*[asks("look")] * 6, says("so far")], Limits()),
    "polling": ([*[asks("poll")] * 4, says("done")], Limits()),
    "pauses": ([Turn(finish="paused", native=NATIVE), asks("look"), says("done")], Limits()),
    "a refusal": ([asks("safe"), Turn(finish="refused", note="no")], Limits()),
    "a failure": ([asks("put"), FAILURES[3]], Limits()),
}


class Crashing(Play):
    """A play in which an attempt that vanished has the reply that it would have had: replies go by what was heard."""

    def lose(self) -> None:
        """Lose the worker, and go on from what is stored."""
        self.state = stored(self.state)
        self.feed(OwnerLost(self.now))


@pytest.mark.parametrize("name", SCRIPTS)
def test_law_10_crash_after_step_k_for_every_k_ends_in_the_same_final_state(name: str) -> None:
    script, limits = SCRIPTS[name]
    whole = Play(script, limits)
    steps = 0
    while not isinstance(whole.state.stage, Ended):
        whole.feed(whole.next_event())
        steps += 1
    for k in range(steps):
        crashed = Crashing(script, limits)
        for _ in range(k):
            crashed.feed(crashed.next_event())
        crashed.lose()
        crashed.run()
        assert _comparable(crashed, whole) == _comparable(whole, crashed), k
        assert crashed.runs.count("put") == whole.runs.count("put")


@pytest.mark.parametrize("name", SCRIPTS)
def test_law_10_holds_when_the_worker_is_lost_after_every_single_step(name: str) -> None:
    script, limits = SCRIPTS[name]
    whole = Play(script, limits)
    whole.run()
    crashed = Crashing(script, limits, verdict=("done", False, Result("found by put")))
    for _ in range(500):
        if isinstance(crashed.state.stage, Ended):
            break
        event = crashed.next_event()
        crashed.feed(event)
        if isinstance(crashed.state.stage, Asking) and not crashed.state.stage.begun:
            crashed.lose()
    assert _comparable(crashed, whole) == _comparable(whole, crashed)


def _comparable(play: Play, other: Play) -> State:
    """Return the final state without attempts, usage, and what is unknown in either."""
    state, sequences = play.state, (play.state.sequence, other.state.sequence)
    sequence = tuple(_without_doubt(mine, its) for mine, its in zip(*sequences, strict=True))
    text = "a summary that tells of the doubt" if sequence != state.sequence else play.ended.text
    stage = replace(play.ended, text=text if play.ended.status != "answered" else play.ended.text, finished_at=0.0)
    return replace(state, stage=stage, sequence=sequence, spent=Spent(), seq=0)


def _without_doubt(mine: Exchange, its: Exchange) -> Exchange:
    pairs = zip(mine.results, its.results, strict=True)
    doubt = Result("who knows", outcome="unknown")
    return replace(mine, results=tuple(doubt if "unknown" in {a.outcome, b.outcome} else a for a, b in pairs))


def test_an_attempt_that_vanished_with_its_worker_is_counted_and_may_have_cost_something() -> None:
    play = Play([says("done")], Limits(max_total_tokens=30_000))
    play.feed(play.next_event())
    begun = replace(play.next_event(), attempt=3)  # type: ignore[type-var]
    play.feed(begun)
    assert (play.state.spent.model_calls, play.state.spent.calls_without_usage) == (3, 2)
    assert play.state.reserved == 2 * (50 + 8_192)
    play.run()
    assert (play.state.spent.model_calls, play.state.spent.calls_without_usage) == (3, 2)


def test_an_attempt_that_another_one_follows_unheard_is_given_up() -> None:
    play = Play([says("done")], Limits(max_total_tokens=30_000))
    play.feed(play.next_event())
    first = play.next_event()
    play.feed(first)
    play.feed(replace(first, attempt=2))  # type: ignore[type-var]
    assert (play.state.spent.model_calls, play.state.spent.calls_without_usage) == (2, 1)
    assert play.state.reserved == 50 + 8_192


def test_an_attempt_that_was_forbidden_is_not_counted_as_sent_but_those_before_it_are() -> None:
    play = Play([says("so far")], now=1_750.0)
    play.feed(play.next_event())
    play.feed(replace(play.next_event(), attempt=2))  # type: ignore[type-var]
    assert isinstance(play.state.stage, Asking)
    assert (play.state.stage.closing, play.state.stage.attempt) == ("timed_out", 2)
    assert (play.state.spent.model_calls, play.state.spent.calls_without_usage) == (1, 1)


def test_a_lost_owner_of_a_waiting_message_changes_nothing() -> None:
    for state in (State(), begin()):
        assert step(state, OwnerLost(1.0)).state is state


def test_losing_the_owner_leaves_a_closing_turn_with_its_attempts() -> None:
    play = Play([asks("look"), says("so far")], Limits(max_rounds=0))
    play.run(
        until=lambda state: isinstance(state.stage, Asking) and state.stage.closing is not None and state.stage.begun
    )
    play.feed(OwnerLost(1.0))
    play.run()
    assert play.ended.text == "so far"
