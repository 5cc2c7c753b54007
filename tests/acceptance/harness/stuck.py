"""A SETUP function under which asking the model never ends, not even when it is cancelled."""

import asyncio
from typing import Any

from roundelay_worker import wiring
from roundelay_worker.providers.chat.provider import ChatProvider


def setup() -> None:
    """Have each request hang for good, and the process find that out soon."""
    wiring._STUCK = 1.0  # type: ignore[misc]
    ChatProvider.ask = _stuck  # type: ignore[method-assign]


async def _stuck(*_: Any) -> Any:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue
