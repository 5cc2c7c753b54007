"""Counts the calls that went on after their caller had gone: overrun threads, and tasks that swallow cancellation."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from roundelay_worker.loop.history import Result
from roundelay_worker.tools.context import ToolContext
from roundelay_worker.tools.declare.declared import Tool
from roundelay_worker.tools.run.results import Outcome

_LOG = logging.getLogger(__name__)

Conversation = tuple[str, str]
"""(``user_id`` or '', ``conversation_id``)."""

LateHook = Callable[[ToolContext, Result], None]


@dataclass(frozen=True, slots=True)
class _LooseCall:
    tool: Tool
    context: ToolContext


class LooseCalls:
    """The calls still at work although nobody waits for them; each is dropped when it ends."""

    def __init__(self, on_late: LateHook | None) -> None:
        self._on_late = on_late
        self._calls: dict[asyncio.Future[Outcome], _LooseCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def writes(self, conversation: Conversation) -> int:
        """Return how many writes of ``conversation`` may still take effect."""
        return sum(
            call.tool.effect == "write" and (call.context.user_id, call.context.conversation_id) == conversation
            for call in self._calls.values()
        )

    def is_write(self, call_id: str) -> bool:
        """Say whether the call is a write that is loose."""
        return any(call.tool.effect == "write" and call.context.call_id == call_id for call in self._calls.values())

    def add(self, running: asyncio.Future[Outcome], tool: Tool, context: ToolContext) -> None:
        """Watch ``running`` until it ends, which may be now; its result then goes to the late hook."""
        if running in self._calls:
            return
        self._calls[running] = _LooseCall(tool, context)
        running.add_done_callback(partial(self._settle, context=context))

    def _settle(self, running: asyncio.Future[Outcome], context: ToolContext) -> None:
        self._calls.pop(running, None)
        if running.cancelled() or running.exception() is not None or self._on_late is None:
            return
        try:
            self._on_late(context, running.result().result)
        except Exception as exc:  # noqa: BLE001 - a hook that raises must not break the loop
            _LOG.warning("late_hook_failed error=%s", type(exc).__name__)
