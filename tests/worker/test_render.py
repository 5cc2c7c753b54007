"""From notes and states to JSON."""

import json

import pytest
from playing import Play, asks, says
from worlds import WORLDS, World, explore

from roundelay.messages import Submission, TextPart
from roundelay.updates import Answer, Update
from roundelay_worker.delivery import render
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Call, Exchange, Result, Turn
from roundelay_worker.loop.state import Ended, Failure, Limits, Spent, State
from roundelay_worker.store.codec import dumps

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

    assert json.loads(dumps(render.answer(state, SUBMISSION)))["undone"] == [{"name": "\ud800", "arguments": {}}]


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
    assert answer["error"] == {"code": "quota", "message": "spent"}
    assert (answer["finished_at"], answer["started_at"]) == ("1970-01-01T00:00:00.000001Z", None)


def test_updates_have_no_arguments_results_or_texts_but_what_is_to_be_told():
    down = Failure("model_unreachable", "secret message", retryable=True)
    replies = [asks("look:secret", "put:secret", text="secret"), down, asks("look:secret"), says("the answer")]
    play = Play(replies, Limits(max_rounds=1), tool=lambda call: Result("secret result", is_error=call.name == "put"))
    play.run()

    bodies = [render.update_body(note, n, 1.0, "m") for n, note in enumerate(play.notes, 1)]

    assert "secret" not in "".join(bodies)
    updates = [Update.model_validate_json(body) for body in bodies]
    assert [update.seq for update in updates] == list(range(1, len(bodies) + 1))
    assert [(u.tool, u.call, u.ok, u.seconds) for u in updates if u.kind == "tool_finished"] == [
        ("look", 0, True, 0.1), ("put", 1, False, 0.1)
    ]  # fmt: skip
    assert [(u.code, u.delay, u.attempt) for u in updates if u.kind == "retrying"] == [("model_unreachable", 0.5, 1)]
    assert [u.usage is not None for u in updates] == [u.kind == "round_ended" for u in updates]


def test_an_answer_stands_in_the_update_of_the_end_only():
    answer = {"v": 1}
    for kind in ("ended", "round_ended"):
        body = json.loads(render.update_body(Note(kind), 1, 1.0, "m", answer))
        assert ("answer" in body) == (kind == "ended")


def test_a_made_up_name_is_told_no_longer_than_a_declared_one_may_be():
    turn = Turn(calls=(Call("n" * 100_000), Call("m" * 100_000)))
    results = (Result("no", outcome="not_executed"), Result("?", outcome="unknown"))
    state = State(stage=Ended("cancelled", "stopped", 10.0), sequence=(Exchange(turn, results),))

    told = render.answer(state, SUBMISSION)
    update = json.loads(render.update_body(Note("tool_started", tool="n" * 100_000), 1, 0.0, "m"))

    assert (told["undone"][0]["name"], told["uncertain"][0]["name"]) == ("n" * 64, "m" * 64)
    assert update["tool"] == "n" * 64
