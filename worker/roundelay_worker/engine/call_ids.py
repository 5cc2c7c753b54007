"""The name of a call, the same over all attempts: it is the tool's idempotency key."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class CallId:
    """Message, round and position; the provider, its ids and the attempt are no part of it."""

    message_id: str
    round: int
    position: int

    def __str__(self) -> str:
        return f"{self.message_id}.{self.round}.{self.position}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what ``str`` made."""
        message_id, round_number, position = text.rsplit(".", 2)
        return cls(message_id, int(round_number), int(position))
