"""Working copies of messages, also of those that a newer version took in."""

import json

import pytest
from pydantic import ValidationError

from roundelay_worker.delivery import render
from roundelay_worker.engine.sessions import Sessions, readable
from roundelay_worker.loop.events import CancelAsked
from roundelay_worker.loop.state import State
from roundelay_worker.loop.step import step
from roundelay_worker.store.records import Loaded


def loaded(content: list[dict[str, str]], **more: str) -> Loaded:
    submission = json.dumps({"message_id": "m", "conversation_id": "c", "content": content, **more})
    return Loaded("m", "u", "c", submission, 0.0, 0.0, 1, None, 0, 1, 0, State(seq=1))


def test_a_submission_of_a_newer_version_is_not_run():
    with pytest.raises(ValidationError):
        Sessions.from_loaded(loaded([{"type": "image", "url": "x"}]))


def test_a_submission_of_a_newer_version_can_still_be_ended():
    newer = loaded([{"type": "image", "url": "x"}])
    session = Sessions.from_loaded(newer, readable(newer))

    ended = step(session.state, CancelAsked(1.0)).state

    assert render.answer(ended, session.submission)["status"] == "cancelled"
    assert session.submission.message_id == "m"


def test_a_message_that_ends_in_the_queue_ends_in_its_language():
    session = Sessions.from_loaded(loaded([{"type": "text", "text": "hello"}], language="pt"))

    assert session.state.language == "pt"
