"""The Redis of docker-compose.yml, started by its own words with a server of this machine."""

import os
import re
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
import redis

from roundelay_worker.embedded.child import free_port, until
from roundelay_worker.embedded.valkey import server_binary

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
PASSWORD = "a-Secret_of.the~test"
ENTRYPOINT = """#!/bin/sh
program=$1
shift
exec "$program" --port "$PORT" --dir "$FOLDER" "$@"
"""


def redis_script() -> str:
    compose = (ROOT / "docker-compose.yml").read_text()
    found = re.search(
        r"^  redis:\n.*?      - \|\n((?:        [^\n]*\n)+)",
        compose,
        re.DOTALL | re.MULTILINE,
    )
    assert found
    return dedent(found[1]).replace("$$", "$")


def test_the_password_of_redis_is_asked_for_and_in_no_list_of_processes(tmp_path: Path):
    (tmp_path / "docker-entrypoint.sh").write_text(ENTRYPOINT)
    (tmp_path / "docker-entrypoint.sh").chmod(0o755)
    (tmp_path / "valkey-server").symlink_to(server_binary())
    port = free_port(0)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PORT": str(port),
        "FOLDER": str(tmp_path),
        "REDISCLI_AUTH": PASSWORD,
    }

    def answers() -> bool:
        try:
            with redis.Redis(port=port, password=PASSWORD) as known:
                return bool(known.ping())
        except redis.ConnectionError:
            return False

    with subprocess.Popen(["sh", "-c", redis_script()], env=env, stdout=subprocess.DEVNULL) as server:
        try:
            assert until(answers, 10)
            words = Path(f"/proc/{server.pid}/cmdline").read_bytes()
            with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
            with redis.Redis(port=port, password=PASSWORD, decode_responses=True) as known:
                kept = {**known.config_get("appendonly"), **known.config_get("maxmemory-policy")}
        finally:
            server.terminate()

    assert b"valkey-server" in words
    assert PASSWORD.encode() not in words
    assert kept == {"appendonly": "yes", "maxmemory-policy": "noeviction"}
