"""The built-in tool ``calculator``."""

from typing import Annotated

from pydantic import Field

from roundelay_worker.tools.builtin.digits import in_digits
from roundelay_worker.tools.builtin.expression import LONGEST, work_out
from roundelay_worker.tools.declare.decorator import tool


@tool(effect="read")
def calculator(
    expression: Annotated[str, Field(description="for example (1200 - 850) / 850 * 100", max_length=LONGEST)],
) -> str:
    """Work out an arithmetic expression exactly.

    Knows + - * / // (floor division) % (remainder) ** or ^ (power), parentheses, pi, e, and the functions
    abs, ceil, exp, floor, ln, log10, max, min, round(x, places), sqrt. Write 20 percent of x as x * 20 / 100.
    A result that is not exact ends with (rounded).
    """
    number = work_out(expression)
    digits, exact = in_digits(number.value, exact=number.exact)
    return digits if exact else f"{digits} (rounded)"
