"""generateContent over HTTP, and the refusals of it that one change mends."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from roundelay_worker.loop.history import Turn, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience
from roundelay_worker.providers.failures import classify
from roundelay_worker.providers.google.provider import GoogleProvider
from roundelay_worker.providers.transport import HttpTransport

REQUEST = ModelRequest("Be brief.", (UserText("Hello"),))
FIRST = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}}]}
LAST = {"candidates": [{"content": {"role": "model", "parts": [{"text": "lo"}]}, "finishReason": "STOP"}]}
STREAM = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in (FIRST, LAST))
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


def asked(
    answering: Answering, request: ModelRequest = REQUEST, path: str = "", model: str = "gemini-3-pro"
) -> tuple[Turn, list[str]]:
    """Return the turn of a provider whose server answers like this, and the texts it showed."""

    async def ask() -> tuple[Turn, list[str]]:
        app = web.Application()
        app.router.add_post("/{tail:.*}", answering)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        shown: list[str] = []
        try:
            async with HttpTransport() as transport:
                base = f"http://127.0.0.1:{runner.addresses[0][1]}"
                provider = GoogleProvider(model, base + path, "secret-key", transport)
                return await provider.ask(request, shown.append, Patience(connect=5, idle=5)), shown
        finally:
            await runner.cleanup()

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1beta/"])
@pytest.mark.parametrize("model", ["gemini-3-pro", "models/gemini-3-pro"])
def test_a_request_goes_to_the_address_of_the_model_and_the_key_is_in_a_header_only(path, model):
    seen: list[Any] = []

    async def answering(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers.get("x-goog-api-key")))
        return web.Response(text=STREAM, content_type="text/event-stream")

    turn, shown = asked(answering, path=path, model=model)

    assert (turn.text, shown) == ("Hello", ["Hel", "lo"])
    assert seen == [("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", "secret-key")]


def test_without_streaming_the_reply_is_asked_for_and_read_in_one_piece():
    async def answering(request: web.Request) -> web.Response:
        assert request.path_qs == "/v1beta/models/gemini-3-pro:generateContent"
        return web.json_response(LAST)

    turn, _ = asked(answering, ModelRequest("", (UserText("Hello"),), repairs=frozenset({"no_stream"})))

    assert turn.text == "lo"


def test_a_server_that_answers_with_one_array_is_understood():
    async def answering(_: web.Request) -> web.Response:
        return web.json_response([FIRST, LAST])

    assert asked(answering)[0].text == "Hello"


def test_an_error_whose_type_says_stream_is_that_failure_and_shows_no_key():
    async def answering(_: web.Request) -> web.Response:
        error = {"code": 400, "message": "API key secret-key not valid.", "status": "INVALID_ARGUMENT"}
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
        body = json.dumps({"error": {**error, "details": details}})
        return web.Response(text=body, status=400, content_type="text/event-stream")

    with pytest.raises(ModelFailure) as caught:
        asked(answering)

    assert (caught.value.code, caught.value.retryable) == ("credentials", False)
    assert "secret-key" not in str(caught.value)


def test_native_parts_hold_for_the_model_and_the_address_without_its_version():
    provider = GoogleProvider("gemini-3-pro", "https://proxy.example/v1beta/", "k", HttpTransport())

    assert provider.origin == "google:gemini-3-pro@https://proxy.example"
    assert GoogleProvider("m", "", "k", HttpTransport()).origin == "google:m@https://generativelanguage.googleapis.com"


@pytest.mark.parametrize(
    ("sentence", "repair"),
    [
        ("Function call is missing a thought_signature in functionCall parts. This is required …", "drop_reasoning"),
        ("Invalid thought signature.", "drop_reasoning"),
        ("Corrupted thought signature.", "drop_reasoning"),
        ("Unable to submit request because Thought signature is not valid.", "drop_reasoning"),
        ("Thinking level is not supported for this model.", "drop:reasoning_effort"),
        ("Budget 0 is invalid. This model only works in thinking mode.", "drop:reasoning_effort"),
        ("The thinking budget (52428) is invalid.", "drop:reasoning_effort"),
        ("The model does not support setting thinking_budget to 0", "drop:reasoning_effort"),
        ("Thinking is not enabled for models/gemini-2.0-flash", "drop:reasoning_effort"),
        (
            "Unable to submit request because it has a maxOutputTokens value of 655360 but the supported range is …",
            "drop:max_output_tokens",
        ),
        ("The input token count (1250074) exceeds the maximum number of tokens allowed (1048576).", "shrink"),
        ("Please use a valid role: user, model.", ""),
    ],
)
def test_a_refusal_that_a_change_mends_names_the_change(sentence, repair):
    body = json.dumps({"error": {"code": 400, "message": sentence, "status": "INVALID_ARGUMENT"}}).encode()

    failure = classify(400, {}, body)

    assert (failure.repair, failure.retryable) == (repair, False)


def test_a_daily_quota_is_not_waited_for():
    details = [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]
    body = {"error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": details}}

    failure = classify(429, {}, json.dumps(body).encode())

    assert (failure.code, failure.retryable) == ("quota", False)
