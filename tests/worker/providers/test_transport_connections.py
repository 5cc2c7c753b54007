"""The connections of the HTTP client: cancelled, refused, silent, many at once, encrypted."""

import asyncio
import json
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from serving import (
    HEAD,
    QUICK,
    REQUEST,
    TEXT,
    WHOLE,
    ask,
    chunk,
    failed,
    plain,
    serving,
)

from roundelay_worker.loop.history import Turn, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience
from roundelay_worker.providers.chat.provider import ChatProvider
from roundelay_worker.providers.reading import ALIVE, NOTHING, TextPiece, Thinking
from roundelay_worker.providers.responses.provider import OpenAIProvider
from roundelay_worker.providers.transport import REPEATS_THAT_ARE_SILENCE, HttpTransport, Pulse


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
def test_a_certificate_is_verified_and_one_that_is_unknown_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # the deployment's own authority
    assert asyncio.run(once(None)).text == "Hi"
