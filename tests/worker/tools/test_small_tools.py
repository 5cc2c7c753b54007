import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import error_of, run_once

from roundelay_worker import ToolError
from roundelay_worker.tools.builtin.convert_units import convert_units
from roundelay_worker.tools.builtin.current_time import LocalTime, current_time, local_time
from roundelay_worker.tools.builtin.lookup import _rows, lookup
from roundelay_worker.tools.builtin.units import DIMENSIONS, find_unit, names_of

MOMENT = datetime(2026, 7, 1, 12, 30, 15, 999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "time", "weekday", "offset"),
    [
        ("UTC", "2026-07-01T12:30:15+00:00", "Wednesday", "+00:00"),
        ("Europe/Lisbon", "2026-07-01T13:30:15+01:00", "Wednesday", "+01:00"),
        ("Asia/Kolkata", "2026-07-01T18:00:15+05:30", "Wednesday", "+05:30"),
        ("Pacific/Kiritimati", "2026-07-02T02:30:15+14:00", "Thursday", "+14:00"),
    ],
)
def test_a_moment_is_told_as_the_zone_writes_it(zone, time, weekday, offset):
    assert local_time(MOMENT, zone) == LocalTime(zone, time, weekday, offset)


@pytest.mark.parametrize("zone", ["Europe/Lisboa", "Europe", "../../etc/passwd", "", "/etc/localtime", "A\x00B", "é"])
def test_an_unknown_zone_is_a_clear_error(zone):
    error = error_of(run_once(current_time, zone=zone))
    assert error["code"] == "unknown_zone"
    assert error["recovery"]


def test_near_zones_are_named():
    with pytest.raises(ToolError) as refused:
        local_time(MOMENT, "Europe/Lisboa")
    assert "Europe/Lisbon" in refused.value.recovery


def test_now_is_now():
    told = json.loads(run_once(current_time).result.text)
    assert abs((datetime.fromisoformat(told["time"]) - datetime.now(UTC)).total_seconds()) < 60


@pytest.mark.parametrize(
    ("value", "origin", "target", "result"),
    [
        ("1", "mile", "km", "1.609344 kilometre"),
        ("10", "kilometers", "MILES", "6.21371192237333969617434184363 mile (rounded)"),
        ("98.6", "F", "celsius", "37 celsius"),
        ("-40", "°C", "°F", "-40 fahrenheit"),
        ("0", "K", "C", "-273.15 celsius"),
        ("0", "celsius", "kelvin", "273.15 kelvin"),
        ("1", "lb", "g", "453.59237 gram"),
        ("1.5", "hours", "min", "90 minute"),
        ("3.6", "km/h", "m/s", "1 metre_per_second"),
        ("1", "GiB", "MB", "1073.741824 megabyte"),
        ("1", "MB", "Mb", "8 megabit"),
        ("1", "US gallon", "l", "3.785411784 litre"),
        ("1", "nautical miles", "m", "1852 metre"),
        ("1", "inches", "cm", "2.54 centimetre"),
        ("1e3", "square feet", "m2", "92.90304 square_metre"),
        ("1", "kWh", "MJ", "3.6 megajoule"),
    ],
)
def test_conversions_are_exact(value, origin, target, result):
    outcome = run_once(convert_units, value=value, from_unit=origin, to_unit=target)
    assert outcome.result.text == result


@given(st.decimals(-1000, 1000, places=3), st.sampled_from(DIMENSIONS), st.randoms())
def test_there_and_back_is_the_same_number(value, dimension, chance):
    one, other = chance.choice(names_of(dimension)), chance.choice(names_of(dimension))
    there = convert_units(value, one, other)
    if "rounded" not in there:
        back = convert_units(Decimal(there.split()[0]), other, one)
        assert Decimal(back.split()[0]) == value


def test_every_unit_is_found_by_its_own_name():
    for dimension in DIMENSIONS:
        for name in names_of(dimension):
            assert find_unit(name).name == name
            assert find_unit(name.replace("_", " ")).dimension == dimension


@pytest.mark.parametrize(
    ("origin", "target", "code", "words"),
    [
        ("m", "kg", "different_dimensions", "length"),
        ("mb", "MiB", "unknown_unit", "megabit, megabyte"),
        ("parsec", "m", "unknown_unit", "length: centimetre"),
        ("", "m", "unknown_unit", "length"),
    ],
)
def test_units_that_do_not_fit_are_told(origin, target, code, words):
    error = error_of(run_once(convert_units, value=1, from_unit=origin, to_unit=target))
    assert error["code"] == code
    assert words in error["message"] + error["recovery"]


@pytest.mark.parametrize("value", ["1e100000", "NaN", "Infinity", "1" * 61])
def test_a_value_that_is_no_ordinary_number_is_refused(value):
    outcome = run_once(convert_units, value=value, from_unit="m", to_unit="km")
    assert error_of(outcome)["code"] == "bad_arguments"


@pytest.mark.parametrize("name", ["Germany", "alemanha", "ALEMANIA", " de ", "Alemania"])
def test_a_country_is_found_by_any_of_its_names(name):
    assert lookup(name).capital == "Berlin"


def test_accents_do_not_matter():
    assert lookup("Japao") == lookup("japón") == lookup("Japan")


def test_an_unknown_country_is_told_with_near_names():
    error = error_of(run_once(lookup, country="Brazl"))
    assert error == {
        "code": "not_found",
        "message": "The table has no such country.",
        "recovery": "Did you mean Brazil?",
    }
    assert "table is small" in error_of(run_once(lookup, country="x" * 10_000))["recovery"]


def test_the_table_is_whole():
    rows = set(_rows().values())
    assert len(rows) == len({row.code for row in rows}) > 50
    assert all(len(row.code) == 2 and len(row.currency) == 3 and row.capital for row in rows)
    assert all(0 < row.population_millions < 2000 for row in rows)
