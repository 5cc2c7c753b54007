"""The part of a provider's sentence that may be shown: never keys, never what a user wrote.

A sentence is shown only beside the request it answers, since what it may echo can be told from that alone.
"""

import re
from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 240
_SECRETS: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|AIza|key|Bearer|token)[-_ ][^\s'\",]{4,}|\b[A-Za-z0-9+/_\-*]{32,}=*|\?[^\s'\")]+|\S+@\S+",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\u201c[^\u201d]*\u201d|\u2018[^\u2019]*\u2019|«[^»]*»")
_SHORT: Final = 3
_ESCAPED: Final = re.compile(r"\\[nrt\"\\/]")
_PATH: Final = re.compile(r"[A-Za-z_]\w{0,40}(?:\.\w{1,40}|\[\w{1,40}\])*\Z")
_RUN: Final = 4
"""This many words of a sentence in a row that stand in the request too are taken for an echo."""


def safe_excerpt(sentence: str, sent: bytes) -> str:
    """Return what of the sentence may be shown, '' if it echoes the request or nothing is known of that."""
    if not sent or not sentence:
        return ""
    request = " ".join(_ESCAPED.sub(" ", sent.decode(errors="replace")).split())
    kept = _QUOTED.sub(lambda quote: _quoted(quote[0], request), " ".join(sentence.split()))
    kept = _SECRETS.sub("…", kept)[:_LONGEST]
    return "" if _echoes(kept, request) else " ".join(_word(word, request) for word in kept.split(" ")).strip()


def _quoted(quote: str, request: str) -> str:
    """Keep a quoted name: one that is a key or a path of the request, which no user writes."""
    name = quote[1:-1]
    known = f'"{name}":' in request or ("[" in name or "." in name)
    return quote if known and _PATH.match(name) else f"{quote[0]}…{quote[-1]}"


def _word(word: str, request: str) -> str:
    """Keep a word, unless it is one that stands in the request and that no grammar needs: a number, a foreign word."""
    bare = word.strip(".,:;()'\"`")
    plain = bare.isascii() and not any(letter.isdigit() for letter in bare)
    return word if plain or len(bare) < _SHORT or "[" in bare or bare not in request else "…"


def _echoes(sentence: str, request: str) -> bool:
    """Say whether the sentence may hold what a user wrote; one of a few words is not worth the doubt."""
    words = sentence.split(" ")
    runs = (" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))
    return len(words) < _RUN or any(run in request for run in runs)


def without(secrets: Iterable[str], text: str) -> str:
    """Return a text without any of these secrets, however short they are and wherever they stand."""
    for secret in secrets:
        text = text.replace(secret, "\u2026")
    return text
