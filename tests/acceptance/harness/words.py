"""Short words for scripts."""

from typing import Any

STREAMED = {"text": "slowly " * 400, "pace": 0.05, "drip": 0.05}
"""A reply that takes minutes."""


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a step that asks for one tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


def calls(*asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a step that asks for several tools."""
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in asked]}
