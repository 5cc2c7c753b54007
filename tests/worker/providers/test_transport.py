"""The HTTP client against real sockets: slow, silent, cut and odd replies."""

import asyncio
import gzip

import pytest
from serving import (
    DONE,
    EMPTY,
    END,
    HEAD,
    STOP,
    TEXT,
    WHOLE,
    ask,
    asked,
    chunk,
    failed,
    plain,
    serving,
)

from roundelay_worker.loop.history import UserText
from roundelay_worker.providers.base import ModelRequest
from roundelay_worker.providers.transport import HttpTransport


def test_a_streamed_reply_is_shown_as_it_comes_and_read_whole() -> None:
    shown: list[str] = []

    turn = asked(WHOLE, shown=shown)

    assert (turn.text, turn.finish, shown) == ("Hi", "complete", ["Hi"])


def test_bytes_that_drip_one_by_one_make_the_same_turn() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for at in range(len(TEXT + STOP + DONE)):
            writer.write(chunk((TEXT + STOP + DONE)[at : at + 1]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(END)

    assert asked(drip).text == "Hi"


def test_headers_and_then_nothing_is_a_stall() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        await reader.read()

    failure = failed(stall)

    assert (failure.code, failure.retryable) == ("model_stalled", True)


@pytest.mark.parametrize("piece", [EMPTY, TEXT], ids=["empty pieces", "the same piece over and over"])
def test_pieces_that_bring_nothing_new_are_a_stall(piece: bytes) -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for _ in range(100):
            writer.write(chunk(piece))
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(WHOLE.removeprefix(HEAD))

    assert failed(babble).code == "model_stalled"


@pytest.mark.parametrize("sign", [b": keep-alive\n\n", b"event: ping\n\n"])
def test_pings_keep_a_thinking_model_from_being_given_up(sign: bytes) -> None:
    async def ping(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for _ in range(10):
            writer.write(chunk(sign))
            await asyncio.sleep(0.1)
        writer.write(WHOLE.removeprefix(HEAD))

    assert asked(ping).text == "Hi"


def test_a_reply_that_breaks_off_is_to_be_asked_for_again() -> None:
    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(TEXT) + b"fff\r\ndata: {")
        writer.close()

    failure = failed(cut)

    assert (failure.code, failure.retryable) == ("reply_cut_off", True)


def test_a_reply_that_ends_in_order_but_without_its_end_is_cut_off_too() -> None:
    assert failed(HEAD + chunk(TEXT) + END).code == "reply_cut_off"


def test_a_connection_lost_after_the_terminal_value_costs_nothing() -> None:
    async def lose(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(TEXT) + chunk(STOP))
        await writer.drain()
        writer.transport.abort()

    assert asked(lose).text == "Hi"


def test_a_server_that_holds_the_line_after_the_end_is_not_waited_for() -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(TEXT) + chunk(STOP) + chunk(DONE))
        await reader.read()

    async def timed() -> float:
        started = asyncio.get_running_loop().time()
        async with serving(hold) as server, HttpTransport() as transport:
            await ask(server.port, transport)
        return asyncio.get_running_loop().time() - started

    assert asyncio.run(timed()) < 2


def test_usage_that_comes_behind_the_terminal_value_is_still_read() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'

    async def late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(TEXT) + chunk(STOP))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(chunk(usage) + chunk(DONE) + END)

    turn = asked(late)

    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (5, 2)


def test_a_429_with_a_web_page_is_a_rate_limit_with_the_servers_delay() -> None:
    page = b"<html><h1>Too many</h1></html>"

    failure = failed(plain("429 Too Many Requests", page, "content-type: text/html\r\nretry-after: 7\r\n"))

    assert (failure.code, failure.retryable, failure.delay) == ("rate_limited", True, 7.0)
    assert "html" not in failure.message


