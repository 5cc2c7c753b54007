"""The HTTP client against real sockets: slow, silent, cut and odd servers."""

import asyncio
import gzip
import json
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from roundelay_worker.loop.history import Turn, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience
from roundelay_worker.providers.chat import ChatProvider
from roundelay_worker.providers.openai import OpenAIProvider
from roundelay_worker.providers.reading import ALIVE, NOTHING, TextPiece, Thinking
from roundelay_worker.providers.transport import REPEATS_THAT_ARE_SILENCE, HttpTransport, Pulse

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
EMPTY = b'data: {"choices":[{"index":0,"delta":{"content":""}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
REQUEST = ModelRequest(system="", history=(UserText("Hello"),))
QUICK = Patience(connect=2.0, idle=0.3)


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)


END = b"0\r\n\r\n"
WHOLE = HEAD + chunk(TEXT) + chunk(STOP) + chunk(DONE) + END


def plain(status: str, body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


class Served:
    """A server that answers each request by a function, and notes what it sees."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0
        self.hung_up = asyncio.Event()
        self.port = 0


@asynccontextmanager
async def serving(answer: Answering | bytes, context: ssl.SSLContext | None = None):
    seen = Served()

    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:")
                await reader.readexactly(length)
                seen.requests += 1
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            seen.hung_up.set()
        finally:
            writer.transport.abort()

    def begun(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(connected(reader, writer)))

    server = await asyncio.start_server(begun, "127.0.0.1", 0, backlog=512, ssl=context)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask(
    port: int, transport: HttpTransport, request: ModelRequest = REQUEST, shown: list[str] | None = None
) -> Turn:
    provider = ChatProvider("m", f"http://127.0.0.1:{port}/v1", "key", transport)
    return await provider.ask(request, (shown if shown is not None else []).append, QUICK)


def asked(answer: Answering | bytes, request: ModelRequest = REQUEST, shown: list[str] | None = None) -> Turn:
    async def once() -> Turn:
        async with serving(answer) as server, HttpTransport() as transport, asyncio.timeout(20):
            return await ask(server.port, transport, request, shown)

    return asyncio.run(once())


def failed(answer: Answering | bytes) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        asked(answer)
    return caught.value


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


def test_cancelling_closes_the_socket_at_once() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(TEXT))
        if not await reader.read():
            raise ConnectionError

    async def cancelled() -> None:
        shown = asyncio.Event()
        async with serving(stall) as server, HttpTransport() as transport:
            provider = ChatProvider("m", f"http://127.0.0.1:{server.port}", "", transport)
            running = asyncio.ensure_future(provider.ask(REQUEST, lambda _: shown.set(), Patience()))
            async with asyncio.timeout(5):
                await shown.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            async with asyncio.timeout(1):
                await server.hung_up.wait()

    asyncio.run(cancelled())


def test_a_refused_connection_may_work_later() -> None:
    async def refused() -> None:
        async with serving(WHOLE) as server:
            port = server.port
        async with HttpTransport() as transport:
            await ask(port, transport)

    with pytest.raises(ModelFailure) as caught:
        asyncio.run(refused())
    assert (caught.value.code, caught.value.retryable) == ("model_unreachable", True)


def test_a_server_that_never_answers_the_handshake_is_unreachable_within_the_time_to_connect() -> None:
    async def greeted() -> None:
        async with serving(WHOLE) as server, HttpTransport() as transport, asyncio.timeout(10):
            provider = ChatProvider("m", f"https://127.0.0.1:{server.port}", "", transport)
            await provider.ask(REQUEST, print, Patience(connect=0.3, idle=30.0))

    with pytest.raises(ModelFailure) as caught:
        asyncio.run(greeted())
    assert caught.value.code == "model_unreachable"


def test_a_server_that_hangs_up_before_its_reply_may_work_later() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    failure = failed(hang_up)

    assert (failure.code, failure.retryable) == ("model_unreachable", True)


def test_a_key_with_a_line_break_is_told_without_showing_it() -> None:
    async def spoiled() -> None:
        async with serving(WHOLE) as server, HttpTransport() as transport:
            provider = ChatProvider("m", f"http://127.0.0.1:{server.port}", "sec\r\nret", transport)
            await provider.ask(REQUEST, print, QUICK)

    with pytest.raises(ModelFailure) as caught:
        asyncio.run(spoiled())
    assert caught.value.code == "bad_request"
    assert "ret" not in caught.value.message


def test_a_reply_without_bounds_is_given_up() -> None:
    async def flood() -> None:
        async with serving(HEAD + chunk(TEXT) * 1000) as server, HttpTransport(max_reply_bytes=20_000) as transport:
            await ask(server.port, transport)

    with pytest.raises(ModelFailure) as caught:
        asyncio.run(flood())
    assert caught.value.code == "provider_error"


def test_one_connection_serves_one_request_after_another() -> None:
    async def thrice() -> int:
        async with serving(WHOLE) as server, HttpTransport() as transport:
            for _ in range(3):
                await ask(server.port, transport)
            assert server.requests == 3
            return server.connections

    assert asyncio.run(thrice()) == 1


def test_two_hundred_requests_run_side_by_side() -> None:
    async def crowd() -> None:
        gate = asyncio.Barrier(200)

        async def together(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await gate.wait()
            writer.write(WHOLE)

        async with serving(together) as server, HttpTransport() as transport, asyncio.timeout(20):
            turns = await asyncio.gather(*(ask(server.port, transport) for _ in range(200)))
        assert all(turn.text == "Hi" for turn in turns)

    asyncio.run(crowd())


def test_a_pulse_counts_repeats_across_feeds_and_forgets_them_when_something_new_comes() -> None:
    pulse = Pulse()

    beats = [pulse.beats([Thinking("hm")]) for _ in range(REPEATS_THAT_ARE_SILENCE)]

    assert beats == [True] * (REPEATS_THAT_ARE_SILENCE - 1) + [False]
    assert pulse.beats([Thinking("so")])
    assert pulse.beats([ALIVE])
    assert not pulse.beats([NOTHING, TextPiece("")])


@pytest.mark.parametrize("repairs", [(), ("no_stream",)])
def test_the_responses_provider_asks_over_the_same_client(repairs: tuple[str, ...]) -> None:
    response = {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}],
    }
    event = {"type": "response.completed", "response": response}
    body = json.dumps(response).encode() if repairs else b"data: " + json.dumps(event).encode() + b"\n\n"

    async def once() -> Turn:
        async with serving(plain("200 OK", body)) as server, HttpTransport() as transport:
            provider = OpenAIProvider("m", f"http://127.0.0.1:{server.port}", "k", transport)
            request = ModelRequest("", (UserText("Hello"),), repairs=frozenset(repairs))
            return await provider.ask(request, print, QUICK)

    assert asyncio.run(once()).text == "Hi"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_a_certificate_is_verified_and_one_that_is_unknown_is_not_tried_again(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    subprocess.run([*made, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)

    async def once(context: ssl.SSLContext | None) -> Turn:
        async with serving(WHOLE, server_side) as server, HttpTransport(ssl_context=context) as transport:
            provider = ChatProvider("m", f"https://localhost:{server.port}", "", transport)
            return await provider.ask(REQUEST, print, QUICK)

    assert asyncio.run(once(ssl.create_default_context(cafile=certificate))).text == "Hi"
    with pytest.raises(ModelFailure) as caught:
        asyncio.run(once(None))
    assert (caught.value.code, caught.value.retryable) == ("model_unreachable", False)
    assert "certificate" in caught.value.message


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
