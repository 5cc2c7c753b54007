import operator
import time
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from running import error_of, run_once

from roundelay_worker import ToolError
from roundelay_worker.tools.builtin.calculator import calculator
from roundelay_worker.tools.builtin.digits import in_digits
from roundelay_worker.tools.builtin.expression import LONGEST, Number, work_out

OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
numbers = st.decimals(-1000, 1000, places=3)
trees = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner),
        st.tuples(inner, st.just("**"), st.integers(-3, 3).map(Decimal)),
    ),
    max_leaves=8,
)


def written(tree) -> str:
    if isinstance(tree, Decimal):
        return f"{tree:f}" if tree >= 0 else f"({tree:f})"
    left, sign, right = tree
    return f"({written(left)} {sign} {written(right)})"


def worked_out(tree) -> Fraction:
    if isinstance(tree, Decimal):
        return Fraction(tree)
    left, sign, right = tree
    exponent = int(right) if sign == "**" else worked_out(right)
    return Fraction(OPERATORS[sign](worked_out(left), exponent))


@given(trees)
@settings(max_examples=300, deadline=None)
def test_it_agrees_with_pythons_fractions_on_every_expression(tree):
    assume(len(written(tree)) <= LONGEST)
    try:
        expected = worked_out(tree)
    except ZeroDivisionError:
        with pytest.raises(ToolError, match=r"Division by zero|too large"):
            work_out(written(tree))
    else:
        assert work_out(written(tree)) == Number(expected)


@given(st.decimals(-(10**12), 10**12, places=6), st.decimals(-(10**12), 10**12, places=6))
def test_sums_and_products_are_those_of_exact_decimals(left, right):
    with localcontext() as context:
        context.prec = 100
        assert Decimal(calculator(f"({left:f}) + ({right:f})")) == left + right
        assert Decimal(calculator(f"({left:f}) * ({right:f})")) == left * right


@given(st.fractions(max_denominator=10**6))
@example(Fraction(0))
@example(Fraction(-1, 3))
@example(Fraction(10**60, 7))
@example(Fraction(1, 3 * 10**50))
def test_digits_say_the_number_or_that_they_are_rounded(number):
    digits, exact = in_digits(number)
    if exact:
        assert Fraction(digits) == number
        assert not digits.endswith(".")
    else:
        assert abs(Fraction(digits) - number) <= abs(number) / 10**29


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1 / 3 * 3", "1"),
        ("1/7", "0.142857142857142857142857142857 (rounded)"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("-2 ** 2", "-4"),
        ("2 ** 3 ** 2", "512"),
        ("2^-3", "0.125"),
        ("7 // -2", "-4"),
        ("7 % -3", "-2"),
        ("2 × 3 ÷ 4 − 1", "0.5"),  # noqa: RUF001
        ("1_000_000 * 1.5e3", "1500000000"),
        (".5 + 5.", "5.5"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234, -2)", "1200"),
        ("floor(-1.5) + ceil(1.2) + abs(-3)", "3"),
        ("max(1, 2.5, -3) - min(4, 5)", "-1.5"),
        ("sqrt(2.25)", "1.5"),
        ("sqrt(2) * sqrt(2)", "2 (rounded)"),
        ("4 ** 0.5", "2"),
        ("exp(0) + ln(1) + log10(1000)", "4 (rounded)"),
        ("pi", "3.14159265358979323846264338328 (rounded)"),
        ("0 ** 0", "1"),
        ("0 ** 0.3", "0"),
        ("2 ** 0.3", "1.23114441334491628449939306917 (rounded)"),
        ("8 ** (1/3)", "2 (rounded)"),
        ("0 * 1e3000", "0"),
        ("(-1) ** 1e3000", "1"),
        ("1e-20", "0.00000000000000000001"),
        ("-0", "0"),
    ],
)
def test_known_results(expression, result):
    assert calculator(expression) == result


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("1 / 0", "division_by_zero"),
        ("1 // (2 - 2)", "division_by_zero"),
        ("5 % 0", "division_by_zero"),
        ("0 ** -1", "division_by_zero"),
        ("", "not_arithmetic"),
        ("1 +", "not_arithmetic"),
        ("(1", "not_arithmetic"),
        ("1)", "not_arithmetic"),
        ("1 2", "not_arithmetic"),
        ("20%", "not_arithmetic"),
        ("1,000", "not_arithmetic"),
        ("round(1, 2, 3)", "not_arithmetic"),
        ("1; 2", "not_arithmetic"),
        ("'a'", "not_arithmetic"),
        ("１ + 1", "not_arithmetic"),  # noqa: RUF001
        ("__import__('os')", "not_arithmetic"),
        ("foo(1)", "unknown_name"),
        ("x + 1", "unknown_name"),
        ("().__class__", "not_arithmetic"),
        ("sqrt(-1)", "not_real"),
        ("(-8) ** (1/3)", "not_real"),
        ("ln(0)", "not_real"),
        ("9 ** 9 ** 9", "too_large"),
        ("1e999999", "too_large"),
        ("1e99999999999999999999", "too_large"),
        ("10 ** 3000 * 10 ** 3000", "too_large"),
        ("2 ** -99999", "too_large"),
        ("exp(99999)", "too_large"),
        ("1.0000000001 ** 10000000", "too_large"),
        ("round(1, 1000)", "too_large"),
        ("(" * 400 + "1" + ")" * 400, "too_large"),
        ("-" * 900 + "1", "too_large"),
        ("1+" * 600 + "1", "too_large"),
    ],
)
def test_what_cannot_be_worked_out_is_a_clear_error(expression, code):
    with pytest.raises(ToolError) as refused:
        work_out(expression)
    assert refused.value.code == code


@given(st.text(alphabet="0123456789.eE+-*/%^()_ ,abpisqrtlnxoudmf", max_size=200))
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_gives_a_number_or_a_tool_error_and_soon(expression):
    begun = time.monotonic()
    try:
        in_digits(work_out(expression).value)
    except ToolError:
        assume(True)
    assert time.monotonic() - begun < 2


def test_division_by_zero_reaches_the_model_as_a_tool_error():
    assert error_of(run_once(calculator, expression="1/0"))["message"] == "Division by zero."
