"""What must never be seen: reasoning, in whatever way a message ends, and keys."""

from collections.abc import Callable

import pytest
from formats_stage import KEY, MODELS, PATIENCE, Stage, call

pytestmark = [pytest.mark.services]
FORMATS = tuple(MODELS)

THOUGHT = "a secret thought of the model"
SIGNED = "gAAAAABf"
"""What every signature and encrypted item of the fake begins with."""
THINK = {"thinking": f"{THOUGHT} one", "text": "I look.", "calls": [call("add", a=1, b=2), call("note", text="x")]}
ENDS = {
    "answered": {"thinking": f"{THOUGHT} two", "text": "It is done."},
    "refused": {"finish": "refused"},
    "failed": {"error": "quota"},
    "round_limit": THINK,
    "empty": {"thinking": f"{THOUGHT} two"},
    "cut": {"thinking": f"{THOUGHT} two", "text": "half", "finish": "cut"},
    "broken": {"thinking": f"{THOUGHT} two", "text": "half an answer", "cut": 4, "times": 1, "then": {"text": "ok"}},
}


def test_reasoning_is_nowhere_once_its_message_has_ended(build: Callable[..., Stage]):
    stage = build()

    def steps(end: str) -> tuple:
        return THINK, THINK, ENDS[end]

    jobs = {
        (end, flag): stage.asked(*steps(end), name=end + flag, flag=flag, max_rounds=2)
        for end in ENDS
        for flag in ("", "-no-stream")
    }
    cancelled = stage.asked(THINK, {**ENDS["answered"], "stall": 60, "stall_after": 3}, name="cancelled")
    for wire, job in cancelled.items():
        assert stage.fake.wait(lambda wire=wire: stage.fake.count(f"{wire}-cancelled", 1) == 1, PATIENCE)
        assert job.cancel()

    ended = [job.wait(PATIENCE) for asked in (*jobs.values(), cancelled) for job in asked.values()]

    assert {answer.status for answer in ended} >= {
        "answered",
        "refused",
        "failed",
        "round_limit",
        "token_limit",
        "cancelled",
    }
    updates = [u.model_dump_json() for answer in ended for u in stage.updates(answer.message_id)]
    seen = "\n".join([*updates, *(answer.model_dump_json() for answer in ended), stage.everything()])
    sent = "\n".join(request.raw.decode() for request in stage.requests("anthropic-answered"))
    assert SIGNED in sent, "it did go back to the model"
    scripts = [text for text in (*updates, *(a.model_dump_json() for a in ended)) if THOUGHT in text or SIGNED in text]
    assert scripts == []
    assert SIGNED not in seen
    assert KEY not in seen
    told = [
        line for line in seen.splitlines() if THOUGHT in line and '"thinking"' not in line and "script:" not in line
    ]
    assert told == []
    assert [line for line in stage.log.lines + stage.tasks if THOUGHT in line] == []


def test_tasks_carry_ids_and_numbers_and_nothing_else(stage: Stage):
    before = len(stage.tasks)

    stage.answers(THINK, ENDS["answered"], name="tasks", context={"secret": "for tools"}, metadata={"secret": "echoed"})

    tasks = stage.tasks[before:]
    assert len(tasks) == len(FORMATS)
    assert all(len(task) < 300 and "secret" not in task and "Please" not in task for task in tasks)
