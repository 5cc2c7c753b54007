"""Values of replies read without trust: what has another type than it should counts as missing."""

from typing import Any, Final

MOST_TOKENS: Final = 10**9
"""No reply has more: such a count is a mistake, and believing it would end the message at its token limit."""


def as_object(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def as_word(value: object) -> str:
    """Return the value if it is a string, else ''."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return the value if it can be a number of tokens, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value <= MOST_TOKENS else 0
