"""Reasoning that comes inside the text as a ``<think>`` block, kept from the eye while it streams.

Only a block that opens the text counts, so that an answer *about* such tags stays whole.
"""

import re
from typing import Final

_TAGS: Final = {"<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>"}
_LONE_CLOSING: Final = re.compile(r"\A(?:(?!<think>).)*?^[ \t]*</think>[ \t]*$\s*", re.DOTALL | re.MULTILINE)


class ThoughtFilter:
    """Divides text that comes in pieces into what is seen and what is thought, however the tags are cut."""

    def __init__(self) -> None:
        self._held = ""
        self._closing = ""
        self._open = False
        self._closed = False
        self._plain = False

    def feed(self, text: str) -> tuple[str, str]:
        """Return (seen, thought) of this piece."""
        if self._plain:
            return text, ""
        self._held += text
        if not self._open and not self._decide():
            return (self._release(), "") if self._plain else ("", "")
        return self._thinking()

    def close(self) -> str:
        """Return text that was held back and turned out to be no tag."""
        return "" if self._open else self._release()

    def _decide(self) -> bool:
        """Say whether the text opens with a block; leave both ``_open`` and ``_plain`` false while unsure."""
        start = self._held.lstrip()
        for opening, closing in _TAGS.items():
            if start.startswith(opening):
                self._held, self._closing, self._open = start.removeprefix(opening), closing, True
                return True
        self._plain = bool(start) and not any(opening.startswith(start) for opening in _TAGS)
        return False

    def _thinking(self) -> tuple[str, str]:
        thought, found, rest = self._held.partition(self._closing)
        if not found:
            keep = _overlap(thought, self._closing)
            self._held = thought[len(thought) - keep :]
            return "", thought[: len(thought) - keep]
        self._held, self._open, self._closed = rest, False, True
        seen, more = self.feed("")
        return seen, thought + more

    def _release(self) -> str:
        """Let go of what was held, without the white space that parts it from a block."""
        held, self._held = self._held, ""
        return held.lstrip() if self._closed else held


def without_thoughts(text: str) -> str:
    """Return the text without the blocks that open it, nor what a closing tag alone on its line ends."""
    thoughts = ThoughtFilter()
    seen, _ = thoughts.feed(text)
    return _LONE_CLOSING.sub("", seen + thoughts.close(), count=1)


def _overlap(text: str, tag: str) -> int:
    """Return how many last characters of the text may be the beginning of the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)
