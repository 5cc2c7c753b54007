"""How long a server wishes us to wait, wherever it says so: headers, typed details, or its sentence."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Final

from roundelay_worker.providers.reported import Reported

_SENTENCE: Final = re.compile(
    r"(?:try again|retry|wait)\b.{0,24}?\b((?:\d+(?:\.\d+)?(?:ms|h|m|s) ?)+)(?:\W|$)", re.IGNORECASE
)
_SENTENCE_SECONDS: Final = re.compile(r"(?:try again|retry|wait)\b.{0,24}?\b(\d+(?:\.\d+)?) ?sec", re.IGNORECASE)
_WORDS: Final = re.compile(
    r"(?:try again|retry|wait|resets?|renews?|available)\b.{0,40}?\b((?:\d+ ?(?:days?|hours?|minutes?),? ?(?:and )?)+)",
    re.IGNORECASE,
)
_WORD_PART: Final = re.compile(r"(\d+) ?(day|hour|minute)", re.IGNORECASE)
_LONG_UNITS: Final = {"day": 86_400.0, "hour": 3_600.0, "minute": 60.0}
_DATE: Final = re.compile(
    r"(?:resets?|until|again|available)\b.{0,40}?"
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def wished_delay(headers: Mapping[str, str], reported: Reported) -> float | None:
    """Return the server's wish in seconds, the longest of several, or None; ``headers`` have lower-case names."""
    wishes = (
        _number(headers.get("retry-after-ms"), 0.001),
        _retry_after(headers.get("retry-after")),
        _typed(reported),
        reported.wait,
        _from_sentence(reported.text),
    )
    return max((wish for wish in wishes if wish is not None), default=None)


def duration(text: str) -> float | None:
    """Return the seconds of a duration such as ``48s``, ``130ms`` or ``6m0s``."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _number(text: str | None, unit: float) -> float | None:
    try:
        seconds = float(text or "") * unit
    except ValueError:
        return None
    return seconds if isfinite(seconds) and seconds >= 0 else None


def _retry_after(text: str | None) -> float | None:
    if text is None or (seconds := _number(text, 1.0)) is not None:
        return None if text is None else seconds
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return duration(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _typed(reported: Reported) -> float | None:
    for detail in reported.details:
        if isinstance(wish := detail.get("retryDelay"), str):
            return duration(wish)
    return None


def _from_sentence(text: str) -> float | None:
    return max((wish for wish in (_told(text), _in_words(text), _at_a_date(text)) if wish is not None), default=None)


def _in_words(text: str) -> float | None:
    """Return the seconds of a wait such as "in 16 days" or "after 5 hours 3 minutes"."""
    found = _WORDS.search(text)
    if found is None:
        return None
    return sum(float(number) * _LONG_UNITS[unit.lower()] for number, unit in _WORD_PART.findall(found[1]))


def _at_a_date(text: str) -> float | None:
    """Return the seconds until a moment that the sentence names; one without a zone is taken for UTC."""
    found = _DATE.search(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found[1].replace(" ", "T"))
    except ValueError:
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def _told(text: str) -> float | None:
    if found := _SENTENCE.search(text):
        return duration(found[1])
    if found := _SENTENCE_SECONDS.search(text):
        return float(found[1])
    return None
