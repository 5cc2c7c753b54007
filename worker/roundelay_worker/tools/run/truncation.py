"""Shortens a text to a number of bytes: three quarters head, one quarter tail, on character borders."""

from typing import Final

_CONTINUES: Final = 0x80

MARKER: Final = "[cut]"
"""All that is left of a text where there is no room for more; nothing is cut below it."""


def size(text: str) -> int:
    """Return the length of ``text`` in bytes of UTF-8; lone surrogates count as written."""
    return len(_encoded(text))


def shorten(text: str, room: int) -> str:
    """Return ``text`` in at most ``room`` bytes, with a note of how many bytes were left out.

    Where ``room`` is less than the marker, the marker (or the shorter text) is returned all the same.
    """
    encoded = _encoded(text)
    if len(encoded) <= max(room, len(MARKER)):
        return text
    kept = room - size(_note(len(encoded)))
    if kept <= 0:
        return MARKER
    tail_starts = _border_after(encoded, len(encoded) - kept // 4)
    head_ends = _border_before(encoded, kept - kept // 4)
    head, tail = encoded[:head_ends], encoded[tail_starts:]
    return _decoded(head) + _note(tail_starts - head_ends) + _decoded(tail)


def _note(left_out: int) -> str:
    return f"\n[… {left_out} bytes left out …]\n"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(encoded: bytes) -> str:
    return encoded.decode("utf-8", "surrogatepass")


def _border_before(encoded: bytes, index: int) -> int:
    while index > 0 and _inside(encoded, index):
        index -= 1
    return index


def _border_after(encoded: bytes, index: int) -> int:
    while _inside(encoded, index):
        index += 1
    return index


def _inside(encoded: bytes, index: int) -> bool:
    """Say whether a cut before ``index`` would split a character (10xxxxxx bytes continue one)."""
    return index < len(encoded) and encoded[index] & 0xC0 == _CONTINUES
