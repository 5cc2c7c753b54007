"""Values of replies read without trust: what has another type than it should counts as missing."""

from typing import Any


def as_object(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def as_word(value: object) -> str:
    """Return the value if it is a string, else ''."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return the value if it is a number of things, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
