"""Turns what a web server sent into text: inflates it within bounds, decodes it, and strips HTML.

Everything here takes time linear in its input. ``html.parser`` does not, in Python releases that are still
in use: 40 KB of ``<a <a <a`` took it 14 s.
"""

import codecs
import html
import re
import zlib
from typing import Final

_READABLE: Final = re.compile(
    r"text/.*|application/(.*\+)?(json|xml)|application/(x-)?(ndjson|javascript|yaml|toml)|application/jsonlines"
)
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_CHARSETS: Final = re.compile(
    r"utf-?(8|16|16le|16be)|ascii|iso8859-\d+|latin.*|cp125\d|koi8-.|shift_jis|euc_(jp|kr)|gb2312|gbk|gb18030|big5"
)
"""Others are read as UTF-8: some of Python's codecs (punycode, idna) take quadratic time."""

_SILENT: Final = {
    tag: re.compile(f"</{tag}", re.IGNORECASE | re.ASCII) for tag in ("script", "style", "noscript", "template", "svg")
}
_BREAKS: Final = re.compile(
    r"address|article|aside|blockquote|br|d[dlt]|div|fig(ure|caption)|footer|form|h[1-6r]|header|li|main|nav|[ou]l|p|pre|section|"
    r"table|tr"
)
_TAG_NAME: Final = re.compile(r"/?([A-Za-z][A-Za-z0-9]{0,20})")


class NotReadable(Exception):
    """What came cannot be read; the text says why."""


class Inflater:
    """Undoes ``Content-Encoding`` piece by piece and never holds more than ``limit`` bytes."""

    def __init__(self, encoding: str, limit: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            raise NotReadable("it is compressed in a way that was not asked for")
        compressed = encoding not in {"", "identity"}
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if compressed else None
        self._limit = limit
        self.content = bytearray()

    @property
    def full(self) -> bool:
        """Whether the limit is reached; what comes after it is left out."""
        return len(self.content) >= self._limit

    def feed(self, piece: bytes) -> None:
        """Take up one piece as it came from the wire."""
        room = self._limit - len(self.content)
        if room <= 0:
            return
        if self._inflate is None:
            self.content += piece[:room]
            return
        try:
            self.content += self._inflate.decompress(piece, room)
        except zlib.error as exc:
            raise NotReadable("its compression is broken") from exc


def is_readable(content_type: str) -> bool:
    """Say whether a page of this ``Content-Type`` is text."""
    return bool(_READABLE.fullmatch(content_type.partition(";")[0].strip().lower()))


def to_text(content: bytes, content_type: str) -> str:
    """Return a page as text; HTML without its tags, scripts and styles."""
    text = content.decode(_charset(content_type), "replace")
    return strip_html(text) if "html" in content_type.lower() else text


def strip_html(page: str) -> str:
    """Return the visible text of ``page``, a line for each block."""
    pieces: list[str] = []
    unclosed: set[str] = set()
    at = 0
    while (opens := page.find("<", at)) >= 0:
        pieces.append(page[at:opens])
        at, piece = _after_markup(page, opens, unclosed)
        pieces.append(piece)
    pieces.append(page[at:])
    return _tidy(html.unescape("".join(pieces)))


def _after_markup(page: str, opens: int, unclosed: set[str]) -> tuple[int, str]:
    """Return where the text goes on after the ``<`` at ``opens``, and what stands in its place."""
    if page.startswith("<!--", opens):
        return _after(page, "-->", opens), ""
    if page.startswith(("<!", "<?"), opens):
        return _after(page, ">", opens), ""
    name = _TAG_NAME.match(page, opens + 1)
    if name is None:
        return opens + 1, "<"
    tag = name[1].lower()
    if tag in _SILENT and page[opens + 1] != "/":
        opens = _closing(page, tag, opens, unclosed)
    return _after(page, ">", opens), "\n" if _BREAKS.fullmatch(tag) else ""


def _closing(page: str, tag: str, opens: int, unclosed: set[str]) -> int:
    """Return where ``tag`` is closed, or ``opens`` if it never is; that is searched for only once."""
    closing = None if tag in unclosed else _SILENT[tag].search(page, opens)
    if closing is None:
        unclosed.add(tag)
        return opens
    return closing.start()


def _after(page: str, mark: str, at: int) -> int:
    """Return the place after the next ``mark``, or the end of the page."""
    found = page.find(mark, at)
    return len(page) if found < 0 else found + len(mark)


def _tidy(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _charset(content_type: str) -> str:
    named = _CHARSET.search(content_type)
    try:
        name = codecs.lookup(named[1]).name if named else "utf-8"
    except LookupError:
        return "utf-8"
    return name if _CHARSETS.fullmatch(name) else "utf-8"
