"""A state survives being stored: every part of it, and a provider's blocks byte for byte."""

from dataclasses import replace
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.history import Call, Exchange, Native, Result, Turn, TurnUsage
from roundelay_worker.loop.state import (
    Asking,
    CallPlan,
    CallState,
    Ended,
    Failure,
    Limits,
    Queued,
    Running,
    Spent,
    State,
)
from roundelay_worker.store.changes import changes, progressed
from roundelay_worker.store.codec import decoded, encoded_head, packed, unpacked

# Every code point, halves of surrogate pairs and NUL included: models and tools say what they like.
texts = st.text(st.characters(), max_size=30)
numbers = st.integers(0, 2**40)
times = st.floats(0, 4e9, allow_nan=False)
usages = st.builds(TurnUsage, numbers, numbers, numbers, numbers)
calls = st.builds(Call, texts, texts, texts, texts)
results = st.builds(Result, texts, st.booleans(), st.sampled_from(["done", "not_executed", "unknown"]))
natives = st.builds(Native, texts, texts)
finishes = st.sampled_from(["complete", "cut", "paused", "refused", "overflow", "malformed", "unknown"])
turns = st.builds(
    Turn,
    text=texts,
    calls=st.lists(calls, max_size=3).map(tuple),
    finish=finishes,
    usage=st.none() | usages,
    native=st.none() | natives,
    note=texts,
)
plans = st.builds(CallPlan, st.sampled_from(["read", "write"]), st.booleans(), st.booleans())
call_states = st.one_of(
    st.builds(CallState, plans, st.sampled_from(["requested", "started", "in_doubt"])),
    st.builds(CallState, plans, st.just("done"), results),
)
failures = st.builds(Failure, texts, texts, st.booleans(), st.none() | times, texts)
soft_stops = st.sampled_from(["round_limit", "token_limit", "timed_out", "no_progress"])


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    turn = draw(turns)
    return Exchange(turn, tuple(draw(results) for _ in turn.calls), draw(texts))


@st.composite
def runnings(draw: st.DrawFn) -> Running:
    turn = draw(turns)
    return Running(turn, tuple(draw(call_states) for _ in turn.calls))


stages = st.one_of(
    st.just(Queued()),
    st.builds(
        Asking,
        attempt=numbers,
        begun=st.booleans(),
        failures=numbers,
        discards=numbers,
        doubled=st.booleans(),
        due_at=st.none() | times,
        nudge=texts,
        closing=st.none() | soft_stops,
        room=st.none() | numbers,
    ),
    runnings(),
    st.builds(Ended, st.sampled_from(["answered", "failed", "timed_out"]), texts, times, st.none() | failures),
)
states = st.builds(
    State,
    stage=stages,
    limits=st.builds(Limits, max_rounds=numbers, max_total_tokens=st.none() | numbers, max_retry_delay=times),
    language=texts,
    started_at=st.none() | times,
    soft_deadline=st.just(inf) | times,
    deadline=st.just(inf) | times,
    rounds=numbers,
    sequence=st.lists(exchanges(), max_size=3).map(tuple),
    streak=numbers,
    repairs=st.lists(texts, max_size=2).map(tuple),
    spent=st.builds(Spent, numbers, numbers, numbers, numbers, numbers, numbers, numbers),
    seq=numbers,
)
EMPTY = State()


@settings(max_examples=300, deadline=None)
@given(states)
def test_a_state_survives_its_rows(state: State) -> None:
    new = changes(EMPTY, state)

    assert decoded(encoded_head(state), new.turns, new.calls) == state
    for known in range(len(state.sequence) + 1):
        turns, calls = ([row for row in rows if row.round > known] for rows in (new.turns, new.calls))
        assert decoded(encoded_head(state), turns, calls, state.sequence[:known]) == state


@settings(deadline=None)
@given(texts)
def test_packed_text_is_one_that_a_database_takes_and_comes_back(text: str) -> None:
    stored = packed(text)

    assert "\0" not in stored
    assert stored.encode().decode() == stored
    assert unpacked(stored) == text


def test_json_of_a_provider_is_stored_as_it_came() -> None:
    blocks = '[{"type":"thinking","signature":"a/+=","n":1.0,"z":"é\\u0000"} ]'

    assert packed(blocks) == blocks


def test_what_a_newer_version_added_is_ignored() -> None:
    head = encoded_head(EMPTY)[:-1] + ',"mood":"good"}'

    assert decoded(head, (), ()) == EMPTY


def test_a_save_writes_what_is_new_and_nothing_else() -> None:
    turn = Turn(calls=(Call("a"), Call("b")), native=Native("o", "[]"))
    asking = State(sequence=(Exchange(turn, (Result("1"), Result("2"))),), stage=Asking())
    requested = replace(asking, stage=Running(turn, (CallState(CallPlan()), CallState(CallPlan()))))
    started = replace(asking, stage=Running(turn, (CallState(CallPlan(), "started"), CallState(CallPlan()))))

    first = changes(asking, requested)
    second = changes(requested, started)

    assert [row.round for row in first.turns] == [2]
    assert [(row.round, row.position) for row in first.calls] == [(2, 0), (2, 1)]
    assert second.turns == ()
    assert [(row.position, row.status) for row in second.calls] == [(0, "started")]


def test_results_that_are_stored_already_are_not_written_again() -> None:
    turn = Turn(calls=(Call("a"), Call("b")))
    done = CallState(CallPlan(), "done", Result("1"))
    before = State(stage=Running(turn, (done, CallState(CallPlan(), "started"))))
    state = State(stage=Asking(), sequence=(Exchange(turn, (Result("1"), Result("2"))),))

    new = changes(before, state)

    assert new.turns == ()
    assert [row.position for row in new.calls] == [1]


def test_only_work_that_a_crash_cannot_undo_counts_as_progress() -> None:
    turn = Turn(calls=(Call("a"),))
    begun = State(stage=Running(turn, (CallState(CallPlan(), "started"),)))
    doubted = State(stage=Running(turn, (CallState(CallPlan(), "in_doubt"),)))
    done = State(stage=Running(turn, (CallState(CallPlan(), "done", Result("1")),)))

    assert not progressed(State(stage=Asking(begun=True)), State(stage=Asking()))
    assert not progressed(begun, doubted)
    assert progressed(begun, done)
    assert progressed(State(), State(stage=Asking()))
    assert progressed(done, State(stage=Asking(), sequence=(Exchange(turn, (Result("1"),)),)))
