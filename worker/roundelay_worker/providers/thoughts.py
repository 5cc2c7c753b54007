"""Reasoning that comes inside the text as a ``<think>`` block, kept from the eye while it streams.

Only a block that opens the text counts, so that an answer *about* such tags stays whole.
"""

import re
from typing import Final

_TAGS: Final = {"<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>"}
_LONGEST_TAG: Final = max(map(len, _TAGS))
_SPACE: Final = re.compile(r"\s*")
_LONE_CLOSING: Final = re.compile(r"\A(?:(?!<think>).)*?^[ \t]*</think>[ \t]*$\s*", re.DOTALL | re.MULTILINE)


class ThoughtFilter:
    """Divides text that comes in pieces into what is seen and what is thought, however the tags are cut.

    The work is linear in the text: what is held back is at most a tag, and white space, which is not looked at again.
    """

    def __init__(self) -> None:
        self._blank: list[str] = []
        self._held = ""
        self._closing = ""
        self._open = False
        self._closed = False
        self._plain = False

    def feed(self, text: str) -> tuple[str, str]:
        """Return (seen, thought) of this piece."""
        seen: list[str] = []
        thought: list[str] = []
        text, self._held, at = self._held + text, "", 0
        while at < len(text) and not self._plain:
            at = self._think(text, at, thought) if self._open else self._decide(text, at)
        if self._plain:
            seen = [self._release(), text[at:]]
        return "".join(seen), "".join(thought)

    def close(self) -> str:
        """Return text that was held back and turned out to be no tag."""
        return "" if self._open else self._release()

    def _decide(self, text: str, at: int) -> int:
        """Take the beginning of a text: white space, then a tag that opens a block, a part of one, or plain text."""
        start = _after_space(text, at)
        self._blank.append(text[at:start])
        for opening, closing in _TAGS.items():
            if text.startswith(opening, start):
                self._blank, self._closing, self._open = [], closing, True
                return start + len(opening)
        rest = text[start : start + _LONGEST_TAG]
        if any(opening.startswith(rest) for opening in _TAGS):
            self._held = rest
            return len(text)
        self._plain = True
        return start

    def _think(self, text: str, at: int, thought: list[str]) -> int:
        """Take the inside of a block up to the tag that closes it, or to what may be its beginning."""
        end = text.find(self._closing, at)
        if end >= 0:
            thought.append(text[at:end])
            self._open, self._closed = False, True
            return end + len(self._closing)
        keep = _overlap(text[max(at, len(text) - len(self._closing)) :], self._closing)
        thought.append(text[at : len(text) - keep])
        self._held = text[len(text) - keep :]
        return len(text)

    def _release(self) -> str:
        """Let go of what was held, without the white space that parts it from a block."""
        blank, held = "".join(self._blank), self._held
        self._blank, self._held = [], ""
        return held if self._closed else blank + held


def without_thoughts(text: str) -> str:
    """Return the text without the blocks that open it, nor what a closing tag alone on its line ends."""
    thoughts = ThoughtFilter()
    seen, _ = thoughts.feed(text)
    return _LONE_CLOSING.sub("", seen + thoughts.close(), count=1)


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _overlap(text: str, tag: str) -> int:
    """Return how many last characters of the text may be the beginning of the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)
