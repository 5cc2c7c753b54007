"""Three go-ons in a row, in each format: the model knows each write and each fact of the whole job."""

import json

import pytest
from formats_stage import Stage, call

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

READS = [call("weather", city=f"Town{n}") for n in range(14)]
FAIL = {"text": ""}


@pytest.mark.parametrize("wire", ["openai", "chat", "anthropic", "google"])
def test_what_was_written_and_found_is_known_however_often_the_job_goes_on(stage: Stage, wire: str):
    name, options = f"{wire}-ledger", {"conversation_id": f"ledger-{wire}", "closing": FAIL}
    begun = {"calls": [*READS, call("note", text="email 4711 sent")]}
    more = {"calls": [call("weather", city="Late")]}
    first = stage.answer(wire, begun, more, name=f"{name}-1", max_rounds=1, **options)
    again = stage.answer(wire, {"calls": [call("weather", city="Rome")]}, name=f"{name}-2", max_rounds=0, **options)
    aside = stage.answer(wire, {"text": "It is noon."}, name=f"{name}-3", conversation_id=options["conversation_id"])
    last = stage.answer(wire, {"text": "All done."}, name=f"{name}-4", conversation_id=options["conversation_id"])

    assert [one.status for one in (first, again, aside, last)] == ["round_limit", "round_limit", "answered", "answered"]
    assert [(done.name, done.ok) for done in first.done if done.effect == "write"] == [("note", True)]
    assert "- note: text email 4711 sent" in first.text
    for number in (2, 3, 4):
        sent = json.dumps(stage.requests(f"{name}-{number}")[0].body)
        assert "Record of this job so far" in sent
        assert "email 4711 sent" in sent
        assert all(f"Town{n}" in sent for n in range(14))
        assert stage.refused(f"{name}-{number}") == []
