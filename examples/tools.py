"""Tools of an example shop: ROUNDELAY_TOOL_MODULES=tools, with this folder on PYTHONPATH."""

from typing import Annotated, Literal

from pydantic import Field

from roundelay_worker import ToolContext, ToolError, tool

_ORDERS = {"1001": {"status": "sent", "total": 59.9}, "1002": {"status": "open", "total": 12.5}}


@tool(effect="read")
def order(number: Annotated[str, Field(description="four digits")]) -> dict[str, str | float]:
    """Look up an order of the user."""
    if number not in _ORDERS:
        raise ToolError("There is no such order.", code="not_found", recovery=f"Known are {', '.join(_ORDERS)}.")
    return _ORDERS[number]


@tool(effect="write", idempotent=True)
def cancel_order(number: str, reason: Literal["mistake", "late", "other"], context: ToolContext) -> str:
    """Cancel an order that is still open.

    A shop's own API would be given ``context.idempotency_key``, so that asking twice cancels once.
    """
    if _ORDERS.get(number, {}).get("status") != "open":
        raise ToolError("Only open orders can be cancelled.", code="not_open")
    return f"cancelled ({reason}), reference {context.idempotency_key[:8]}"
