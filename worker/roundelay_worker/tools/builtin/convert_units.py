"""The built-in tool ``convert_units``."""

from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from roundelay_worker.tools.builtin.digits import in_digits
from roundelay_worker.tools.builtin.units import DIMENSIONS, Unit, UnknownUnit, find_unit, names_of
from roundelay_worker.tools.context import ToolError
from roundelay_worker.tools.declare.decorator import tool

_Written = Annotated[str, Field(max_length=40)]


@tool(effect="read")
def convert_units(
    value: Annotated[Decimal, Field(max_digits=60, decimal_places=30)],
    from_unit: _Written,
    to_unit: _Written,
) -> str:
    """Convert between units of length, mass, time, temperature, volume, area, speed, data and energy, exactly.

    A result that does not end is rounded to 30 digits and says so.

    Args:
        value: the number to convert
        from_unit: a name or symbol, for example km, pound, fahrenheit, GiB
        to_unit: a unit of the same dimension
    """
    origin, target = _unit(from_unit), _unit(to_unit)
    if origin.dimension != target.dimension:
        raise ToolError(
            f"{origin.name} is {origin.dimension}, {target.name} is {target.dimension}.", code="different_dimensions"
        )
    digits, exact = in_digits((Fraction(value) * origin.scale + origin.offset - target.offset) / target.scale)
    return f"{digits} {target.name}" + ("" if exact else " (rounded)")


def _unit(written: str) -> Unit:
    try:
        return find_unit(written)
    except UnknownUnit as exc:
        if exc.near:
            raise ToolError("This may be several units.", code="unknown_unit", recovery=_choice(exc.near)) from exc
        known = "; ".join(f"{dimension}: {', '.join(names_of(dimension))}" for dimension in DIMENSIONS)
        raise ToolError("There is no such unit.", code="unknown_unit", recovery=f"Known are {known}.") from exc


def _choice(names: tuple[str, ...]) -> str:
    return f"Write one of {', '.join(names)}."
