"""The one tool, as Roundelay's users write it."""

from roundelay_worker import tool

from bench import tools


@tool(effect="read")
def lookup(topic: str, size: int) -> str:
    """Look up the notes on a topic."""
    return tools.lookup(topic, size)
