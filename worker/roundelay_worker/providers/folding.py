"""From pieces of a history to the messages of a format: neighbours of one role become one message.

Blocks are JSON text in bytes from the start, so that what a provider wrote passes through unread and what
does not change is the same bytes in every request.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

GO_ON: Final = "Please go on."
"""What the user says where a format needs the user to speak and nobody did."""

NO_OUTPUT: Final = "(no output)"
"""Stands for an empty result, which some servers refuse."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a request: its role and its blocks, each the JSON text of one block or of several with commas."""

    role: str
    blocks: list[bytes]

    @property
    def content(self) -> bytes:
        """Return the JSON array of the blocks."""
        return b"[" + b",".join(self.blocks) + b"]"


def folded(pieces: Iterable[tuple[str, bytes]]) -> list[Message]:
    """Return the pieces as messages; those of one role that follow each other share a message, empty ones vanish."""
    messages: list[Message] = []
    for role, block in pieces:
        if not block:
            continue
        if not messages or messages[-1].role != role:
            messages.append(Message(role, []))
        messages[-1].blocks.append(block)
    return messages