def test_an_error_whose_body_breaks_off_is_still_that_error() -> None:
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 500\r\n\r\n{")
        writer.close()

    assert failed(half).code == "model_overloaded"


def test_a_stream_that_is_answered_with_one_json_body_is_read() -> None:
    body = b'\n\n{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'

    assert asked(plain("200 OK", body)).text == "Hi"


def test_without_streaming_the_reply_is_read_in_one_piece() -> None:
    body = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'
    request = ModelRequest(system="", history=(UserText("Hello"),), repairs=frozenset({"no_stream"}))

    assert asked(plain("200 OK", body), request).text == "Hi"


def test_a_compressed_reply_is_read_though_none_was_asked_for() -> None:
    body = gzip.compress(TEXT + STOP + DONE)

    assert asked(plain("200 OK", body, "content-encoding: gzip\r\n")).text == "Hi"


def test_a_web_page_under_status_200_is_no_reply() -> None:
    assert failed(plain("200 OK", b"<html></html>")).code == "provider_error"


def test_a_declined_prompt_is_a_refused_turn_rather_than_a_failure() -> None:
    body = b'{"error":{"code":"content_filter","message":"no"}}'

    assert asked(plain("400 Bad Request", body)).finish == "refused"


def test_a_call_that_the_server_cannot_read_is_a_malformed_turn() -> None:
    body = b'{"error":{"code":"tool_use_failed","failed_generation":"<tool>"}}'

    assert asked(plain("400 Bad Request", body)).finish == "malformed"


def test_a_redirect_is_not_followed_with_the_key() -> None:
    failure = failed(plain("302 Found", b"", "location: http://127.0.0.1:1/elsewhere\r\n"))

    assert (failure.code, failure.retryable) == ("bad_request", False)


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_that_repeats_the_request_is_followed_within_its_origin(status: str) -> None:
    paths: list[bytes] = []

    async def once() -> str:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            paths.append(b"")
            moved = plain(status, b"", "location: /gateway/v1/chat/completions/\r\n")
            writer.write(moved if len(paths) == 1 else WHOLE)

        async with serving(answer) as server, HttpTransport() as transport:
            return (await ask(server.port, transport)).text

    assert asyncio.run(once()) == "Hi"
    assert len(paths) == 2


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1:1/elsewhere", "//other.example/v1", "", "::::", "https://127.0.0.1/"]
)
def test_a_redirect_to_another_origin_says_what_it_is(location: str) -> None:
    failure = failed(plain("307 Temporary Redirect", b"", f"location: {location}\r\n"))

    assert (failure.code, failure.retryable) == ("bad_request", False)
    assert "redirects" in failure.message
    assert "307" in failure.message


def test_a_redirect_in_a_circle_ends() -> None:
    failure = failed(plain("308 Permanent Redirect", b"", "location: /a/b\r\n"))

    assert "redirects" in failure.message


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_a_reply_that_is_compressed_in_a_way_we_do_not_read_is_told_as_that(coding: str) -> None:
    failure = failed(plain("200 OK", b"\x0b\x02\x80hello\x03", f"content-encoding: {coding}\r\n"))

    assert "compressed" in failure.message
    assert not failure.retryable


def test_the_models_are_reached_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def once(no_proxy: str) -> str:
        async def proxy(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(b"proxied")
            writer.write(WHOLE)

        async with serving(proxy) as way, serving(WHOLE) as server, HttpTransport(trust_env=True) as transport:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{way.port}")
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{way.port}")
            monkeypatch.setenv("NO_PROXY", no_proxy)
            monkeypatch.setenv("no_proxy", no_proxy)
            return (await ask(server.port, transport)).text

    assert asyncio.run(once("")) == "Hi"
    assert seen == [b"proxied"]
    assert asyncio.run(once("127.0.0.1,localhost")) == "Hi"
    assert seen == [b"proxied"]


def test_a_declined_prompt_without_streaming_is_a_refused_turn_too() -> None:
    request = ModelRequest(system="", history=(UserText("Hello"),), repairs=frozenset({"no_stream"}))

    assert asked(plain("400 Bad Request", b'{"error":{"code":"content_filter"}}'), request).finish == "refused"


def test_only_so_much_of_an_errors_body_is_read() -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(chunk(b"x" * 60_000))
            await writer.drain()

    assert failed(endless).code == "model_overloaded"
