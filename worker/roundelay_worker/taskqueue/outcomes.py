"""How the end of a round looks to Celery, and so in Flower: a message that failed is no success."""

import json
from dataclasses import asdict
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import Retry, Terminated

from roundelay_worker.engine.session import Told

Outcome = tuple[int, Any, float]
"""What Celery's callback of a task takes: whether it failed, its result or error, its seconds."""


class MessageFailed(Exception):
    """A message ended as ``failed``; the text is its error's code."""


def outcome_of(told: Told | None, seconds: float) -> Outcome:
    """Return FAILURE for a message that failed, REVOKED for a cancelled one, RETRY for a round that comes again.

    All else is a SUCCESS, and its result a record of states and counts.
    """
    if told is None:
        return 0, None, seconds
    if told.state == "failed":
        return 1, _raised(MessageFailed(told.code)), seconds
    if told.state == "cancelled":
        return 1, _raised(Terminated("cancelled")), seconds
    if told.state == "retrying":
        return 1, _raised(Retry(told.code, MessageFailed(told.code or "later"))), seconds
    return 0, json.dumps({name: value for name, value in asdict(told).items() if value}), seconds


def _raised(exc: Exception) -> ExceptionInfo:
    try:
        raise exc  # noqa: TRY301 - an ExceptionInfo is made of one that was raised
    except Exception:  # noqa: BLE001
        info = ExceptionInfo()
    info.exception = exc  # without the lines of code in its text
    return info
