"""What the mock model plays: the script of a conversation, carried in the text of its first message."""

import re
from dataclasses import dataclass
from typing import Final, Self

MARK: Final = re.compile(rb"\[bench (\S+) (\d+) (\d+) (\d+) (\d+) (\d+)\]")


@dataclass(frozen=True)
class Script:
    """Tool rounds before the answer, think time before each reply, size of tool results, and how the answer drips."""

    rounds: int = 10
    think_ms: int = 0
    result_bytes: int = 40
    pieces: int = 1
    piece_ms: int = 0

    @property
    def calls(self) -> int:
        """Model calls of one conversation."""
        return self.rounds + 1


@dataclass(frozen=True)
class Conversation:
    """One message to a system, and what the mock model will do with it."""

    id: str
    script: Script

    @property
    def text(self) -> str:
        """The user's words, with the mark that the mock model reads."""
        s = self.script
        fields = f"{self.id} {s.rounds} {s.think_ms} {s.result_bytes} {s.pieces} {s.piece_ms}"
        return f"How did I do this month? [bench {fields}]"

    @classmethod
    def find(cls, body: bytes | bytearray) -> Self | None:
        """Return the conversation whose mark stands in a request, or None."""
        found = MARK.search(body)
        if found is None:
            return None
        name, *numbers = found.groups()
        return cls(name.decode(), Script(*map(int, numbers)))
