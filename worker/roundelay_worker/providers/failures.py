"""The one classifier of what providers answer instead of a turn.

Types and codes are read before sentences, except where a sentence is all that tells an overflow, spent
credit or a repair from the rest. ``x-should-retry`` beats every "perhaps later". The sentence of a failure
is ours; of the provider's own, what ``safe_excerpt`` lets through is its ``detail``, for operators alone.
"""

import re
from collections.abc import Mapping
from typing import Final

from roundelay_worker.loop.history import Finish, Turn
from roundelay_worker.providers.base import FailureCode, ModelFailure
from roundelay_worker.providers.delays import wished_delay
from roundelay_worker.providers.excerpt import safe_excerpt
from roundelay_worker.providers.repairs import is_overflow, is_too_large, repair_for
from roundelay_worker.providers.reported import Reported, read_body, read_error


class EndsAsTurn(ModelFailure):
    """An error that tells how the turn ended rather than that none came; the transport returns its ``turn``.

    So ends a reply that the server itself cannot read (``malformed``), and a request that a content filter
    declined (``refused``).
    """

    def __init__(self, finish: Finish, note: str) -> None:
        super().__init__("provider_error", "The model's turn is not usable.", retryable=finish == "malformed")
        self.turn = Turn(finish=finish, note=note)


Verdict = tuple[FailureCode, bool]
"""The code, and whether the same request may work later."""

_BY_WORD: Final[dict[str, Verdict]] = {
    "insufficient_quota": ("quota", False),
    "credit_balance_exhausted": ("quota", False),
    "billing_error": ("quota", False),
    "billing_hard_limit_reached": ("quota", False),
    "billing_not_active": ("quota", False),
    "exceeded_current_quota_error": ("quota", False),
    "usage_limit_reached": ("quota", False),
    "usage_limit_exceeded": ("quota", False),
    "authentication_error": ("credentials", False),
    "invalid_api_key": ("credentials", False),
    "api_key_invalid": ("credentials", False),
    "unauthenticated": ("credentials", False),
    "permission_error": ("credentials", False),
    "permission_denied": ("credentials", False),
    "model_not_found": ("model_not_found", False),
    "deploymentnotfound": ("model_not_found", False),
    "rate_limit_error": ("rate_limited", True),
    "rate_limit_exceeded": ("rate_limited", True),
    "rate_limit_reached_error": ("rate_limited", True),
    "slow_down": ("rate_limited", True),
    "too_many_requests": ("rate_limited", True),
    "resource_exhausted": ("rate_limited", True),
    "overloaded_error": ("model_overloaded", True),
    "engine_overloaded_error": ("model_overloaded", True),
    "server_is_overloaded": ("model_overloaded", True),
    "unavailable": ("model_overloaded", True),
}
"""What a word says whatever the status is; the first that applies decides."""

