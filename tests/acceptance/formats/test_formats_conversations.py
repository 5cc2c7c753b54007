"""What a conversation holds after each kind of end, and that the next message is always accepted."""

import json

import pytest
from formats_stage import MODELS, PATIENCE, Stage, call

pytestmark = [pytest.mark.services]
FORMATS = tuple(MODELS)
OK = {"text": "It is done."}
THINK = {
    "thinking": "deep thought",
    "text": "I look.",
    "calls": [call("weather", city="Faro"), call("add", a=20, b=22)],
}


def going_on(stage: Stage, end: str) -> dict[str, str]:
    """Send the next message to each format's conversation; return what its first request said."""
    jobs = {
        wire: stage.ask(wire, OK, name=f"{wire}-{end}-on", words="Yes, go on.", conversation_id=f"{wire}-{end}")
        for wire in FORMATS
    }
    assert {wire: job.wait(PATIENCE).text for wire, job in jobs.items()} == dict.fromkeys(FORMATS, "It is done.")
    assert stage.refused(*(f"{wire}-{end}-on" for wire in FORMATS)) == []
    return {wire: stage.requests(f"{wire}-{end}-on")[0].raw.decode() for wire in FORMATS}


def test_after_a_failure_the_findings_are_there_and_the_error_is_not(stage: Stage):
    jobs = {
        wire: stage.ask(wire, THINK, {"error": "quota"}, name=f"{wire}-failed", conversation_id=f"{wire}-failed")
        for wire in FORMATS
    }
    assert {job.wait(PATIENCE).status for job in jobs.values()} == {"failed"}

    for wire, said in going_on(stage, "failed").items():
        assert (wire, "42" in said, "clear" in said) == (wire, True, True)
        assert "Something went wrong" not in said
        assert "quota" not in said.replace('\\"error\\": \\"quota\\"', "")


def test_a_call_that_was_cancelled_has_its_result_and_the_next_message_is_accepted(stage: Stage):
    calls = [call("add", a=20, b=22), call("wait", seconds=50), call("note", text="never")]
    jobs = {
        wire: stage.ask(wire, {**THINK, "calls": calls}, name=f"{wire}-cancel", conversation_id=f"{wire}-cancel")
        for wire in FORMATS
    }
    for job in jobs.values():
        assert any(update.tool == "wait" for update in job.follow(timeout=PATIENCE) if update.kind == "tool_started")
        assert job.cancel()

    answers = [job.wait(PATIENCE) for job in jobs.values()]

    assert {answer.status for answer in answers} == {"cancelled"}
    assert all("42" in answer.text for answer in answers)
    assert all([undone.name for undone in answer.undone] == ["note"] for answer in answers)
    for wire, said in going_on(stage, "cancel").items():
        assert (wire, "cancelled by user" in said, "Not executed" in said) == (wire, True, True)


def test_a_message_that_waits_in_line_sees_what_the_one_before_it_found(stage: Stage):
    first = {
        wire: stage.ask(
            wire,
            {"calls": [call("wait", seconds=0.3)]},
            {"text": "First."},
            name=f"{wire}-line",
            conversation_id=f"{wire}-line",
        )
        for wire in FORMATS
    }

    said = going_on(stage, "line")

    assert all(job.wait(PATIENCE).text == "First." for job in first.values())
    assert all('First."' in text.replace("\\", "") for text in said.values())


@pytest.mark.parametrize("wire", ["openai", "chat", "anthropic"])
def test_arguments_of_every_shape_become_results_and_none_ends_the_message(stage: Stage, wire: str):
    shapes = [
        "{broken",
        "[1, 2]",
        "null",
        '"text"',
        '{"a": 1, "b": 2, "c": 3}',
        '"{\\"a\\": 1, \\"b\\": 2}"',
        "",
        '{"a": NaN}',
    ]
    calls = [{"name": "add", "bad_arguments": shape} for shape in shapes]
    name = f"{wire}-shapes"

    answer = stage.answer(wire, {"calls": calls}, OK, name=name)

    assert (answer.text, answer.rounds, answer.usage.tool_calls) == ("It is done.", 1, len(shapes))
    assert stage.refused(name) == []
    told = stage.requests(name)[-1].raw.decode()
    assert told.count("bad_arguments") - json.dumps(calls).count("bad_arguments") == len(shapes) - 1


def test_many_conversations_at_once_are_kept_apart(stage: Stage):
    jobs = {
        (wire, number): stage.ask(
            wire, THINK, {"calls": [call("add", a=number, b=1000)]}, {"text": f"{number}"}, name=f"{wire}-many-{number}"
        )
        for number in range(15)
        for wire in FORMATS
    }

    for (wire, number), job in jobs.items():
        answer = job.wait(PATIENCE)
        assert (answer.text, answer.rounds) == (f"{number}", 2)
        assert stage.fake.count(f"{wire}-many-{number}") == 3
        assert str(1000 + number) in stage.requests(f"{wire}-many-{number}")[-1].raw.decode()
