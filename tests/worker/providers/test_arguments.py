"""Arguments of calls: lenient in form, kept in the model's words, and faults that never show a value."""

import json

import pytest

from roundelay_worker.providers.arguments import DEEPEST, read_arguments, read_call


@pytest.mark.parametrize("nothing", [None, "", "  \n", {}, "{}"])
def test_no_arguments_are_an_empty_object(nothing: object) -> None:
    assert read_arguments(nothing) == ("{}", "")


def test_valid_text_is_kept_to_the_letter() -> None:
    text = '{ "b" : 1.0,  "a":"\\u00e9" }'

    assert read_arguments(text) == (text, "")


def test_an_object_is_written_and_a_doubly_encoded_one_unpacked() -> None:
    assert read_arguments({"é": [1, None]}) == ('{"é":[1,null]}', "")
    assert read_arguments('"{\\"a\\": 1}"') == ('{"a": 1}', "")


def test_raw_line_breaks_inside_strings_are_let_pass_and_mended() -> None:
    text, fault = read_arguments('{"a": "one\ntwo"}')

    assert (json.loads(text), fault) == ({"a": "one\ntwo"}, "")


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ("[1]", "array"),
        ("null", "null"),
        ("true", "boolean"),
        ("3", "number"),
        ('"secret"', "not valid JSON"),
        ('{"a": secret}', "line 1, column 7"),
        ('{"secret": 1,}', "line 1"),
        ('{"a": NaN}', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (['{"a":1}'], "array"),
        (7, "number"),
    ],
)
def test_anything_else_is_a_fault_that_names_the_place_and_not_the_value(raw: object, word: str) -> None:
    text, fault = read_arguments(raw)

    assert text == "{}"
    assert word in fault
    assert "secret" not in fault


def test_a_call_keeps_its_id_only_if_that_is_text() -> None:
    assert read_call("add", None, 5).wire_id == ""
    assert read_call("add", "[]", "c1").fault


@pytest.mark.parametrize(("levels", "fine"), [(DEEPEST - 2, True), (DEEPEST + 2, False), (900, False)])
def test_arguments_nested_deeper_than_json_writers_go_are_a_fault(levels: int, fine: bool):
    text = '{"a":' * levels + "1" + "}" * levels

    assert (read_arguments(text)[1] == "") is fine
    assert (read_arguments(json.loads(text))[1] == "") is fine
