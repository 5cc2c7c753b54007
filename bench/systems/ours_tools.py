"""The one tool, as Roundelay's users write it."""

from bench import tools
from roundelay_worker import tool


@tool(effect="read")
def lookup(topic: str, size: int) -> str:
    """Look up the notes on a topic."""
    return tools.lookup(topic, size)
