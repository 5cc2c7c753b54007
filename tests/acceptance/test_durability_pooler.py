"""Behind PgBouncer in transaction mode, where two statements of a connection may reach two servers."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from harness.words import call

from roundelay_worker.embedded.child import free_port, until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="no pgbouncer here"),
]


@pytest.fixture
def pooler(postgres: str, folder: Path) -> Iterator[str]:
    """Start a PgBouncer with two server connections before the database server; return its host and port."""
    server, port, home = urlsplit(postgres), free_port(0), folder / "pgbouncer"
    home.mkdir(exist_ok=True)
    home.chmod(0o777)
    (home / "users").write_text(f'"{server.username}" "{unquote(server.password or "")}"\n')
    (home / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={server.hostname} port={server.port}\n[pgbouncer]\n"
        f"listen_addr=127.0.0.1\nlisten_port={port}\nauth_type=plain\nauth_file={home / 'users'}\n"
        "pool_mode=transaction\ndefault_pool_size=2\nunix_socket_dir=\n"
        "ignore_startup_parameters=extra_float_digits\n"
    )
    for file in home.iterdir():
        file.chmod(0o644)
    user = () if os.geteuid() else ("-u", "nobody")  # it refuses to run as root
    command = ["pgbouncer", "-q", *user, str(home / "pgbouncer.ini")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert until(lambda: _answers(port), 10)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_every_message_is_answered_and_nothing_of_ours_stays_on_the_servers_connections(deploy, postgres, pooler):
    direct = deploy()
    url = urlsplit(direct.env["ROUNDELAY_DATABASE_URL"])
    login = url.netloc.rpartition("@")[0]
    place = deploy(f"{url._replace(netloc=f'{login}@{pooler}').geturl()}?pgbouncer=true")
    place.start()
    place.start()
    jobs = [place.ask(call("act", tag=f"pool{n}"), {"text": "told"}, name=f"pool-{n}") for n in range(30)]

    answers = place.settled(*jobs)

    assert [answer.text for answer in answers] == ["told"] * 30
    assert [len(place.effects(f"pool{n}")) for n in range(30)] == [1] * 30

    async def plan_mode(store) -> str:
        (row,) = await store._driver.fetch("SELECT current_setting('plan_cache_mode') AS mode")
        return row["mode"]

    assert place.stored(plan_mode) == "auto"
