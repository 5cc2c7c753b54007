"""URLs as managed services and people write them: what works, and what is refused with what to mend."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from kombu import Connection

from inputs import shared_input
from roundelay import Client, NotConfigured
from roundelay._core.urls import kombu_url, redis_url
from roundelay_worker.database_url import database_url

REDIS = {
    "redis://h:6379/0?socket_timeout=5": "redis://h:6379/0",
    "redis://h:6379/0?protocol=3": "redis://h:6379/0",
    "redis://h:6379?db=2": "redis://h:6379/2",
    "rediss://h:6380/0?ssl_cert_reqs=CERT_NONE": "rediss://h:6380/0?ssl_cert_reqs=none&ssl_check_hostname=False",
    "redis://:s3cret#rest@h:6379/0": "redis://:s3cret%23rest@h:6379/0",
    "redis://user-without-channels:pw@h:6379/0": "redis://user-without-channels:pw@h:6379/0",
    "redis://user-of-own-prefix:pw@h:6379/0": "redis://user-of-own-prefix:pw@h:6379/0",
    "redis://:a/b@c?d@h": "redis://:a%2Fb%40c%3Fd@h/0",
    "redis://:p%40ss@[::1]:1/3": "redis://:p%40ss@[::1]:1/3",
    "redis://:100%@h": "redis://:100%25@h/0",
}
POSTGRES = {
    "postgresql://u:p@h/db?sslmode=require&channel_binding=require": "postgresql://u:p@h/db?sslmode=require",
    "postgresql://u:p@h/db?connect_timeout=10": "postgresql://u:p@h/db",
    "postgresql://u:p@h/db?ssl=require": "postgresql://u:p@h/db?sslmode=require",
    "postgresql+asyncpg://u:p@h/db": "postgresql://u:p@h/db",
    "postgresql+psycopg://u:p@h/db": "postgresql://u:p@h/db",
    "postgresql://u:p@pgbouncer-in-transaction-mode:6432/db": "postgresql://u:p@pgbouncer-in-transaction-mode:6432/db",
    "postgres://u:p#x/y@h:5432/db": "postgresql://u:p%23x%2Fy@h:5432/db",
    "postgresql:///db?host=/run/postgresql": "postgresql:///db?host=%2Frun%2Fpostgresql",
}


@pytest.mark.parametrize("url", REDIS)
def test_a_redis_url_is_read_whoever_wrote_it(url: str) -> None:
    assert redis_url(url) == REDIS[url]
    assert redis_url(REDIS[url]) == REDIS[url]


@pytest.mark.parametrize("url", POSTGRES)
def test_a_database_url_is_read_whoever_wrote_it(url: str) -> None:
    assert database_url(url) == POSTGRES[url]


@pytest.mark.parametrize(
    ("name", "known"), [("redis-urls-that-fail.txt", REDIS), ("postgres-urls-that-fail.txt", POSTGRES)]
)
def test_the_urls_that_failed_elsewhere_are_among_them(name: str, known: dict[str, str]) -> None:
    assert set(shared_input(name).decode().split()) <= set(known)


@pytest.mark.parametrize(
    ("url", "mend"),
    [
        ("redis://:sekret@h:port/0", "cannot be read"),
        ("redis://[::1", "cannot be read"),
        ("redis://:sekret@h/abc", "a database that is no number"),
        ("redis://:sekret@h:99999/0", "ports are 1 to 65535"),
        ("redis://:sekret@h?wrong=1", "'wrong', which is not known"),
        ("rediss://:sekret@h?ssl_cert_reqs=maybe", "required, optional or none"),
        ("http://:sekret@h", "must begin with redis://"),
    ],
)
def test_a_malformed_url_is_one_sentence_without_a_password(url: str, mend: str) -> None:
    with pytest.raises(NotConfigured, match=mend) as caught:
        Client(url)
    assert "sekret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broker_over_tls_verifies_unless_it_is_told_not_to() -> None:
    assert kombu_url(redis_url("rediss://h")) == "rediss://h/0?ssl_cert_reqs=CERT_REQUIRED"
    assert "CERT_NONE" in kombu_url(redis_url("rediss://h?ssl_cert_reqs=none"))
    assert kombu_url("unix:///x.sock?db=1") == "redis+socket:///x.sock?virtual_host=1"


@pytest.mark.parametrize(
    ("url", "mend"),
    [
        ("mysql://u:sekret@h/db", "must begin with"),
        ("postgresql://u:sekret@h/db?wrong=1", "'wrong', which is not known"),
    ],
)
def test_a_malformed_database_url_is_told_with_what_to_mend(url: str, mend: str) -> None:
    with pytest.raises(ValueError, match=mend) as caught:
        database_url(url)
    assert "sekret" not in str(caught.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
@pytest.mark.parametrize(("option", "verified"), [("", True), ("?ssl_cert_reqs=none", False)])
def test_the_brokers_connection_refuses_a_certificate_that_nobody_trusts(tmp_path, option: str, verified: bool) -> None:
    with tls_server(tmp_path) as (port, handshakes):
        url = kombu_url(redis_url(f"rediss://localhost:{port}{option}"))
        with Connection(url) as connection, pytest.raises(Exception) as caught:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=2)

    assert ("CERTIFICATE_VERIFY_FAILED" in str(caught.value)) == verified
    assert any(handshakes) == (not verified)


@contextmanager
def tls_server(folder: Path) -> Iterator[tuple[int, list[bool]]]:
    """Take connections under a certificate of nobody's, note which handshakes succeed, and hang up."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    subprocess.run([*made, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    handshakes: list[bool] = []

    def serve() -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(taken, server_side=True) as spoken:
                    spoken.recv(1)
                    handshakes.append(True)
            except OSError:
                handshakes.append(False)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=serve, daemon=True)
        server.start()
        yield listener.getsockname()[1], handshakes
        listener.shutdown(socket.SHUT_RDWR)
    server.join(timeout=5)
