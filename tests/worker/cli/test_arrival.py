"""``roundelay up`` has come up once one of its workers takes work, and says so once."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from roundelay.names import alive_key
from roundelay_worker.cli.arrival import Arrival, consumes
from roundelay_worker.embedded.child import EmbeddedError
from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.settings import Settings


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with running_valkey(tmp_path) as address:
        yield address


def test_it_is_said_once_and_then_never_looked_at_again():
    looks, said = iter([False, True]), list[str]()
    arrival = Arrival(lambda: next(looks), lambda: said.append("up"), "the logs")

    waits = [arrival() for _ in range(4)]

    assert said == ["up"]
    assert [wait < 1 for wait in waits] == [True, False, False, False]


def test_a_worker_that_never_comes_up_is_an_error_that_says_where_to_look():
    with pytest.raises(EmbeddedError, match="their logs in /home/logs say why"):
        Arrival(lambda: False, lambda: None, "/home/logs", patience=-1)()


@pytest.mark.services
def test_only_a_process_of_ours_that_takes_work_counts(url: str):
    settings = Settings.from_env({"ROUNDELAY_REDIS_URL": url})
    pids = {"worker-1": 11, "flower": 12}

    def shown(pid: int, condition: str) -> bool:
        with redis.Redis.from_url(url) as connection:
            connection.set(alive_key("roundelay", f"{socket.gethostname()}-{pid}-m.1.2"), condition)
        return consumes(settings, pids)

    assert not shown(111, "consuming")
    assert not shown(11, "not_consuming")
    assert shown(11, "consuming")


def test_a_redis_that_is_away_says_nothing():
    assert not consumes(Settings.from_env({"ROUNDELAY_REDIS_URL": "redis://127.0.0.1:1/0"}), {"worker-1": 11})
