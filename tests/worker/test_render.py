"""From notes and states to JSON."""

import json
from typing import get_args

import pytest
from playing import Play, asks, says
from worlds import WORLDS, World, explore

from roundelay.messages import Submission, TextPart
from roundelay.names import UpdateKind
from roundelay.updates import UPDATE_MODELS, Answer, KnownUpdate, Update
from roundelay_worker.delivery import render
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Call, Exchange, Result, Turn
from roundelay_worker.loop.state import Ended, Failure, Limits, Spent, State
from roundelay_worker.store.codec import dumps

DURABLE = set(get_args(UpdateKind)) - {"text_delta", "text_reset", "tool_progress"}
ROUNDS = (WORLDS[3], WORLDS[4])
ANSWER = {
    "message_id": "m", "conversation_id": "c", "status": "answered", "text": "hi", "finished_at": "2026-01-01T00:00:00Z"
}  # fmt: skip
SUBMISSION = Submission(message_id="m", conversation_id="c", content=(TextPart(text="hi"),), metadata={"a": [1]})


def test_an_answer_names_what_was_not_done_and_what_nobody_knows():
    turn = Turn(calls=(Call("pay", '{"sum": 3}'), Call("tell"), Call("look")))
    results = (Result("?", outcome="unknown"), Result("no", outcome="not_executed"), Result("seen"))
    state = State(stage=Ended("cancelled", "stopped", 10.0), sequence=(Exchange(turn, results),), started_at=1.5)

    answer = Answer.model_validate_json(dumps(render.answer(state, SUBMISSION)))

    assert [(call.name, call.arguments) for call in answer.uncertain] == [("pay", {"sum": 3})]
    assert [(call.name, call.arguments) for call in answer.undone] == [("tell", {})]
    assert answer.metadata == {"a": [1]}
    assert answer.started_at is not None
    assert answer.started_at.timestamp() == 1.5


def test_an_answer_can_be_written_whatever_a_model_called_its_tools():
    turn = Turn(calls=(Call("\ud800"),))
    state = State(
        stage=Ended("cancelled", "stopped", 10.0), sequence=(Exchange(turn, (Result("no", outcome="not_executed"),)),)
    )

    (undone,) = json.loads(dumps(render.answer(state, SUBMISSION)))["undone"]
    assert (undone["name"], undone["title"], undone["arguments"]) == ("\ud800", "tool", {})


@pytest.mark.parametrize("world", WORLDS[:2], ids=lambda world: world.name)
def test_every_end_that_can_be_reached_is_an_answer_that_says_what_happened(world: World):
    for state in explore(world).states:
        if not isinstance(state.stage, Ended):
            continue
        told = Answer.model_validate_json(dumps(render.answer(state, SUBMISSION)))
        outcomes = [result.outcome for exchange in state.sequence for result in exchange.results]

        assert (told.status, told.text, told.rounds) == (state.stage.status, state.stage.text, state.rounds)
        assert told.text.strip()
        assert (told.error is not None) == (told.status in {"failed", "refused"})
        assert (len(told.undone), len(told.uncertain)) == (outcomes.count("not_executed"), outcomes.count("unknown"))
        assert (told.started_at is None) == (state.started_at is None)


def test_an_answer_has_the_cost_and_the_error_as_they_are():
    spent = Spent(1, 2, 3, 4, 5, 6, 7)
    state = State(stage=Ended("failed", "no", 0.000001, Failure("quota", "spent")), spent=spent, rounds=3)

    answer = render.answer(state, SUBMISSION)

    assert list(answer["usage"].items()) == [
        ("input_tokens", 1), ("output_tokens", 2), ("cached_tokens", 3), ("reasoning_tokens", 4),
        ("model_calls", 5), ("tool_calls", 6), ("calls_without_usage", 7),
    ]  # fmt: skip
    assert answer["error"] == {
        "code": "quota", "message": "spent", "retryable": True, "retry_after": None, "for": "user"
    }  # fmt: skip
    assert (answer["finished_at"], answer["started_at"]) == ("1970-01-01T00:00:00.000001Z", None)


