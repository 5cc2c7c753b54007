import gzip
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundelay_worker.tools.builtin.pages import Inflater, NotReadable, is_readable, strip_html, to_text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>Hello <b>you</b>,<br>there</p><p>Bye</p>", "Hello you,\nthere\nBye"),
        ("<title>T</title><style>p { color: red }</style><SCRIPT>if (a < b) {}</Script >Text", "TText"),
        ("a<!-- <p>not this</p> -->b", "ab"),
        ("<!doctype html><?xml version='1'?>x", "x"),
        ("1 &lt; 2 &amp; &eacute;&#233;", "1 < 2 & éé"),
        ("if a < b and b <3", "if a < b and b <3"),
        ("<script>never closed <p>text</p>", "never closed\ntext"),
        ("<head><meta charset=utf-8><body>no closing head", "no closing head"),
        ("İ<script>x</script>y", "İy"),
        ("open <a href=", "open"),
        ("open <!-- comment", "open"),
        ("<ul><li>one<li>two</ul>", "one\ntwo"),
        ("  much \n\n\n   space  ", "much\nspace"),
        ("", ""),
    ],
)
def test_html_is_reduced_to_its_text(page, text):
    assert strip_html(page) == text


@pytest.mark.parametrize(
    "pattern",
    ["<", "<a ", "<!--", "<![", "</a", "<script>", "<svg", "<style", "<a x='", "&#", "&", "<!", "<?", '<a "', "<p>"],
)
def test_hostile_pages_take_linear_time(pattern):
    begun = time.monotonic()
    strip_html((pattern * 1_000_000)[:1_000_000])
    assert time.monotonic() - begun < 8


@given(st.text(alphabet="<>/!-pscript \"'&;a", max_size=300))
def test_any_page_gives_a_text_without_tags_that_were_whole(page):
    assert "<script>" not in strip_html(page.replace("<script>", "<script></script>"))


@pytest.mark.parametrize(
    ("content", "content_type", "text"),
    [
        ("é".encode(), "text/plain", "é"),
        ("é".encode("latin-1"), "text/plain; charset=ISO-8859-1", "é"),
        ("é".encode("utf-16"), 'text/plain; charset="utf-16"', "é"),
        ("é".encode("cp1252"), "text/plain;charset=windows-1252", "é"),
        ("é".encode(), "text/plain; charset=punycode", "é"),
        ("é".encode(), "text/plain; charset=idna", "é"),
        ("é".encode(), "text/plain; charset=hex", "é"),
        ("é".encode(), "text/plain; charset=no-such", "é"),
        (b"\xff\xfe!", "text/plain; charset=utf-8", "\ufffd\ufffd!"),
        (b"<p>x</p>", "text/html", "x"),
        (b"<p>x</p>", "application/xhtml+xml", "x"),
        (b"<p>x</p>", "text/plain", "<p>x</p>"),
    ],
)
def test_a_page_is_decoded_by_its_charset_or_as_utf_8(content, content_type, text):
    assert to_text(content, content_type) == text


@pytest.mark.parametrize(
    "kind", ["text/html; charset=x", "TEXT/plain", "application/json", "application/ld+json", "application/atom+xml"]
)
def test_text_is_readable(kind):
    assert is_readable(kind)


@pytest.mark.parametrize(
    "kind", ["", "image/png", "application/octet-stream", "application/pdf", "application/jsonp", "video/text"]
)
def test_all_else_is_not(kind):
    assert not is_readable(kind)


@given(
    st.binary(max_size=2000),
    st.integers(1, 3000),
    st.sampled_from(["", "gzip", "deflate", "identity", "GZIP"]),
    st.integers(1, 50),
)
def test_inflating_in_pieces_gives_the_content_up_to_the_limit(content, limit, encoding, piece):
    wire = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding.lower(), bytes)(content)
    inflater = Inflater(encoding, limit)
    for start in range(0, len(wire), piece):
        inflater.feed(wire[start : start + piece])
    assert bytes(inflater.content) == content[: min(limit, len(content))]
    assert inflater.full == (len(content) >= limit)


def test_a_bomb_is_inflated_to_the_limit_and_no_further():
    inflater = Inflater("gzip", 100_000)
    inflater.feed(gzip.compress(bytes(30_000_000)))
    assert len(inflater.content) == 100_000


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_other_compressions_are_refused(encoding):
    with pytest.raises(NotReadable):
        Inflater(encoding, 10)


def test_broken_compression_is_refused():
    with pytest.raises(NotReadable):
        Inflater("gzip", 10).feed(b"not gzip at all")
