"""What providers answer instead of a turn, classified once for all formats."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from roundelay_worker.providers.base import ModelFailure
from roundelay_worker.providers.failures import EndsAsTurn, classify, classify_error


def judged(status: int, body: Any = "", **headers: str) -> ModelFailure:
    payload = body if isinstance(body, str) else json.dumps(body)
    return classify(status, {name.replace("_", "-"): value for name, value in headers.items()}, payload.encode())


def error(message: str = "", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


STATUSES = [
    (400, "bad_request", False),
    (401, "credentials", False),
    (402, "quota", False),
    (403, "credentials", False),
    (404, "bad_request", False),
    (405, "bad_request", False),
    (408, "provider_error", True),
    (409, "provider_error", True),
    (413, "request_too_large", False),
    (422, "bad_request", False),
    (425, "provider_error", True),
    (429, "rate_limited", True),
    (498, "model_overloaded", True),
    (499, "provider_error", True),
    (500, "provider_error", True),
    (501, "provider_error", False),
    (502, "model_overloaded", True),
    (503, "model_overloaded", True),
    (504, "model_overloaded", True),
    (520, "provider_error", True),
    (524, "provider_error", True),
    (529, "model_overloaded", True),
    (302, "bad_request", False),
]


@pytest.mark.parametrize(("status", "code", "retryable"), STATUSES)
@pytest.mark.parametrize("body", ["", "<html>secret page</html>", "no json", "[]", "null", "7"])
def test_a_status_alone_is_enough(status: int, code: str, retryable: bool, body: str) -> None:
    failure = judged(status, body)

    assert (failure.code, failure.retryable) == (code, retryable)
    assert "secret" not in failure.message


BODIES = [
    (429, error(type="insufficient_quota", code="insufficient_quota"), "quota", False),
    (429, error(code="credit_balance_exhausted"), "quota", False),
    (429, error(code="billing_hard_limit_reached"), "quota", False),
    (429, error("Rate limit reached", type="tokens", code="rate_limit_exceeded"), "rate_limited", True),
    (429, error("Rate limit exceeded: free-models-per-day"), "quota", False),
    (400, error("Your credit balance is too low", type="invalid_request_error"), "quota", False),
    (400, {"type": "error", "error": {"type": "overloaded_error"}}, "model_overloaded", True),
    (503, error(code="server_is_overloaded"), "model_overloaded", True),
    (404, error("The model `x` does not exist", code="model_not_found"), "model_not_found", False),
    (400, error(code="model_not_found"), "model_not_found", False),
    (404, {"object": "error", "message": "The model `x` does not exist.", "code": 404}, "model_not_found", False),
    (404, error("model 'x' not found, try pulling it", type="api_error"), "model_not_found", False),
    (404, {"detail": "Not Found"}, "bad_request", False),
    (404, error("No endpoints found that support tool use."), "tools_unsupported", False),
    (400, error("registry/x does not support tools", type="api_error"), "tools_unsupported", False),
    (400, error("Function calling is not enabled for models/gemma-3"), "tools_unsupported", False),
    (400, error('"auto" tool choice requires --enable-auto-tool-choice'), "tools_unsupported", False),
    (
        400,
        {"code": "Client specified an invalid argument", "error": "Incorrect API key provided"},
        "credentials",
        False,
    ),
    (400, {"error": {"status": "X", "details": [{"reason": "API_KEY_INVALID"}]}}, "credentials", False),
    (400, [{"error": {"code": 400, "message": "x", "status": "INVALID_ARGUMENT"}}], "bad_request", False),
    (500, error("Failed to parse tool call arguments as JSON: [json.exception"), "provider_error", False),
    (
        429,
        error("Request too large for gpt-x on tokens per min", code="rate_limit_exceeded"),
        "request_too_large",
        False,
    ),
    (413, "", "request_too_large", False),
    (400, {"detail": [{"type": "missing", "loc": ["body", "x"], "msg": "Field required"}]}, "bad_request", False),
]


@pytest.mark.parametrize(("status", "body", "code", "retryable"), BODIES)
def test_types_and_codes_say_more_than_the_status(status: int, body: Any, code: str, retryable: bool) -> None:
    failure = judged(status, body)

    assert (failure.code, failure.retryable) == (code, retryable)


OVERFLOWS = [
    "prompt is too long: 3333404 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "Your input exceeds the context window of this model.",
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000",
    "The input token count (1250074) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size, try increasing it",
    "The number of tokens to keep from the initial prompt is greater than the context length",
    "Your request exceeded model token limit: 8192 (requested: 9000)",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "prompt too long; exceeded max context length by 5 tokens",
    "Input is too long for requested model.",
    "Range of input length should be [1, 30720]",
]


@pytest.mark.parametrize("sentence", OVERFLOWS)
def test_every_way_of_saying_that_the_context_is_full_asks_for_shrinking(sentence: str) -> None:
    failure = judged(400, error(sentence))

    assert (failure.code, failure.retryable, failure.repair) == ("context_overflow", False, "shrink")


def test_a_full_context_is_told_by_its_code_too() -> None:
    assert judged(400, error(code="context_length_exceeded")).code == "context_overflow"


REPAIRS = [
    (error(code="invalid_encrypted_content"), "drop_reasoning"),
    (error("messages.3.content.0: Invalid `signature` in `thinking` block"), "drop_reasoning"),
    (error("Corrupted thought signature."), "drop_reasoning"),
    (error("Item 'rs_1' of type 'reasoning' was provided without its required following item."), "drop_reasoning"),
    (error("Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."), "drop_reasoning"),
    (error("'messages.1.reasoning_content' : property 'reasoning_content' is unsupported"), "drop_reasoning"),
    (error("The reasoning_content in the thinking mode must be passed back to the API."), "add:reasoning_content"),
    (error("Unsupported parameter: 'temperature' is not supported with this model."), "drop:temperature"),
    (error(code="unsupported_parameter", param="temperature"), "drop:temperature"),
    (error(code="unknown_parameter", param="reasoning.effort"), "drop:reasoning_effort"),
    (error("This model does not support effort level 'xhigh'."), "drop:reasoning_effort"),
    (error("Unrecognized request argument supplied: prompt_cache_key"), "drop:prompt_cache_key"),
    (error("Unknown parameter: 'tools[0].strict'."), "drop:strict"),
    ({"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}, "drop:stream_options"),
    (error("stream_options: Extra inputs are not permitted"), "drop:stream_options"),
    (error("Encrypted content is not supported with this model.", param="include"), "drop:include"),
    (
        error("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
        "rename:max_tokens",
    ),
    (error("max_tokens is too large: 8192. This model supports at most 4096"), "drop:max_output_tokens"),
    (error("Unsupported value: 'messages[0].role' does not support 'system' with this model."), "role:system"),
    (error("Unsupported value: 'messages[0].role' does not support 'developer' with this model."), "role:user"),
    (error("Unexpected role 'user' after role 'tool'"), "role:bridge"),
    (error("Tool call id was call_x but must be a-z, A-Z, 0-9, with a length of 9."), "ids:nine"),
    (error("invalid message content type: <nil>"), "content:empty"),
    (error("Your organization must be verified to stream this model.", param="stream"), "no_stream"),
    (error("Streaming is not supported for this model"), "no_stream"),
    (error("Unsupported parameter: 'messages'"), ""),
    (error("something else"), ""),
]


@pytest.mark.parametrize(("body", "repair"), REPAIRS)
def test_a_refused_request_is_mended_by_the_one_change_that_it_names(body: Any, repair: str) -> None:
    failure = judged(400, body)

    assert (failure.repair, failure.retryable) == (repair, False)


def test_nothing_is_mended_where_waiting_or_a_person_must_help() -> None:
    assert judged(429, error("'temperature' is not supported", code="rate_limit_exceeded")).repair == ""
    assert judged(401, error("Unsupported parameter: 'temperature'")).repair == ""
    assert judged(400, error("Unsupported parameter: 'temperature'", code="invalid_api_key")).repair == ""


def test_x_should_retry_wins() -> None:
    assert not judged(503, "", x_should_retry="false").retryable
    assert judged(400, "", x_should_retry="true").retryable


@pytest.mark.parametrize(
    ("headers", "body", "delay"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 9.0),
        ({"retry-after-ms": "0", "retry-after": "1"}, "", 1.0),
        ({"retry-after": "0"}, "", 0.0),
        ({}, {"error": {"type": "usage_limit_reached", "resets_in_seconds": 1_382_400}}, 1_382_400.0),
        ({}, error("Usage limit reached. Please try again in 16 days."), 1_382_400.0),
        ({}, error("Try again in 2 hours and 3 minutes"), 7_380.0),
        ({"Retry-After": "2.5"}, "", 2.5),
        ({"retry-after": "6m0s"}, "", 360.0),
        ({}, {"error": {"details": [{"retryDelay": "48s"}], "message": "Please retry in 48.9s."}}, 48.9),
        ({}, error("Please retry in 48.939935699s."), 48.939935699),
        ({}, error("Rate limit reached. Please try again in 1m2.5s. Visit"), 62.5),
        ({}, error("Please try again in 130ms."), 0.13),
        ({}, error("Retry after 20 seconds"), 20.0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-5"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({}, "", None),
    ],
)
def test_the_servers_wish_is_read_wherever_it_stands(headers: dict[str, str], body: Any, delay: float | None) -> None:
    payload = body if isinstance(body, str) else json.dumps(body)

    assert classify(429, headers, payload.encode()).delay == delay


def test_a_date_to_retry_after_is_a_delay_from_now_and_never_negative() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=30)

    soon = classify(503, {"retry-after": format_datetime(moment, usegmt=True)}, b"").delay

    assert soon is not None
    assert 25 < soon <= 31
    assert classify(503, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"").delay == 0.0


def test_a_quota_for_the_day_is_not_waited_for_but_one_for_the_minute_is() -> None:
    def quota(name: str) -> ModelFailure:
        details = [{"violations": [{"quotaId": name}]}, {"retryDelay": "7s"}]
        return judged(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})

    assert (quota("RequestsPerDayPerModel").code, quota("RequestsPerDayPerModel").retryable) == ("quota", False)
    assert (quota("TokensPerMinute").code, quota("TokensPerMinute").delay) == ("rate_limited", 7.0)


@pytest.mark.parametrize(
    ("body", "code", "retryable"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "model_overloaded", True),
        ({"type": "error", "code": "server_error", "message": "x", "param": None}, "provider_error", True),
        ({"error": {"code": 502, "message": "Provider returned error"}}, "model_overloaded", True),
        ({"error": {"code": 429, "message": "slow"}}, "rate_limited", True),
        ({"error": {"code": 402, "message": "Insufficient credits"}}, "quota", False),
        ({"error": {"code": "402", "message": "x"}}, "quota", False),
        ({"error": {"type": "invalid_request_error", "message": "x"}}, "bad_request", False),
        ({"code": "rate_limit_exceeded", "message": "x"}, "rate_limited", True),
        ({"error": "who knows"}, "provider_error", True),
        ("who knows", "provider_error", True),
        (None, "provider_error", True),
    ],
)
def test_an_error_inside_a_stream_is_judged_by_the_same_rules(body: object, code: str, retryable: bool) -> None:
    failure = classify_error(body)

    assert (failure.code, failure.retryable) == (code, retryable)


@pytest.mark.parametrize(
    ("body", "finish"),
    [
        (error(code="content_filter"), "refused"),
        (error(code="x", innererror={"code": "ResponsibleAIPolicyViolation"}), "refused"),
        (error(code="invalid_prompt"), "refused"),
        (error(code="tool_use_failed", failed_generation="<x>"), "malformed"),
    ],
)
def test_what_says_how_the_turn_ended_carries_that_turn(body: Any, finish: str) -> None:
    failure = judged(400, body)

    assert isinstance(failure, EndsAsTurn)
    assert failure.turn.finish == finish


SENT = (
    b'{"model":"gpt-x","messages":[{"role":"user","content":"my card is 4929 1234 and nobody knows"}],"temperature":2}'
)


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("Unsupported value: 'temperature' must be below 2.", "'temperature' must be below 2."),
        ("Invalid schema at 'tools[0].parameters': boom", "'tools[0].parameters'"),
    ],
)
def test_a_sentence_that_helps_to_mend_a_request_is_for_operators_alone(sentence: str, shown: str) -> None:
    failure = classify(400, {}, json.dumps(error(sentence)).encode(), SENT)
    assert shown in failure.detail
    assert shown not in failure.message


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached"}}),
        (429, {"error": {"code": "1308", "message": "Usage limit reached. It resets at 2099-01-01 10:00:00"}}),
        (429, {"error": {"message": "You have hit your weekly limit.", "resets_at": 4_070_908_800}}),
    ],
)
def test_a_usage_limit_is_no_rate_limit(status: int, body: dict[str, Any]) -> None:
    failure = judged(status, body)
    assert (failure.code, failure.retryable) == ("quota", False)


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        ("UnsupportedParamsError: vertex does not support parameters: ['prompt_cache_key']", "drop:prompt_cache_key"),
        ('Unknown parameters: ["store", "user"]', "drop:store"),
        ("Unsupported params {'parallel_tool_calls'}", "drop:parallel_tool_calls"),
    ],
)
def test_a_list_of_refused_parameters_is_read_one_by_one(text: str, repair: str) -> None:
    assert judged(400, error(text)).repair == repair


@pytest.mark.parametrize(
    "sentence",
    [
        "Bad input: my card is 4929 1234 and nobody knows",
        "Bad input 'hunter2'",
        "The value 4929 is not allowed here at all",
        "Two lines: my card is 4929 1234 and",
        "hunter2",
        'Value "4929 1234" is odd',
        "Key sk-proj-abcdefghijklmnop is not active",
        "See https://host/path?key=hunter2 for more",
        "Write to hunter2@example.com",
    ],
)
@pytest.mark.parametrize("sent", [SENT, b""])
def test_neither_keys_nor_users_words_are_shown(sentence: str, sent: bytes) -> None:
    message = classify(400, {}, json.dumps(error(sentence)).encode(), sent).message

    assert not any(secret in message for secret in ("4929", "hunter2", "abcdefgh", "nobody"))


def test_a_message_is_short_and_names_code_and_parameter() -> None:
    message = classify(
        400, {}, json.dumps(error("no " * 5000, code="bad_thing", param="tools[0].name")).encode(), SENT
    ).message

    assert "bad_thing" in message
    assert "tools[0].name" in message
    assert len(message) < 400
