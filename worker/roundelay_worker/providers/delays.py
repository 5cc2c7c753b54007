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
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def wished_delay(headers: Mapping[str, str], reported: Reported) -> float | None:
    """Return the server's wish in seconds, or None; ``headers`` have lower-case names."""
    wishes = (
        _number(headers.get("retry-after-ms"), 0.001),
        _retry_after(headers.get("retry-after")),
        _typed(reported),
        _from_sentence(reported.text),
    )
    return next((wish for wish in wishes if wish is not None), None)


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
    if found := _SENTENCE.search(text):
        return duration(found[1])
    if found := _SENTENCE_SECONDS.search(text):
        return float(found[1])
    return None
