"""Settings: what the environment says, and how its faults are told."""

import json
from pathlib import Path

import pytest

from roundelay_worker.settings import Settings, SettingsError, unknown_names, variable

REDIS = {"ROUNDELAY_REDIS_URL": "redis://127.0.0.1:6379/0"}
SECRET = "sk-do-not-print-me"


def faults_of(**env: str) -> str:
    with pytest.raises(SettingsError) as raised:
        Settings.from_env({**REDIS, **env})
    return str(raised.value)


def test_every_default_of_the_contract_holds_when_only_redis_is_named(tmp_path: Path):
    settings = Settings.from_env({**REDIS, "ROUNDELAY_HOME": str(tmp_path)})

    limits = (settings.max_rounds, settings.context_messages, settings.parallel_reads, settings.repeat_limit)
    times = (settings.connect_timeout, settings.idle_timeout, settings.turn_timeout, settings.tool_timeout)
    assert limits == (10, 20, 4, 3)
    assert times == (10, 180, 300, 30)
    assert (settings.message_timeout, settings.queue_timeout, settings.answer_ttl) == (1800, None, 86400)
    assert (settings.max_output_tokens, settings.max_total_tokens, settings.model_attempts) == (8192, None, 4)
    assert settings.tool_result_bytes == 65536
    assert settings.database_url == f"sqlite:///{tmp_path}/roundelay.db"
    assert settings.broker_url == REDIS["ROUNDELAY_REDIS_URL"]
    assert settings.model is None


def test_all_faults_are_told_at_once_each_with_its_variable():
    told = faults_of(ROUNDELAY_MAX_ROUNDS="ten", ROUNDELAY_TOOL_TIMEOUT="-1", ROUNDELAY_MODEL="gpt-5")

    assert "ROUNDELAY_MAX_ROUNDS must be a whole number" in told
    assert "ROUNDELAY_TOOL_TIMEOUT must be more than 0" in told
    assert "ROUNDELAY_MODEL: a model is written provider:model" in told


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("ROUNDELAY_IDLE_TIMEOUT", "soon", "must be a number (times are in seconds)"),
        ("ROUNDELAY_IDLE_TIMEOUT", "inf", "must be"),
        ("ROUNDELAY_MAX_ROUNDS", "-1", "must be at least 0"),
        ("ROUNDELAY_LEASE", "9999", "must be at most 600"),
        ("ROUNDELAY_LOG_LEVEL", "loud", "must be one of"),
        ("ROUNDELAY_TOOL_MODULES", "shop tools", "must be module names"),
        ("ROUNDELAY_SETUP", "shop.setup", "must be module:function"),
        ("ROUNDELAY_PREFIX", "a/b", "must be 1 to 64 letters"),
        ("ROUNDELAY_REDIS_URL", "localhost:6379", "must begin with redis://"),
        ("ROUNDELAY_DATABASE_URL", "mysql://x", "must begin with sqlite://"),
        ("ROUNDELAY_DATABASE_URL", "sqlite:///:memory:", "must name a file"),
        ("ROUNDELAY_BROKER_URL", "rabbit", "must be a URL"),
        ("ROUNDELAY_CHAT_BASE_URL", "localhost:11434", "must begin with http://"),
    ],
)
def test_a_bad_value_is_told_with_what_to_mend(name: str, value: str, sentence: str):
    told = faults_of(**{name: value})

    assert name in told
    assert sentence in told


