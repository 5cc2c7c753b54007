"""Where ``fetch_url`` may go: no spelling of an address that is not public, and no way around."""

import asyncio
import socket

import pytest
from websites import Server, answering, policy_for, refusal

from roundelay_worker import ToolError
from roundelay_worker.tools.builtin.fetching import Fetcher, FetchPolicy, _guarded_socket

FORBIDDEN_HOSTS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "127.0.0.1.",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "%6cocalhost",
    "127%2e0%2e0%2e1",
    "127。0。0。1",
    "１２７.0.0.1",  # noqa: RUF001
    "①②⑦.⓪.⓪.①",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "10.0.0.1",
    "192.168.1.1",
    "172.16.5.4",
    "100.100.100.200",
    "168.63.129.16",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:169.254.169.254]",
    "[::127.0.0.1]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fd00:ec2::254]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:7f00:1::]",
    "[ff02::1]",
    "224.0.0.1",
    "255.255.255.255",
]


@pytest.mark.parametrize("host", FORBIDDEN_HOSTS)
def test_no_spelling_of_a_forbidden_address_is_connected_to(host):
    async def scenario():
        async with Server(answering(b"secret")) as server:
            policy = FetchPolicy(ports=frozenset({80, server.port}))
            try:
                await Fetcher(policy).fetch(f"http://{host}:{server.port}/")
            except ToolError as refused:
                return server.visits, refused.code
            return server.visits, "fetched"

    visits, code = asyncio.run(scenario())
    assert visits == []
    assert code in {"not_allowed", "unreachable"}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("ftp://example.com/", "not_allowed"),
        ("file:///etc/passwd", "not_allowed"),
        ("gopher://example.com/", "not_allowed"),
        ("data:text/plain,hello", "not_allowed"),
        ("//example.com/", "not_allowed"),
        ("example.com", "not_allowed"),
        ("", "not_allowed"),
        ("http://", "not_allowed"),
        ("http:///path", "not_allowed"),
        ("http://user:pw@example.com/", "not_allowed"),
        ("http://user@example.com/", "not_allowed"),
        ("http://example.com@127.0.0.1/", "not_allowed"),
        ("http://example.com:22/", "not_allowed"),
        ("http://example.com:0/", "not_allowed"),
        ("https://example.com:8443/", "not_allowed"),
        ("http://example.com:99999/", "not_allowed"),
        ("http://[::1", "not_allowed"),
        ("http://127.0.0.1\\@example.com/", "not_allowed"),
        ("http://a b/", "not_allowed"),
    ],
)
def test_a_url_that_may_not_be_fetched_is_refused_without_any_look_up(url, code):
    def lookup(host: str, port: int) -> list[tuple[int, str]]:
        raise AssertionError(host)

    assert refusal(lambda: asyncio.run(Fetcher(FetchPolicy(), lookup).fetch(url))).code == code


@pytest.mark.parametrize(
    "answers",
    [["127.0.0.1"], ["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["::1"], ["::ffff:127.0.0.1"]],
)
def test_a_host_of_which_any_address_is_forbidden_is_refused(answers):
    def lookup(_host: str, _port: int) -> list[tuple[int, str]]:
        return [(socket.AF_INET6 if ":" in a else socket.AF_INET, a) for a in answers]

    refused = refusal(lambda: asyncio.run(Fetcher(FetchPolicy(), lookup).fetch("http://rebinding.example/")))
    assert (refused.code, str(refused)) == ("not_allowed", "This host is not on the public internet.")


def test_a_name_is_looked_up_once_and_the_connection_goes_to_the_checked_address():
    looked_up: list[str] = []

    async def scenario():
        async with Server(answering(b"hello")) as server:

            def lookup(host: str, _port: int) -> list[tuple[int, str]]:
                looked_up.append(host)
                return [(socket.AF_INET, "127.0.0.1" if len(looked_up) == 1 else "10.0.0.1")]

            page = await Fetcher(policy_for(server), lookup).fetch(f"http://some.example:{server.port}/")
            return page, server.visits

    page, visits = asyncio.run(scenario())
    assert (page.text, len(visits), looked_up) == ("hello", 1, ["some.example"])


def test_the_last_guard_refuses_whatever_got_past_the_earlier_ones():
    info = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))
    assert refusal(lambda: _guarded_socket(lambda _: False, info)).code == "not_allowed"
    _guarded_socket(lambda _: True, info).close()


@pytest.mark.parametrize(
    "location",
    ["http://10.0.0.1/", "http://169.254.169.254/latest/meta-data", "http://[fe80::1]/", "file:///etc/passwd", "http://a:b@127.0.0.1/",
     "//192.168.0.1/x", "http://127.0.0.1:22/", "http://internal.example/"],
)  # fmt: skip
def test_each_redirect_is_checked_again(location):
    def lookup(_host: str, _port: int) -> list[tuple[int, str]]:
        return [(socket.AF_INET, "10.1.2.3")]

    async def scenario():
        async with Server(answering(b"", "text/plain", "302 Found", f"Location: {location}")) as server:
            await Fetcher(policy_for(server), lookup).fetch(f"http://127.0.0.1:{server.port}/")

    assert refusal(lambda: asyncio.run(scenario())).code == "not_allowed"
