"""Units of measure, as exact fractions of one base unit for each dimension."""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Final


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: ``value * scale + offset`` is the same quantity in the dimension's base unit."""

    dimension: str
    name: str
    scale: Fraction
    offset: Fraction = Fraction(0)


_TABLE: Final = """
length       1                      metre|meter|metres|meters|m
length       1000                   kilometre|kilometer|km
length       1/100                  centimetre|centimeter|cm
length       1/1000                 millimetre|millimeter|mm
length       1/1000000              micrometre|micrometer|um|µm
length       1/1000000000           nanometre|nanometer|nm
length       0.0254                 inch|inches|in
length       0.3048                 foot|feet|ft
length       0.9144                 yard|yd
length       1609.344               mile|mi
length       1852                   nautical_mile|nmi
mass         1                      kilogram|kg|kilo
mass         1/1000                 gram|g
mass         1/1000000              milligram|mg
mass         1/1000000000           microgram|ug|µg
mass         1000                   tonne|t|metric_ton
mass         0.45359237             pound|lb|lbs
mass         0.028349523125         ounce|oz
mass         6.35029318             stone|st
time         1                      second|s|sec
time         1/1000                 millisecond|ms
time         1/1000000              microsecond|us|µs
time         60                     minute|min
time         3600                   hour|h|hr
time         86400                  day|d
time         604800                 week|wk
volume       1                      litre|liter|l|L
volume       1/1000                 millilitre|milliliter|ml|mL
volume       1/100                  centilitre|centiliter|cl|cL
volume       1000                   cubic_metre|cubic_meter|m3|m³
volume       1/1000                 cubic_centimetre|cubic_centimeter|cm3|cm³|cc
volume       3.785411784            us_gallon|gallon|gal
volume       0.946352946            us_quart|quart|qt
volume       0.473176473            us_pint|pint
volume       0.2365882365           us_cup|cup
volume       0.0295735295625        us_fluid_ounce|fluid_ounce|fl_oz
volume       0.01478676478125       us_tablespoon|tablespoon|tbsp
volume       0.00492892159375       us_teaspoon|teaspoon|tsp
volume       4.54609                imperial_gallon
volume       0.56826125             imperial_pint
area         1                      square_metre|square_meter|m2|m²
area         1000000                square_kilometre|square_kilometer|km2|km²
area         1/10000                square_centimetre|square_centimeter|cm2|cm²
area         10000                  hectare|ha
area         4046.8564224           acre|ac
area         0.09290304             square_foot|square_feet|ft2|ft²
area         2589988.110336         square_mile|mi2
speed        1                      metre_per_second|meter_per_second|m/s|mps
speed        5/18                   kilometre_per_hour|kilometer_per_hour|km/h|kmh|kph
speed        0.44704                mile_per_hour|mph
speed        463/900                knot|kn
data         1                      byte|B
data         1/8                    bit|b
data         1000                   kilobyte|kB|KB
data         1000000                megabyte|MB
data         1000000000             gigabyte|GB
data         1000000000000          terabyte|TB
data         1000000000000000       petabyte|PB
data         1024                   kibibyte|KiB
data         1048576                mebibyte|MiB
data         1073741824             gibibyte|GiB
data         1099511627776          tebibyte|TiB
data         125                    kilobit|kb|kbit
data         125000                 megabit|Mb|Mbit
data         125000000              gigabit|Gb|Gbit
energy       1                      joule|J
energy       1000                   kilojoule|kJ
energy       1000000                megajoule|MJ
energy       4.184                  calorie|cal
energy       4184                   kilocalorie|kcal
energy       3600                   watt_hour|Wh
energy       3600000                kilowatt_hour|kWh
"""

_TEMPERATURES: Final = {
    "kelvin|K": Unit("temperature", "kelvin", Fraction(1)),
    "celsius|C|°C|degree_celsius": Unit("temperature", "celsius", Fraction(1), Fraction("273.15")),
    "fahrenheit|F|°F|degree_fahrenheit": Unit("temperature", "fahrenheit", Fraction(5, 9), Fraction("459.67") * 5 / 9),
    "rankine|R|°R": Unit("temperature", "rankine", Fraction(5, 9)),
}


class UnknownUnit(LookupError):
    """No unit is written so, or several are; ``near`` holds the names it may be."""

    def __init__(self, written: str, near: tuple[str, ...]) -> None:
        super().__init__(written)
        self.near = near


def find_unit(written: str) -> Unit:
    """Return the unit that ``written`` (a name, a plural or a symbol) stands for; raise UnknownUnit."""
    spelt = "_".join(written.split())
    for ending in ("", "s", "es"):
        candidate = spelt[: len(spelt) - len(ending)] if spelt.lower().endswith(ending) else spelt
        if candidate in _UNITS:
            return _UNITS[candidate]
        named = _LOWERED.get(candidate.lower(), set())
        if len(named) == 1:
            return _UNITS[next(iter(named))]
        if named:
            raise UnknownUnit(written, tuple(sorted(named)))
    raise UnknownUnit(written, ())


def names_of(dimension: str) -> tuple[str, ...]:
    """Return the names of the units of ``dimension``."""
    return tuple(sorted({unit.name for unit in _UNITS.values() if unit.dimension == dimension}))


def _all_units() -> dict[str, Unit]:
    units = {}
    for line in _TABLE.strip().splitlines():
        dimension, scale, spellings = line.split()
        names = spellings.split("|")
        for name in names:
            units[name] = Unit(dimension, names[0], Fraction(scale))
    for spellings, unit in _TEMPERATURES.items():
        units.update(dict.fromkeys(spellings.split("|"), unit))
    return units


def _lowered(units: dict[str, Unit]) -> dict[str, set[str]]:
    """Return, for each spelling in small letters, one name of every unit that may be meant by it."""
    lowered: defaultdict[str, set[str]] = defaultdict(set)
    for spelling, unit in units.items():
        lowered[spelling.lower()].add(unit.name)
    return dict(lowered)


_UNITS: Final = _all_units()
_LOWERED: Final = _lowered(_UNITS)
DIMENSIONS: Final = tuple(dict.fromkeys(unit.dimension for unit in _UNITS.values()))
