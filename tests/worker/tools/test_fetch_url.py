import asyncio
import gzip
import json
import shutil
import socket
import ssl
import subprocess
import time

import pytest
from running import CONTEXT, declared, error_of
from websites import Serve, Server, answering, fetch_from, policy_for, refusal

from roundelay_worker import ToolError
from roundelay_worker.loop.history import Call
from roundelay_worker.tools.builtin.fetch_url import make_fetch_url
from roundelay_worker.tools.builtin.fetching import Fetcher, FetchPolicy
from roundelay_worker.tools.run.runner import ToolRunner


def redirecting(times: int) -> tuple[Serve, list[str]]:
    paths: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
        if len(paths) <= times:
            writer.write(f"HTTP/1.1 301 x\r\nLocation: /{len(paths)}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nhere")
        await writer.drain()
        writer.close()

    return serve, paths


def test_five_redirects_are_followed_and_the_sixth_is_not():
    serve, paths = redirecting(5)
    page = fetch_from(serve)
    assert (page.text, page.url.rpartition("/")[2], paths) == ("here", "5", ["/", "/1", "/2", "/3", "/4", "/5"])
    serve, paths = redirecting(6)
    assert refusal(lambda: fetch_from(serve)).code == "too_many_redirects"
    assert len(paths) == 6


def test_html_comes_as_text():
    page = fetch_from(answering(b"<h1>Hi</h1><script>no</script><p>there &amp; here", "text/html; charset=utf-8"))
    assert (page.text, page.truncated) == ("Hi\nthere & here", False)


def test_compressed_pages_are_inflated():
    assert (
        fetch_from(answering(gzip.compress(b"hello"), "text/plain", "200 OK", "Content-Encoding: gzip")).text == "hello"
    )


def test_a_bomb_brings_no_more_than_the_limit():
    bomb = gzip.compress(bytes(30_000_000))
    begun = time.monotonic()
    page = fetch_from(answering(bomb, "text/plain", "200 OK", "Content-Encoding: gzip"), max_bytes=100_000)
    assert (len(page.text), page.truncated) == (100_000, True)
    assert time.monotonic() - begun < 10


def test_an_endless_page_is_cut_at_the_limit():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 10_000)
            await writer.drain()

    page = fetch_from(serve, max_bytes=50_000)
    assert (len(page.text), page.truncated) == (50_000, True)


async def _drip_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _drip_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize("serve", [_drip_body, _drip_head, _silence])
def test_dripping_and_silence_end_in_time(serve):
    begun = time.monotonic()
    assert refusal(lambda: fetch_from(serve, seconds=0.3)).code == "too_slow"
    assert time.monotonic() - begun < 5


def test_a_name_server_that_hangs_ends_in_time_and_holds_up_nobody_else():
    async def scenario():
        async with Server(answering(b"hello")) as server:

            def lookup(host: str, _port: int) -> list[tuple[int, str]]:
                time.sleep(1 if host == "slow.example" else 0)
                return [(socket.AF_INET, "127.0.0.1")]

            fetcher = Fetcher(policy_for(server, seconds=0.5), lookup)
            slow = [asyncio.create_task(fetcher.fetch("http://slow.example/")) for _ in range(40)]
            page = await fetcher.fetch(f"http://quick.example:{server.port}/")
            return page, await asyncio.gather(*slow, return_exceptions=True)

    page, slow = asyncio.run(scenario())
    assert page.text == "hello"
    assert {getattr(error, "code", error) for error in slow} == {"too_slow"}


@pytest.mark.parametrize(
    ("serve", "code"),
    [
        (answering(b"\x89PNG", "image/png"), "not_readable"),
        (answering(b"x", "application/octet-stream"), "not_readable"),
        (answering(b"x", "text/plain", "200 OK", "Content-Encoding: br"), "not_readable"),
        (answering(b"not gzip", "text/plain", "200 OK", "Content-Encoding: gzip"), "not_readable"),
        (answering(b"no such page", "text/plain", "404 Not Found"), "http_status"),
        (answering(b"broken", "text/plain", "500 Oops"), "http_status"),
    ],
)
def test_what_cannot_be_read_is_told(serve, code):
    assert refusal(lambda: fetch_from(serve)).code == code


async def _garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\x01 this is not http\r\n\r\n")
    await writer.drain()
    writer.close()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _huge_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * 1_000_000 + b"\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("serve", [_garbage, _hang_up, _huge_head])
def test_a_server_that_speaks_no_http_is_unreachable(serve):
    assert refusal(lambda: fetch_from(serve)).code == "unreachable"


def test_the_tools_text_is_cut_at_max_chars_and_says_so():
    async def scenario():
        async with Server(answering(b"x" * 5000)) as server:
            tool = declared(make_fetch_url(Fetcher(policy_for(server))))
            url = f"http://127.0.0.1:{server.port}/#part"
            call = Call("fetch_url", json.dumps({"url": url, "max_chars": 100}))
            return await ToolRunner().run(tool, call, ["fetch_url"], CONTEXT, 20), url

    outcome, url = asyncio.run(scenario())
    page = json.loads(outcome.result.text)
    assert page == {
        "url": url.removesuffix("#part"),
        "content_type": "text/plain",
        "text": "x" * 100,
        "truncated": True,
    }


def test_a_refusal_reaches_the_model_with_what_to_do():
    async def scenario():
        tool = declared(make_fetch_url(Fetcher(FetchPolicy())))
        return await ToolRunner().run(
            tool, Call("fetch_url", '{"url": "http://10.0.0.1/"}'), ["fetch_url"], CONTEXT, 20
        )

    assert error_of(asyncio.run(scenario()))["code"] == "not_allowed"


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async def scenario():
        async with Server(answering(b"the proxy")) as proxy, Server(answering(b"the page")) as server:
            for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            page = await Fetcher(policy_for(server)).fetch(f"http://127.0.0.1:{server.port}/")
            return page.text, proxy.visits

    assert asyncio.run(scenario()) == ("the page", [])


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """A server's context for good.example, whose certificate the fetcher trusts."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not there")
    options = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=good.example",
    ]
    names = ["-addext", "subjectAltName=DNS:good.example"]
    command = [openssl, "req", "-x509", *options, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


@pytest.mark.parametrize(("host", "text"), [("good.example", "hello"), ("other.example", "certificate")])
def test_the_pinned_connection_still_verifies_the_hosts_name(tls, host, text):
    def lookup(_host: str, _port: int) -> list[tuple[int, str]]:
        return [(socket.AF_INET, "127.0.0.1")]

    async def scenario():
        async with Server(answering(b"hello"), tls) as server:
            try:
                return (await Fetcher(policy_for(server), lookup).fetch(f"https://{host}:{server.port}/")).text
            except ToolError as refused:
                return str(refused)

    assert text in asyncio.run(scenario())
