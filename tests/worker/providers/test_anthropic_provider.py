"""The Messages API over HTTP, and the refusals of it that one change mends."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from roundelay_worker.loop.history import Turn, UserText
from roundelay_worker.providers.anthropic.provider import AnthropicProvider
from roundelay_worker.providers.anthropic.reply import MessageAssembly
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience
from roundelay_worker.providers.failures import classify
from roundelay_worker.providers.reading import BodyReader
from roundelay_worker.providers.transport import HttpTransport

REQUEST = ModelRequest("Be brief.", (UserText("Hello"),))
EVENTS = [
    {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]
STREAM = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS)
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


def asked(answering: Answering, request: ModelRequest = REQUEST, path: str = "") -> tuple[Turn, list[str]]:
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
                provider = AnthropicProvider("claude", base + path, "secret-key", transport)
                return await provider.ask(request, shown.append, Patience(connect=5, idle=5)), shown
        finally:
            await runner.cleanup()

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_a_request_goes_to_the_address_with_key_and_version_in_headers_and_its_text_is_shown(path):
    seen: list[Any] = []

    async def answering(request: web.Request) -> web.Response:
        seen.append((request.path_qs, dict(request.headers), await request.json()))
        return web.Response(text=STREAM, content_type="text/event-stream")

    turn, shown = asked(answering, path=path)

    (address, headers, body) = seen[0]
    assert (turn.text, shown) == ("Hello", ["Hel", "lo"])
    assert address == "/v1/messages"
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("secret-key", "2023-06-01")
    assert "authorization" not in {name.lower() for name in headers}
    assert (body["model"], body["stream"]) == ("claude", True)


def test_without_streaming_the_reply_is_read_in_one_piece():
    async def answering(request: web.Request) -> web.Response:
        assert (await request.json())["stream"] is False
        return web.json_response({"content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"})

    turn, _ = asked(answering, ModelRequest("", (UserText("Hello"),), repairs=frozenset({"no_stream"})))

    assert (turn.text, turn.finish) == ("Hello", "complete")


def test_an_error_for_a_request_of_a_stream_is_that_failure_and_shows_no_key():
    async def answering(_: web.Request) -> web.Response:
        error = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key secret-key"}}
        return web.json_response(error, status=401)

    with pytest.raises(ModelFailure) as caught:
        asked(answering)

    assert (caught.value.code, caught.value.retryable) == ("credentials", False)
    assert "secret-key" not in str(caught.value)


def test_the_servers_wish_is_kept_when_it_is_overloaded():
    async def answering(_: web.Request) -> web.Response:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        return web.json_response(error, status=529, headers={"retry-after": "7"})

    with pytest.raises(ModelFailure) as caught:
        asked(answering)

    assert (caught.value.code, caught.value.retryable, caught.value.delay) == ("model_overloaded", True, 7.0)


def test_native_blocks_hold_for_the_model_and_the_address_without_its_version():
    provider = AnthropicProvider("claude", "https://proxy.example/v1/", "k", HttpTransport())

    assert provider.origin == "anthropic:claude@https://proxy.example"
    assert AnthropicProvider("claude", "", "k", HttpTransport()).origin == "anthropic:claude@https://api.anthropic.com"


# Bodies in one piece


def test_an_error_as_the_body_of_a_success_is_that_failure():
    reader = BodyReader(MessageAssembly(REQUEST, "anthropic:claude@x"))
    reader.feed(b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow"}}')

    with pytest.raises(ModelFailure) as caught:
        reader.finish()

    assert caught.value.code == "rate_limited"


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"<html>", b'{"content": null}', b'{"content": "Hello"}', b'{"content": [{}]}']
)
def test_a_body_that_is_no_message_can_be_asked_for_again(body):
    reader = BodyReader(MessageAssembly(REQUEST, "anthropic:claude@x"))
    reader.feed(body)

    with pytest.raises(ModelFailure) as caught:
        reader.finish()

    assert (caught.value.code, caught.value.retryable) == ("provider_error", True)


# Refusals that a change mends


@pytest.mark.parametrize(
    ("sentence", "repair"),
    [
        ("messages.1.content.0: Invalid `signature` in `thinking` block", "drop_reasoning"),
        (
            "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest message cannot be modified.",
            "drop_reasoning",
        ),
        (
            "messages.129.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When",
            "drop_reasoning",
        ),
        ("`temperature` is deprecated for this model.", "drop:temperature"),
        ("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.", "drop:temperature"),
        (
            "This model does not support effort level 'xhigh'. Supported levels: high, low, max.",
            "drop:reasoning_effort",
        ),
        ("This model does not support the effort parameter.", "drop:reasoning_effort"),
        ("adaptive thinking is not supported on this model", "drop:reasoning_effort"),
        ("thinking.type.disabled is not supported for this model.", "drop:reasoning_effort"),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens", "drop:max_output_tokens"),
    ],
)
def test_a_refusal_that_a_change_mends_names_the_change(sentence, repair):
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": sentence}}).encode()

    failure = classify(400, {}, body)

    assert (failure.repair, failure.retryable) == (repair, False)
