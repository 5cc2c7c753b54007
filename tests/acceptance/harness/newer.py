"""The tools that a newer version of the deployment has on top of its old ones."""

from roundelay_worker import tool


@tool(effect="read")
def greet(who: str) -> str:
    """Greet somebody."""
    return f"Hello {who}"
