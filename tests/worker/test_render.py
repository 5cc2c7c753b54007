"""From notes and states to JSON."""

import json

from roundelay.messages import Submission, TextPart
from roundelay.updates import Answer
from roundelay_worker import render
from roundelay_worker.loop.history import Call, Exchange, Result, Turn
from roundelay_worker.loop.state import Ended, State
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