def test_updates_have_no_arguments_results_or_texts_but_what_is_to_be_told():
    down = Failure("model_unreachable", "secret message", retryable=True)
    replies = [asks("look:secret", "put:secret", text="secret"), down, asks("look:secret"), says("the answer")]
    play = Play(replies, Limits(max_rounds=1), tool=lambda call: Result("secret result", is_error=call.name == "put"))
    play.run()

    bodies = [render.update_body(note, n, 1.0, "m", ANSWER) for n, note in enumerate(play.notes, 1)]

    assert "secret" not in "".join(bodies)
    updates = [Update.model_validate_json(body) for body in bodies]
    assert [update.seq for update in updates] == list(range(1, len(bodies) + 1))
    assert [(u.tool, u.call, u.ok, u.seconds) for u in updates if u.kind == "tool_finished"] == [
        ("look", 0, True, 0.1), ("put", 1, False, 0.1)
    ]  # fmt: skip
    assert [(u.code, u.delay, u.attempt) for u in updates if u.kind == "retrying"] == [("model_unreachable", 0.5, 1)]
    assert [u.usage.model_calls for u in updates if u.kind == "turn_ended"] == [1, 3, 4]


def test_the_models_are_those_of_the_kinds():
    assert UPDATE_MODELS.keys() == set(get_args(UpdateKind))
    assert set(UPDATE_MODELS.values()) == set(get_args(KnownUpdate))


@pytest.mark.parametrize("world", ROUNDS, ids=lambda world: world.name)
def test_every_note_is_told_whole_by_the_model_of_its_kind(world: World):
    notes = {note for _, _, made in explore(world).moves for note in made.notes}
    assert {note.kind for note in notes} | {"retrying"} == DURABLE - {"accepted", "gap"}
    for note in notes - {Note("ended")}:
        update = Update.model_validate_json(render.update_body(note, 1, 1.0, "m"))
        told = render.told(note)

        assert type(update) is UPDATE_MODELS[note.kind]
        assert told.keys() <= type(update).model_fields.keys(), "a field that the model lacks would vanish"
        assert update.model_dump(include=told.keys()) == told
        assert (update.v, update.seq, update.message_id) == (1, 1, "m")


@pytest.mark.parametrize("world", ROUNDS, ids=lambda world: world.name)
def test_rounds_of_updates_are_the_rounds_of_the_answer_and_turns_have_numbers_of_their_own(world: World):
    for state, _, made in explore(world).moves:
        for note in made.notes:
            assert note.round in {None, state.rounds + 1}
            assert note.kind != "turn_ended" or note.round is None or made.state.rounds == note.round
            assert note.turn is None or state.round <= note.turn <= made.state.round
            assert note.round is None or note.kind in {"tool_started", "tool_finished", "turn_ended"}


def test_the_update_of_the_end_has_the_answer_to_the_letter():
    told = json.loads(render.update_body(Note("ended"), 1, 1.0, "m", {"v": 1, "error": None, "metadata": {"a": None}}))

    assert told["answer"] == {"v": 1, "error": None, "metadata": {"a": None}}
    assert told["at"] == "1970-01-01T00:00:01Z"


def test_a_made_up_name_is_told_no_longer_than_a_declared_one_may_be():
    turn = Turn(calls=(Call("n" * 100_000), Call("m" * 100_000)))
    results = (Result("no", outcome="not_executed"), Result("?", outcome="unknown"))
    state = State(stage=Ended("cancelled", "stopped", 10.0), sequence=(Exchange(turn, results),))

    told = render.answer(state, SUBMISSION)
    started = Note("tool_started", turn=1, round=1, tool="n" * 100_000, call=0)
    update = json.loads(render.update_body(started, 1, 0.0, "m"))

    assert (told["undone"][0]["name"], told["uncertain"][0]["name"]) == ("n" * 64, "m" * 64)
    assert update["tool"] == "n" * 64
