"""Reads and works out arithmetic, exactly and within bounds; nothing is ever handed to ``eval``.

Numbers are fractions, so ``0.1 + 0.2`` is 0.3 and ``1 / 3 * 3`` is 1. Roots, logarithms and powers that are
not whole are worked out to 50 digits, and the result then says that it is rounded.

    sum     = term  { ("+" | "-") term }
    term    = sign  { ("*" | "/" | "//" | "%") sign }
    sign    = ("+" | "-") sign | power
    power   = atom [ ("**" | "^") sign ]
    atom    = number | name | name "(" sum { "," sum } ")" | "(" sum ")"
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, DecimalException
from fractions import Fraction
from math import ceil, floor, isqrt
from typing import Final

from roundelay_worker.tools.context import ToolError

LONGEST: Final = 1_000
DEEPEST: Final = 60
MOST_BITS: Final = 10_000
LARGEST_EXPONENT: Final = 3_000
"""Of a number as written; of a result the bits count."""
SMALLEST_PLACE: Final = 100

_SYMBOL = re.compile(
    r"\s*(?:(?P<number>(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|//|[-+*/%^(),]))",
    re.ASCII,
)
_SPELT = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\N{NO-BREAK SPACE}": " "})  # noqa: RUF001
_PRECISE = Context(prec=50, Emax=LARGEST_EXPONENT, Emin=-LARGEST_EXPONENT)
_CONSTANTS = {
    "pi": Decimal("3.14159265358979323846264338327950288419716939937511"),
    "e": Decimal("2.71828182845904523536028747135266249775724709369996"),
}


@dataclass(frozen=True, slots=True)
class Number:
    """A value, and whether it is exact."""

    value: Fraction
    exact: bool = True


def work_out(expression: str) -> Number:
    """Return the value of ``expression``; raise ToolError saying what is wrong with it."""
    if len(expression) > LONGEST:
        raise ToolError(f"The expression is longer than {LONGEST} characters.", code="too_large")
    return _Reader(_symbols(expression.translate(_SPELT))).whole()


def _symbols(text: str) -> list[str]:
    symbols, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _SYMBOL.match(text, position)
        if match is None:
            raise ToolError(f"The character at position {position + 1} is not arithmetic.", code="not_arithmetic")
        symbols.append(match.group().strip())
        position = match.end()
    return symbols


@dataclass(slots=True)
class _Reader:
    """Works out symbols from left to right; ``inside`` counts how deep it is."""

    symbols: list[str]
    at: int = 0
    inside: int = 0

    def whole(self) -> Number:
        number = self._sum()
        if self._next:
            raise _unexpected(self._next)
        return number

    @property
    def _next(self) -> str:
        return self.symbols[self.at] if self.at < len(self.symbols) else ""

    def _take(self, *wanted: str) -> str:
        symbol = self._next
        if symbol not in wanted:
            return ""
        self.at += 1
        return symbol

    def _sum(self) -> Number:
        left = self._term()
        while sign := self._take("+", "-"):
            left = _OPERATIONS[sign](left, self._term())
        return left

    def _term(self) -> Number:
        left = self._signed()
        while sign := self._take("*", "//", "/", "%"):
            left = _OPERATIONS[sign](left, self._signed())
        return left

    def _signed(self) -> Number:
        self.inside += 1
        if self.inside > DEEPEST:
            raise ToolError(f"The expression is nested deeper than {DEEPEST}.", code="too_large")
        sign = self._take("+", "-")
        number = self._signed() if sign else self._power()
        self.inside -= 1
        return Number(-number.value, number.exact) if sign == "-" else number

    def _power(self) -> Number:
        base = self._atom()
        return _power(base, self._signed()) if self._take("**", "^") else base

    def _atom(self) -> Number:
        symbol = self._next
        self.at += 1
        if symbol == "(":
            number = self._sum()
            self._close()
            return number
        if symbol[:1].isdigit() or symbol[:1] == ".":
            return Number(_number(symbol))
        if symbol[:1].isalpha() or symbol[:1] == "_":
            return self._named(symbol)
        raise _unexpected(symbol)

    def _named(self, name: str) -> Number:
        if self._take("("):
            arguments = [self._sum()]
            while self._take(","):
                arguments.append(self._sum())
            self._close()
            return _call(name, arguments)
        if name in _CONSTANTS:
            return Number(Fraction(_CONSTANTS[name]), exact=False)
        raise ToolError(
            f"There is no {name!r}. Known are {', '.join([*_CONSTANTS, *_FUNCTIONS])}.", code="unknown_name"
        )

    def _close(self) -> None:
        if not self._take(")"):
            raise _unexpected(self._next)


def _unexpected(symbol: str) -> ToolError:
    found = f"{symbol!r} stands where it cannot" if symbol else "something is missing at the end"
    return ToolError(f"This is not a whole expression: {found}.", code="not_arithmetic")


def _number(text: str) -> Fraction:
    _, _, exponent = text.lower().partition("e")
    if exponent and (not -LARGEST_EXPONENT <= int(exponent) <= LARGEST_EXPONENT):
        raise _too_large()
    return Fraction(text.replace("_", ""))


def _too_large() -> ToolError:
    return ToolError("The numbers become too large to work out.", code="too_large")


def _bounded(value: Fraction, *, exact: bool) -> Number:
    if value.numerator.bit_length() > MOST_BITS or value.denominator.bit_length() > MOST_BITS:
        raise _too_large()
    return Number(value, exact)


def _operation(work: Callable[[Fraction, Fraction], Fraction | int]) -> Callable[[Number, Number], Number]:
    def operate(left: Number, right: Number) -> Number:
        try:
            value = Fraction(work(left.value, right.value))
        except ZeroDivisionError as exc:
            raise ToolError("Division by zero.", code="division_by_zero") from exc
        return _bounded(value, exact=left.exact and right.exact)

    return operate


_OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": _operation(lambda left, right: left + right),
    "-": _operation(lambda left, right: left - right),
    "*": _operation(lambda left, right: left * right),
    "/": _operation(lambda left, right: left / right),
    "//": _operation(lambda left, right: left // right),
    "%": _operation(lambda left, right: left % right),
}


def _power(base: Number, exponent: Number) -> Number:
    if exponent.value.denominator != 1:
        return _irrational_power(base, exponent)
    times = int(exponent.value)
    bits = max(base.value.numerator.bit_length(), base.value.denominator.bit_length())
    if abs(base.value) not in (0, 1) and bits * abs(times) > 2 * MOST_BITS:
        raise _too_large()
    if base.value == 0 and times < 0:
        raise ToolError("Division by zero.", code="division_by_zero")
    return _bounded(Fraction(base.value**times), exact=base.exact and exponent.exact)


def _irrational_power(base: Number, exponent: Number) -> Number:
    if base.value < 0:
        raise ToolError("A negative number has no real power that is not whole.", code="not_real")
    if exponent.value == Fraction(1, 2):
        return _root(base)
    if base.value == 0 and exponent.value > 0:
        return base
    return _precisely(lambda: _PRECISE.power(_decimal(base.value), _decimal(exponent.value)))


def _root(number: Number) -> Number:
    if number.value < 0:
        raise ToolError("A negative number has no real square root.", code="not_real")
    over, under = isqrt(number.value.numerator), isqrt(number.value.denominator)
    if (over * over, under * under) == (number.value.numerator, number.value.denominator):
        return Number(Fraction(over, under), number.exact)
    return _precisely(lambda: _decimal(number.value).sqrt(_PRECISE))


def _decimal(value: Fraction) -> Decimal:
    return _PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))


def _precisely(work: Callable[[], Decimal]) -> Number:
    """Work out what is not rational, to 50 digits."""
    try:
        value = work()
    except (DecimalException, ArithmeticError) as exc:
        raise ToolError("This has no value, or one too large to work out.", code="too_large") from exc
    if not value.is_finite():
        raise ToolError("This has no finite value.", code="not_real")
    return _bounded(Fraction(value), exact=False)


def _logarithm(work: Callable[[Decimal], Decimal]) -> Callable[[Number], Number]:
    def logarithm(number: Number) -> Number:
        if number.value <= 0:
            raise ToolError("Only positive numbers have a logarithm.", code="not_real")
        return Number(Fraction(0)) if number.value == 1 else _precisely(lambda: work(_decimal(number.value)))

    return logarithm


def _round(number: Number, places: Number = Number(Fraction(0))) -> Number:
    if places.value.denominator != 1 or abs(places.value) > SMALLEST_PLACE:
        raise ToolError(f"Numbers are rounded to a whole number of places, {SMALLEST_PLACE} at most.", code="too_large")
    return Number(Fraction(round(number.value, int(places.value))), number.exact)


_FUNCTIONS: dict[str, tuple[Callable[..., Number], range]] = {
    "abs": (lambda n: Number(abs(n.value), n.exact), range(1, 2)),
    "ceil": (lambda n: Number(Fraction(ceil(n.value)), n.exact), range(1, 2)),
    "exp": (lambda n: _precisely(lambda: _decimal(n.value).exp(_PRECISE)), range(1, 2)),
    "floor": (lambda n: Number(Fraction(floor(n.value)), n.exact), range(1, 2)),
    "ln": (_logarithm(lambda value: value.ln(_PRECISE)), range(1, 2)),
    "log10": (_logarithm(lambda value: value.log10(_PRECISE)), range(1, 2)),
    "max": (lambda *ns: max(ns, key=lambda n: n.value), range(1, LONGEST)),
    "min": (lambda *ns: min(ns, key=lambda n: n.value), range(1, LONGEST)),
    "round": (_round, range(1, 3)),
    "sqrt": (_root, range(1, 2)),
}


def _call(name: str, arguments: list[Number]) -> Number:
    if name not in _FUNCTIONS:
        raise ToolError(f"There is no function {name!r}. Known are {', '.join(_FUNCTIONS)}.", code="unknown_name")
    function, counts = _FUNCTIONS[name]
    if len(arguments) not in counts:
        raise ToolError(f"{name} takes another number of arguments than {len(arguments)}.", code="not_arithmetic")
    return function(*arguments)
