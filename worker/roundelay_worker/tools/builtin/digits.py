"""Writes exact fractions as decimals: exactly where that ends, else rounded, and says which."""

from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

SIGNIFICANT: Final = 30
"""Digits of a number that does not end."""

LONGEST_EXACT: Final = 1_000
"""Digits of a number that ends; longer ones are rounded, too."""


def in_digits(number: Fraction, *, exact: bool = True) -> tuple[str, bool]:
    """Return ``number`` in decimal digits, and whether they are exact; one that is not ``exact`` is rounded."""
    places = _places(number.denominator)
    if exact and places is not None:
        whole = number.numerator * 10**places // number.denominator
        digits = len(_digits(abs(whole)))
        if digits <= LONGEST_EXACT and places <= LONGEST_EXACT:
            return _plain(whole, places), True
    return _rounded(number), False


def _places(denominator: int) -> int | None:
    """Return how many decimal places ``1/denominator`` takes, or None if it does not end."""
    twos = (denominator & -denominator).bit_length() - 1
    rest = denominator >> twos
    fives = 0
    while rest % 5 == 0:
        rest //= 5
        fives += 1
    return max(twos, fives) if rest == 1 else None


def _plain(whole: int, places: int) -> str:
    digits = _digits(abs(whole)).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".") if places else digits
    return f"-{text}" if whole < 0 else text


def _rounded(number: Fraction) -> str:
    context = Context(prec=SIGNIFICANT, Emax=999_999, Emin=-999_999)
    quotient = context.divide(Decimal(number.numerator), Decimal(number.denominator))
    plain = -SIGNIFICANT < quotient.adjusted() < SIGNIFICANT
    digits, e, exponent = format(quotient, "f" if plain else "E").partition("E")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + e + exponent


def _digits(whole: int) -> str:
    """Return the digits of ``whole``, free of Python's limit on long integers (callers bound its size)."""
    return format(Decimal(whole), "f")