_ENDINGS: Final[dict[Finish, frozenset[str]]] = {
    "malformed": frozenset({"tool_use_failed"}),
    "refused": frozenset(
        {"invalid_prompt", "bio_policy", "content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
    ),
}

_BY_STATUS: Final[dict[int, Verdict]] = {
    401: ("credentials", False),
    402: ("quota", False),
    403: ("credentials", False),
    408: ("provider_error", True),
    409: ("provider_error", True),
    425: ("provider_error", True),
    429: ("rate_limited", True),
    498: ("model_overloaded", True),
    499: ("provider_error", True),
    501: ("provider_error", False),
    502: ("model_overloaded", True),
    503: ("model_overloaded", True),
    504: ("model_overloaded", True),
    505: ("provider_error", False),
    529: ("model_overloaded", True),
}

_SENTENCES: Final[dict[FailureCode, str]] = {
    "model_overloaded": "The model server is overloaded",
    "rate_limited": "The model server limits the rate of requests",
    "quota": "The account's quota or credit at the model provider is used up",
    "context_overflow": "The conversation is longer than the model can read",
    "request_too_large": "The request is larger than the model server accepts",
    "bad_request": "The model server refused the request",
    "credentials": "The model server refused the API key",
    "model_not_found": "The model server does not know this model",
    "tools_unsupported": "This model or its server does not support tools",
    "provider_error": "The model server failed",
}

_SPENT: Final = re.compile(
    r"per[_ -]?day\b|insufficient (?:balance|credit|quota|funds)|credit balance|requires more credits"
    r"|credits? (?:is|are) (?:too low|exhausted)|spend(?:ing)? limit"
    r"|usage limit (?:has been |was )?(?:reached|exceeded)|(?:reached|exceeded|hit) your (?:usage|weekly|monthly) limit"
    r"|(?:weekly|monthly)[^.]{0,30} limit (?:reached|exhausted)",
    re.IGNORECASE,
)
_NO_TOOLS: Final = re.compile(
    r"does(?: not|n't) support (?:tools|tool use|tool calling|function call)|support tool use"
    r"|tool choice requires --enable|tool use is not supported|function calling is not (?:enabled|supported)"
    r"|(?:tools|functions?) (?:is|are) not supported",
    re.IGNORECASE,
)
_BAD_KEY: Final = re.compile(r"(?:incorrect|invalid) api key|api key not valid|no auth credentials", re.IGNORECASE)
_UNREADABLE_CALL: Final = re.compile(r"failed to parse tool call arguments", re.IGNORECASE)
_REPAIRABLE: Final = frozenset({None, 400, 404, 405, 422, 501})
_OVERFLOWING: Final = frozenset({None, 400, 413, 422, 500})


def classify(status: int, headers: Mapping[str, str], body: bytes, sent: bytes = b"") -> ModelFailure:
    """Return the failure that a reply with an error status stands for.

    ``sent`` is the request's body: with it operators may be shown the provider's own sentence, as far as it echoes
    none of it.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    return _failure(read_body(body), status, lowered, sent)


def classify_error(error: object, status: int | None = None) -> ModelFailure:
    """Return the failure that an error object inside a stream, or under status 200, stands for."""
    reported = read_error(error)
    return _failure(reported, reported.status if status in {None, 200} else status, {}, b"")


def _failure(reported: Reported, status: int | None, headers: Mapping[str, str], sent: bytes) -> ModelFailure:
    for finish, words in _ENDINGS.items():
        if words & reported.words:
            return EndsAsTurn(finish, min(words & reported.words))
    repair = repair_for(reported) if status in _REPAIRABLE else ""
    code, later = _verdict(reported, status)
    if code in {"context_overflow", "request_too_large"}:
        repair = "shrink"
    elif code not in {"bad_request", "model_not_found", "provider_error"}:
        repair = ""
    wish = headers.get("x-should-retry", "").lower()
    later = wish == "true" if wish in {"true", "false"} else later
    message, detail = _message(code, reported, status), safe_excerpt(reported.text, sent)
    delay = wished_delay(headers, reported)
    return ModelFailure(code, message, retryable=later, delay=delay, repair=repair, detail=detail)


def _verdict(reported: Reported, status: int | None) -> Verdict:
    """Judge from the certain to the general; the order is the rule."""
    if _UNREADABLE_CALL.search(reported.text):
        return "provider_error", False
    if status in _OVERFLOWING and is_overflow(reported):
        return "context_overflow", False
    if status == 413 or is_too_large(reported):  # noqa: PLR2004
        return "request_too_large", False
    if status in {400, 402, 403, 429, None} and _is_spent(reported):
        return "quota", False
    by_word = next((verdict for word, verdict in _BY_WORD.items() if word in reported.words), None)
    return by_word or _by_status(reported, status)


def _by_status(reported: Reported, status: int | None) -> Verdict:
    if status is None:
        return ("bad_request", False) if "invalid_request_error" in reported.words else ("provider_error", True)
    if status in {400, 404, 405, 422, 501} and _NO_TOOLS.search(reported.text):
        return "tools_unsupported", False
    if status in {400, 422} and _BAD_KEY.search(reported.text):
        return "credentials", False
    if status == 404 and "model" in reported.text.lower():  # noqa: PLR2004
        return "model_not_found", False
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ("provider_error", True) if status >= 500 else ("bad_request", False)  # noqa: PLR2004


def _is_spent(reported: Reported) -> bool:
    if _SPENT.search(reported.text):
        return True
    violations = [v for detail in reported.details for v in detail.get("violations") or () if isinstance(v, dict)]
    return any("perday" in str(violation.get("quotaId", "")).lower() for violation in violations)


def _message(code: FailureCode, reported: Reported, status: int | None) -> str:
    where = ", ".join(part for part in (str(status or ""), reported.code, reported.shown_param) if part)
    sentence = _SENTENCES.get(code, "The model server failed")
    if code == "bad_request" and status == 404:  # noqa: PLR2004
        sentence = "The model server has no such address; check the base URL"
    return f"{sentence} ({where})." if where else f"{sentence}."
