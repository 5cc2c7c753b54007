"""HTTP errors in each service's own status, shape and words, under neutral names.

``rate_limited`` ``quota`` ``overloaded`` ``server_error`` ``unavailable`` ``timeout`` ``overflow`` ``credentials``
``forbidden`` ``not_found`` ``too_large`` ``reasoning`` (a signature or an encrypted item is not taken) ``gateway``
(a proxy's HTML page) ``invalid``.
"""

from typing import Any

from roundelay_worker.testing.fake_llm.refusal import Format, Json, Refusal

QUOTA = "You exceeded your current quota, please check your plan and billing details."
_GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"

_ANTHROPIC: dict[str, tuple[int, str, str]] = {
    "rate_limited": (429, "rate_limit_error", "This request would exceed your organization's rate limit."),
    "quota": (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "server_error": (500, "api_error", "Internal server error"),
    "unavailable": (503, "api_error", "Service unavailable"),
    "timeout": (504, "timeout_error", "Request timed out"),
    "overflow": (400, "invalid_request_error", "prompt is too long: 3333404 tokens > 200000 maximum"),
    "credentials": (401, "authentication_error", "invalid x-api-key"),
    "forbidden": (403, "permission_error", "Your API key does not have permission to use the specified resource."),
    "not_found": (404, "not_found_error", "model: claude-x"),
    "too_large": (413, "request_too_large", "Request exceeds the maximum size"),
    "reasoning": (400, "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block"),
    "invalid": (400, "invalid_request_error", "messages: Input should be a valid list"),
}
_OPENAI: dict[str, tuple[int, str, str | None, str]] = {
    "rate_limited": (429, "requests", "rate_limit_exceeded", "Rate limit reached. Please try again in 1.2s."),
    "quota": (429, "insufficient_quota", "insufficient_quota", QUOTA),
    "overloaded": (503, "server_error", "server_is_overloaded", "Our servers are currently overloaded."),
    "server_error": (500, "server_error", "server_error", "The server had an error while processing your request."),
    "unavailable": (503, "server_error", None, "Service unavailable"),
    "timeout": (504, "server_error", None, "The request timed out"),
    "overflow": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "credentials": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "forbidden": (403, "invalid_request_error", "unsupported_country_region_territory", "Country not supported"),
    "not_found": (404, "invalid_request_error", "model_not_found", "The model does not exist."),
    "too_large": (413, "invalid_request_error", None, "Request too large"),
    "reasoning": (
        400,
        "invalid_request_error",
        "invalid_encrypted_content",
        "The encrypted content gAAA… could not be verified.",
    ),
    "invalid": (400, "invalid_request_error", None, "Invalid request"),
}
_GEMINI: dict[str, tuple[int, str, str]] = {
    "rate_limited": (429, "RESOURCE_EXHAUSTED", QUOTA),
    "quota": (429, "RESOURCE_EXHAUSTED", QUOTA),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "server_error": (500, "INTERNAL", "An internal error has occurred. Please retry."),
    "unavailable": (503, "UNAVAILABLE", "The service is currently unavailable."),
    "timeout": (504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
    "overflow": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1250074) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "credentials": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "forbidden": (403, "PERMISSION_DENIED", "The caller does not have permission"),
    "not_found": (404, "NOT_FOUND", "models/x is not found for API version v1beta"),
    "too_large": (413, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."),
    "reasoning": (400, "INVALID_ARGUMENT", "Corrupted thought signature."),
    "invalid": (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
}
_FINAL = frozenset({400, 401, 403, 404})
KINDS = frozenset(_ANTHROPIC) | {"gateway"}


def anthropic(rule: str, message: str, status: int = 400, kind: str = "invalid_request_error") -> Refusal:
    """Return an error as Anthropic words it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}
    return Refusal(rule, status, message, body, (("x-should-retry", "false"),) if status in _FINAL else ())


def openai(
    rule: str,
    message: str,
    param: str | None = None,
    code: str | None = None,
    *,
    status: int = 400,
    kind: str = "invalid_request_error",
) -> Refusal:
    """Return an error as OpenAI words it, for both of its formats."""
    return Refusal(rule, status, message, {"error": {"message": message, "type": kind, "param": param, "code": code}})


def gemini(
    rule: str, message: str, status: int = 400, word: str = "INVALID_ARGUMENT", details: list[Json] | None = None
) -> Refusal:
    """Return an error as Gemini words it."""
    error: Json = {"code": status, "message": message, "status": word}
    return Refusal(rule, status, message, {"error": {**error, "details": details} if details else error})


def named(wire: Format, kind: str, retry_after: float | None = None) -> Refusal:
    """Return the error of a neutral name; a delay goes where the service puts it."""
    if kind == "gateway":
        return Refusal(kind, 502, "Bad Gateway", _GATEWAY, (("content-type", "text/html"),))
    if wire == "gemini":
        status, word, message = _GEMINI[kind]
        return gemini(kind, message, status, word, _gemini_details(kind, retry_after))
    headers = () if retry_after is None else (("retry-after", f"{retry_after:g}"),)
    refusal = _anthropic_named(kind) if wire == "anthropic" else _openai_named(kind)
    return Refusal(kind, refusal.status, refusal.message, refusal.body, (*refusal.headers, *headers))


def _anthropic_named(kind: str) -> Refusal:
    status, word, message = _ANTHROPIC[kind]
    return anthropic(kind, message, status, word)


def _openai_named(kind: str) -> Refusal:
    status, word, code, message = _OPENAI[kind]
    return openai(kind, message, None, code, status=status, kind=word)


def _gemini_details(kind: str, retry_after: float | None) -> list[Json]:
    details: list[Json] = []
    if kind == "credentials":
        details.append(_typed("ErrorInfo", reason="API_KEY_INVALID", domain="googleapis.com"))
    if kind in {"quota", "rate_limited"}:
        per = "PerDay" if kind == "quota" else "PerMinute"
        quota = f"GenerateContentInputTokensPerModel{per}"
        details.append(_typed("QuotaFailure", violations=[{"quotaId": quota, "quotaValue": "1000000"}]))
    if retry_after is not None:
        details.append(_typed("RetryInfo", retryDelay=f"{retry_after:g}s"))
    return details


def _typed(name: str, **fields: Any) -> Json:
    return {"@type": f"type.googleapis.com/google.rpc.{name}", **fields}
