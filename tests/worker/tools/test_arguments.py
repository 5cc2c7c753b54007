import json

import pytest
import sample_tools
from running import CONTEXT, declared, error_of, run_once

from roundelay_worker.loop.history import Call
from roundelay_worker.tools.run.arguments import read_arguments


def refusal(function, arguments: str) -> dict[str, str]:
    outcome = read_arguments(declared(function), Call("any", arguments))
    return error_of(outcome)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('{"order": {"number": "sekret", "price": 1}}', "order.number: Input should be a valid integer"),
        ('{"order": {"number": 1}}', "order.price: Field required"),
        ('{"order": {"number": 1, "price": 1}, "count": 0}', "count: Input should be greater than or equal to 1"),
        ('{"order": {"number": 1, "price": 1}, "sekret_extra": 1}', "sekret_extra: Unexpected keyword argument"),
        ('{"order": {"number": 13, "price": 1}}', "order.number: The tool's own check refuses it"),
        ("[1, 2]", "arguments: Input should be"),
        ("null", "arguments: Input should be"),
        ('"sekret"', "arguments: Input should be"),
        ('{"order": ', "arguments: Invalid JSON"),
        ("{}", "order: Field required"),
        ("", "order: Field required"),
    ],
)
def test_bad_arguments_are_told_by_place_and_reason_never_by_value(arguments, message):
    error = refusal(sample_tools.buy, arguments)
    assert error["code"] == "bad_arguments"
    assert message in error["message"]
    assert error["recovery"]
    assert "sekret" not in error["message"].replace("sekret_extra", "")
    assert "13" not in error["message"]


def test_a_validator_may_speak_to_the_model_by_a_tool_error():
    error = refusal(sample_tools.buy, '{"order": {"number": 14, "price": 1}}')
    assert (error["code"], error["message"]) == ("tool_error", "order 14 is closed")


def test_not_a_number_is_no_number():
    assert refusal(sample_tools.buy, '{"order": {"number": 1, "price": NaN}}')["code"] == "bad_arguments"


def test_many_faults_are_told_in_part():
    error = refusal(sample_tools.buy, json.dumps({f"extra{n}": n for n in range(40)}))
    assert error["message"].endswith("and 31 more")


def test_the_fault_found_by_the_reader_of_the_reply_is_the_reason():
    outcome = read_arguments(declared(sample_tools.echo), Call("echo", "{}", fault="not a JSON object"))
    error = error_of(outcome)
    assert (error["code"], error["message"]) == ("bad_arguments", "not a JSON object")


@pytest.mark.parametrize("arguments", ["", " \n", "{}"])
def test_an_empty_argument_string_is_fine_where_nothing_is_required(arguments):
    assert read_arguments(declared(sample_tools.hang), Call("hang", arguments)) == {}


def test_models_and_decimals_arrive_as_what_the_signature_says():
    outcome = run_once(sample_tools.buy, order={"number": "7", "price": "1.10"}, count=3)
    assert json.loads(outcome.result.text) == {"order": {"number": 7, "price": "1.10"}, "total": "3.30"}


def test_the_context_is_filled_in_and_cannot_be_sent():
    outcome = run_once(sample_tools.whoami, suffix="x")
    assert json.loads(outcome.result.text) == {
        "user": CONTEXT.user_id,
        "key": "key-1",
        "context": {"plan": "gold"},
        "suffix": "x",
    }
    assert refusal(sample_tools.whoami, '{"context": {}}')["code"] == "bad_arguments"


@pytest.mark.parametrize(
    "arguments",
    [
        '{"order": "{\\"number\\": 1, \\"price\\": 2}"}',
        '{"order": "{\\"number\\": \\"1\\", \\"price\\": 2}", "count": 2}',
    ],
)
def test_an_object_that_came_as_a_string_of_json_is_taken_where_the_schema_wants_one(arguments):
    read = read_arguments(declared(sample_tools.buy), Call("buy", arguments))
    assert (read["order"].number, read["order"].price) == (1, 2)


@pytest.mark.parametrize("steps", ['[{"what": "x"}]', '"[{\\"what\\": \\"x\\"}]"', '["{\\"what\\": \\"x\\"}"]'])
def test_an_array_that_came_as_a_string_of_json_is_taken_where_the_schema_wants_one(steps):
    read = read_arguments(declared(sample_tools.plan), Call("plan", f'{{"steps": {steps}}}'))
    assert read["steps"] == [{"what": "x"}]


def test_a_string_that_the_schema_wants_stays_a_string_whatever_is_in_it():
    assert read_arguments(declared(sample_tools.echo), Call("echo", '{"text": "[1]"}')) == {"text": "[1]"}


def test_a_string_that_is_no_array_is_told_by_place_and_reason():
    error = refusal(sample_tools.plan, '{"steps": "[sekret"}')
    assert error["message"] == "steps: Input should be a valid array"
