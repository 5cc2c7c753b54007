"""The worker of Roundelay: agent loops as durable Celery rounds. Tools are written with these three names."""

from roundelay_worker.tools.context import ToolContext, ToolError
from roundelay_worker.tools.decorator import tool

__all__ = ["ToolContext", "ToolError", "tool"]
