"""Scripts: found in the conversation, read strictly, and stepped through by the model's own turns."""

import pytest

from roundelay_worker.testing.fake_llm import ScriptUnreadable, script
from roundelay_worker.testing.fake_llm.ask import Said
from roundelay_worker.testing.fake_llm.script import Step, locate, parse

SCRIPTED = Said("user", "hello " + script({"text": "x"}, name="s"))
PLAIN = Said("user", "go on")
MODEL = Said("model")
RESULTS = Said("results")


@pytest.mark.parametrize(
    ("talk", "turns"),
    [
        ([SCRIPTED], 0),
        ([SCRIPTED, MODEL, RESULTS], 1),
        ([SCRIPTED, MODEL, RESULTS, MODEL, RESULTS], 2),
        ([SCRIPTED, MODEL, MODEL], 2),
        ([SCRIPTED, Said("model", turns=2)], 2),
        ([SCRIPTED, MODEL, RESULTS, PLAIN], 1),
        ([SCRIPTED, MODEL, RESULTS, PLAIN, MODEL, RESULTS], 2),
        ([SCRIPTED, PLAIN], 0),
        ([PLAIN, MODEL, SCRIPTED], 0),
        ([SCRIPTED, MODEL, SCRIPTED, MODEL], 1),
    ],
)
def test_the_step_is_the_number_of_turns_since_the_last_scripted_text(talk, turns):
    assert locate(talk) == (SCRIPTED.text, turns)


@pytest.mark.parametrize("talk", [[], [PLAIN], [SCRIPTED, MODEL, PLAIN], [SCRIPTED, MODEL, PLAIN, MODEL, RESULTS]])
def test_a_message_without_a_script_does_not_take_the_script_of_an_earlier_one(talk):
    assert locate(talk) is None


def test_a_bare_list_is_a_script_named_by_its_fingerprint():
    first, same, other = (
        parse(f"{words} script: {steps}") for words, steps in [("a", "[{}]"), ("b", "[{}]"), ("a", "[{},{}]")]
    )
    assert first.name == same.name
    assert first.name != other.name


def test_text_around_a_script_is_free_and_the_last_script_counts():
    text = f"before {script({'text': 'old'}, name='old')} between {script({'text': 'new'}, name='new')} after"
    assert (parse(text).name, parse(text).steps[0].text) == ("new", "new")


def test_the_last_step_repeats():
    found = parse(script({"text": "a"}, {"text": "b"}))
    assert [found.step(turn).text for turn in range(4)] == ["a", "b", "b", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "script: [{]",
        "script: []",
        "script: [1]",
        'script: [{"txet": "x"}]',
        'script: [{"finish": "done"}]',
        'script: [{"error": "oops"}]',
        'script: [{"in_stream_error": "gateway"}]',
        'script: [{"leak": "loudly"}]',
        'script: [{"delay": "1"}]',
        'script: [{"text": 1}]',
        'script: [{"calls": [{"arguments": {}}]}]',
        'script: [{"calls": [{"name": "x", "args": {}}]}]',
        'script: {"steps": [{}], "nmae": "x"}',
        'script: [{"then": {"txet": "x"}}]',
    ],
)
def test_a_misspelt_script_is_an_error_and_not_a_default(text):
    with pytest.raises(ScriptUnreadable):
        parse(text)


def test_a_behaviour_ends_after_its_times_and_its_successor_counts_its_own():
    step = Step.read(
        {"error": "overloaded", "times": 2, "then": {"error": "gateway", "times": 1, "then": {"text": "x"}}}
    )
    assert [step.on_attempt(attempt).error for attempt in range(1, 6)] == [
        "overloaded",
        "overloaded",
        "gateway",
        "",
        "",
    ]
    assert step.on_attempt(9).text == "x"


def test_arguments_are_spelt_as_json_and_bad_ones_stay_as_they_are():
    step = Step.read(
        {"calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "bad_arguments": "{"}, {"name": "c"}]}
    )
    assert [call.arguments for call in step.calls] == ['{"x": 1}', "{", "{}"]
