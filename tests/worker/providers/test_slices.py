"""Values cut out of JSON text keep their bytes."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundelay_worker.providers.slices import elements, members, object_of, parsed, with_member

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
LAYOUTS = st.fixed_dictionaries({"indent": st.none() | st.integers(0, 2), "ensure_ascii": st.booleans()})


@PATIENT
@given(st.dictionaries(st.text(), VALUES), LAYOUTS)
def test_the_members_of_an_object_are_its_own_text(value, layout):
    text = f" {json.dumps(value, **layout)}\n"

    found = members(text)

    assert {name: json.loads(part) for name, part in found.items()} == value
    assert all(part in text for part in found.values())


@PATIENT
@given(st.lists(VALUES), LAYOUTS)
def test_the_elements_of_an_array_are_its_own_text(value, layout):
    text = f"\t{json.dumps(value, **layout)} "

    found = elements(text)

    assert [json.loads(part) for part in found] == value
    assert all(part in text for part in found)


@PATIENT
@given(st.dictionaries(st.text(), VALUES, min_size=1), VALUES)
def test_one_member_is_changed_and_the_others_keep_their_text(value, new):
    name = next(iter(value))
    text = json.dumps(value, indent=1)

    changed = with_member(text, name, json.dumps(new))

    assert json.loads(changed) == {**value, name: new}
    assert {k: v for k, v in members(changed).items() if k != name} == {
        k: v for k, v in members(text).items() if k != name
    }
    assert json.loads(object_of(members(text))) == value


@pytest.mark.parametrize("text", ["3", '"{"', "null", "[]", "[1]"])
def test_what_is_no_object_has_no_members(text):
    assert members(text) == {}


@pytest.mark.parametrize("text", ["3", '"["', "null", "{}", '{"a": [1]}'])
def test_what_is_no_array_has_no_elements(text):
    assert elements(text) == []


def test_of_a_name_given_twice_the_last_counts_as_it_does_in_parsing():
    assert members('{"a": 1, "a": 2}') == {"a": "2"}


def test_numbers_of_any_length_are_cut_out_untouched():
    assert elements(f"[{'9' * 5000}, 1.50, 1e999]") == ["9" * 5000, "1.50", "1e999"]


def test_halves_of_surrogate_pairs_are_read():
    assert parsed('"\\ud83d"') == "\ud83d"


@pytest.mark.parametrize(
    "text", ["{", "NaN", '{"a": Infinity}', "", b"\xff", "[" * 100_000, "[" * 990 + "]" * 990 + "x"]
)
def test_what_is_no_json_raises_value_error_and_nothing_else(text):
    with pytest.raises(ValueError):
        parsed(text)


def test_nesting_too_deep_to_cut_raises_value_error_and_nothing_else():
    with pytest.raises(ValueError):
        elements("[" * 100_000 + "]" * 100_000)
