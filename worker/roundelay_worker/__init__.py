"""The worker of Roundelay: agent loops as durable Celery rounds. Tools are written with these three names.

They are imported at their first use: the command ``roundelay`` begins with this file.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers read; at run time __getattr__ does the same
    from roundelay_worker.tools.context import ToolContext, ToolError
    from roundelay_worker.tools.declare.decorator import tool

__all__ = ["ToolContext", "ToolError", "tool"]

_HOMES = {"ToolContext": "tools.context", "ToolError": "tools.context", "tool": "tools.declare.decorator"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'roundelay_worker' has no attribute {name!r}")
    value = getattr(import_module(f"roundelay_worker.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
