"""JSON text that comes in pieces, watched in linear time: parsing it anew at each piece would be quadratic."""

import re
from typing import Final

_STRUCTURE: Final = re.compile(r'["{}\[\]]')
_STRING_MARK: Final = re.compile(r'["\\]')


class WholeValues:
    """Tells whether the text so far is a row of whole arrays or objects; only parsing tells whether they are valid."""

    def __init__(self) -> None:
        self._depth = 0
        self._begun = False
        self._quoted = False
        self._escaped = False

    @property
    def whole(self) -> bool:
        """Return whether all that was opened is closed."""
        return self._begun and self._depth == 0 and not self._quoted

    def feed(self, text: str) -> None:
        """Take the next piece."""
        at = 0
        if self._escaped and text:
            at, self._escaped = 1, False
        while mark := (_STRING_MARK if self._quoted else _STRUCTURE).search(text, at):
            at = mark.end()
            if mark[0] == '"':
                self._quoted = not self._quoted
            elif mark[0] == "\\":
                self._escaped = at == len(text)
                at += 1
            else:
                self._begun = True
                self._depth += 1 if mark[0] in "{[" else -1