@pytest.mark.parametrize(
    "env",
    [
        {"ROUNDELAY_SWEEP": "9"},
        {"ROUNDELAY_CLOSING_RESERVE": "60", "ROUNDELAY_MESSAGE_TIMEOUT": "100"},
        {"ROUNDELAY_RETENTION": "60"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(env: dict[str, str]):
    told = faults_of(**env)

    assert all(name in told for name in env)


def test_without_redis_the_error_says_what_to_set_or_start(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"ROUNDELAY_REDIS_URL is not set: .*roundelay up"):
        Settings.from_env({"ROUNDELAY_HOME": str(tmp_path)})


def test_no_secret_is_in_the_repr_or_in_an_error():
    env = {
        "OPENAI_API_KEY": SECRET,
        "ROUNDELAY_CHAT_API_KEY": SECRET,
        "ROUNDELAY_REDIS_URL": f"redis://:{SECRET}@127.0.0.1/0",
        "ROUNDELAY_DATABASE_URL": f"postgresql://u:{SECRET}@db/x",
    }

    assert SECRET not in repr(Settings.from_env(env))
    assert SECRET not in faults_of(**{**env, "ROUNDELAY_DATABASE_URL": f"mysql://u:{SECRET}@db/x"})
    assert SECRET not in faults_of(ROUNDELAY_MODEL=SECRET, ROUNDELAY_MAX_ROUNDS=SECRET, ROUNDELAY_LOG_LEVEL=SECRET)


def test_an_empty_variable_is_an_unset_one():
    assert Settings.from_env({**REDIS, "ROUNDELAY_MAX_ROUNDS": " ", "OPENAI_API_KEY": ""}).openai_api_key is None


def test_the_endings_of_base_urls_are_tolerated():
    endings = ("", "/", "/v1", "/v1/", "/v1beta", "/v1beta/")
    urls = {
        Settings.from_env({**REDIS, "OPENAI_BASE_URL": f"https://models.example{end}"}).openai_base_url
        for end in endings
    }

    assert urls == {"https://models.example"}


def test_chat_uses_the_openai_pair_only_if_its_own_url_is_unset():
    openai = {"OPENAI_API_KEY": "a", "OPENAI_BASE_URL": "https://a.example"}
    own = {"ROUNDELAY_CHAT_BASE_URL": "http://127.0.0.1:11434/v1"}

    borrowed = Settings.from_env({**REDIS, **openai}).endpoint("chat")
    alone = Settings.from_env({**REDIS, **openai, **own}).endpoint("chat")

    assert (borrowed.base_url, borrowed.api_key and borrowed.api_key.get_secret_value()) == ("https://a.example", "a")
    assert (alone.base_url, alone.api_key) == ("http://127.0.0.1:11434/v1", None)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434/v1"),
        ("https://models.example/api/v3/", "https://models.example/api/v3"),
    ],
)
def test_a_chat_server_keeps_the_path_it_was_given(given: str, kept: str):
    assert Settings.from_env({**REDIS, "ROUNDELAY_CHAT_BASE_URL": given}).chat_base_url == kept


def test_google_reads_either_name_of_its_key():
    env = {**REDIS, "GOOGLE_API_KEY": "g"}

    key = Settings.from_env(env).endpoint("google").api_key
    both = Settings.from_env({**env, "GEMINI_API_KEY": "first"}).endpoint("google").api_key

    assert key is not None
    assert both is not None
    assert (key.get_secret_value(), both.get_secret_value()) == ("g", "first")


def test_the_addresses_of_a_running_up_are_used_when_no_url_is_set(tmp_path: Path):
    addresses = {"redis_url": "redis://:p@127.0.0.1:7000/0", "database_url": "sqlite:////x.db", "prefix": "up"}
    (tmp_path / "addresses.json").write_text(json.dumps({**addresses, "flower_url": "http://127.0.0.1:5555"}))
    home = {"ROUNDELAY_HOME": str(tmp_path)}

    found = Settings.from_env(home)
    overruled = Settings.from_env({**home, **REDIS})

    assert (found.redis_url, found.broker_url) == (addresses["redis_url"], addresses["redis_url"])
    assert (found.database_url, found.prefix) == ("sqlite:////x.db", "up")
    assert (overruled.redis_url, overruled.prefix) == (REDIS["ROUNDELAY_REDIS_URL"], "roundelay")


def test_a_damaged_addresses_file_is_told_by_its_name(tmp_path: Path):
    (tmp_path / "addresses.json").write_text("{")

    with pytest.raises(SettingsError, match=r"addresses\.json cannot be read"):
        Settings.from_env({"ROUNDELAY_HOME": str(tmp_path)})


def test_a_socket_url_becomes_the_brokers_own_form():
    settings = Settings.from_env({"ROUNDELAY_REDIS_URL": "unix:///run/valkey.sock"})

    assert settings.broker_url == "redis+socket:///run/valkey.sock"


def test_the_closing_reserve_is_the_smaller_of_a_minute_and_a_fifth():
    default = Settings.from_env(REDIS)
    chosen = Settings.from_env({**REDIS, "ROUNDELAY_CLOSING_RESERVE": "90"})

    assert (default.closing_reserve_for(1800), default.closing_reserve_for(100)) == (60, 20)
    assert (chosen.closing_reserve_for(1800), chosen.closing_reserve_for(100)) == (90, 50)


def test_a_misspelt_variable_is_found_and_the_likely_one_named():
    env = {"ROUNDELAY_MAX_ROUND": "3", "ROUNDELAY_FLOWER_AUTH": "a:b", variable("lease"): "6"}

    assert unknown_names(env) == ("ROUNDELAY_MAX_ROUND is not a setting; did you mean ROUNDELAY_MAX_ROUNDS?",)


def test_lists_are_split_at_commas_and_trimmed():
    assert Settings.from_env({**REDIS, "ROUNDELAY_TOOL_MODULES": " shop.tools, shop.search ,"}).tool_modules == (
        "shop.tools",
        "shop.search",
    )
