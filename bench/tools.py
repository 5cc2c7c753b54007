"""The one tool of every system: a quick read."""

from typing import Any, Final

NAME: Final = "lookup"
DESCRIPTION: Final = "Look up the notes on a topic."
SCHEMA: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": DESCRIPTION,
        "parameters": {
            "type": "object",
            "properties": {"topic": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["topic", "size"],
            "additionalProperties": False,
        },
    },
}
LINE: Final = "Sold 12 lamps, 3 chairs and a table. "
PAGE: Final = LINE * 3_000


def lookup(topic: str, size: int) -> str:
    """Return ``size`` characters of notes on ``topic``."""
    return f"{topic}: {PAGE}"[:size]
