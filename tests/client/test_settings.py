"""Where the client finds Redis."""

import json

import pytest

from roundelay import Client, NotConfigured
from roundelay.settings import Settings, broker_of, read_settings


def test_the_environment_says_everything():
    settings = read_settings(
        {
            "ROUNDELAY_REDIS_URL": "redis://r/1",
            "ROUNDELAY_BROKER_URL": "amqp://b//",
            "ROUNDELAY_PREFIX": "shop",
            "ROUNDELAY_MAX_MESSAGE_BYTES": "100",
            "ROUNDELAY_ANSWER_TTL": "60",
        }
    )

    assert settings == Settings("redis://r/1", "amqp://b//", "shop", 100, 60)


def test_the_broker_is_redis_unless_another_is_named():
    assert (
        read_settings({"ROUNDELAY_REDIS_URL": "rediss://r/1"}).broker_url == "rediss://r/1?ssl_cert_reqs=CERT_REQUIRED"
    )
    assert broker_of("unix:///run/r.sock?db=2") == "redis+socket:///run/r.sock?virtual_host=2"
    assert broker_of("unix://:pw@/run/r.sock") == "redis+socket://:pw@/run/r.sock"


def test_without_a_url_the_addresses_of_up_are_read_and_the_environment_still_beats_them(tmp_path):
    written = {"redis_url": "redis://u/0", "broker_url": "redis://u/1", "prefix": "up", "flower_url": "http://f"}
    (tmp_path / "addresses.json").write_text(json.dumps(written))
    environ = {"ROUNDELAY_HOME": str(tmp_path), "ROUNDELAY_REDIS_URL": ""}

    assert read_settings(environ) == Settings("redis://u/0", "redis://u/1", "up")
    assert read_settings(environ | {"ROUNDELAY_PREFIX": "mine"}).prefix == "mine"


def test_blanks_around_a_value_are_no_part_of_it_as_for_a_worker():
    environ = {"ROUNDELAY_REDIS_URL": " redis://r/0\n", "ROUNDELAY_PREFIX": " mine ", "ROUNDELAY_ANSWER_TTL": "5 "}

    assert read_settings(environ) == Settings("redis://r/0", "redis://r/0", "mine", answer_ttl=5)
    assert read_settings({**environ, "ROUNDELAY_BROKER_URL": " "}).broker_url == "redis://r/0"


def test_a_named_redis_has_nothing_to_do_with_what_up_wrote(tmp_path):
    (tmp_path / "addresses.json").write_text(json.dumps({"redis_url": "redis://u/0", "prefix": "up"}))

    settings = read_settings({"ROUNDELAY_HOME": str(tmp_path), "ROUNDELAY_REDIS_URL": "redis://r/0"})

    assert settings == Settings("redis://r/0", "redis://r/0")


def test_without_any_address_the_error_says_what_to_do(tmp_path):
    with pytest.raises(NotConfigured, match=r"set ROUNDELAY_REDIS_URL, or start everything with `roundelay up`"):
        read_settings({"ROUNDELAY_HOME": str(tmp_path)})
    (tmp_path / "addresses.json").write_text("{")
    with pytest.raises(NotConfigured, match="cannot be read"):
        read_settings({"ROUNDELAY_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "environ",
    [
        {"ROUNDELAY_REDIS_URL": "http://:secret@h"},
        {"ROUNDELAY_REDIS_URL": "redis://h", "ROUNDELAY_PREFIX": "a b"},
        {"ROUNDELAY_REDIS_URL": "redis://h", "ROUNDELAY_ANSWER_TTL": "1h"},
        {"ROUNDELAY_REDIS_URL": "redis://h", "ROUNDELAY_MAX_MESSAGE_BYTES": "0"},
    ],
)
def test_a_setting_that_cannot_be_read_is_named_without_showing_it(environ):
    with pytest.raises(NotConfigured) as caught:
        read_settings(environ)
    assert "secret" not in str(caught.value)


def test_from_env_makes_a_client_without_connecting(monkeypatch):
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", "redis://:secret@127.0.0.1:1/0")

    client = Client.from_env()

    assert "secret" not in repr(client.get("m1"))
    client.close()
