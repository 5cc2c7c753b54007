"""The part of a provider's sentence that may be shown: never keys, never what a user wrote.

A sentence is shown only beside the request it answers, since what it may echo can be told from that alone.
"""

import re
from typing import Final

_LONGEST: Final = 240
_SECRETS: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|AIza|key|Bearer|token)[-_ ][^\s'\",]{4,}|\b[A-Za-z0-9+/_\-*]{32,}=*|\?[^\s'\")]+|\S+@\S+",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\u201c[^\u201d]*\u201d|\u2018[^\u2019]*\u2019|«[^»]*»")
_PATH: Final = re.compile(r"[A-Za-z_]\w{0,40}(?:\.\w{1,40}|\[\w{1,40}\])*\Z")
_RUN: Final = 4
"""This many words of a sentence in a row that stand in the request too are taken for an echo."""


def safe_excerpt(sentence: str, sent: bytes) -> str:
    """Return what of the sentence may be shown, '' if it echoes the request or nothing is known of that."""
    if not sent or not sentence:
        return ""
    request = sent.decode(errors="replace")
    kept = _QUOTED.sub(lambda quote: _quoted(quote[0], request), " ".join(sentence.split()))
    kept = _SECRETS.sub("…", kept)[:_LONGEST]
    return "" if _echoes(kept, request) else kept.strip()


def _quoted(quote: str, request: str) -> str:
    """Keep a quoted name: one that is a key or a path of the request, which no user writes."""
    name = quote[1:-1]
    known = f'"{name}":' in request or ("[" in name or "." in name)
    return quote if known and _PATH.match(name) else f"{quote[0]}…{quote[-1]}"


def _echoes(sentence: str, request: str) -> bool:
    words = sentence.split(" ")
    runs = (" ".join(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1)))
    return any(len(run) > 1 and run in request for run in runs) if len(words) >= _RUN else False
