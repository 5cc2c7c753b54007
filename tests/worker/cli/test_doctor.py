"""What ``roundelay doctor`` finds, each fault made for real."""

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import redis

from roundelay.names import alive_key, database_key
from roundelay_worker.cli import main
from roundelay_worker.cli.checks import (
    broker_findings,
    model_findings,
    redis_findings,
    settings_findings,
    tool_findings,
)
from roundelay_worker.cli.doctor import examine
from roundelay_worker.cli.findings import Finding
from roundelay_worker.cli.store_checks import overdue_findings
from roundelay_worker.embedded.valkey import running_valkey
from roundelay_worker.settings import Settings
from roundelay_worker.store import Store

pytestmark = pytest.mark.services

KEY = "sk-very-secret"
PLANT = """
from roundelay_worker import tool

@tool(effect="read")
def plant(name: str) -> str:
    \"\"\"Tell of a plant.\"\"\"
    return name
"""


class Silent(BaseHTTPRequestHandler):
    """Refuses everything, as a provider does without a key."""

    def do_HEAD(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as address:
        yield address


@pytest.fixture
def server(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as connection:
        yield connection
        connection.config_set("maxmemory-policy", "noeviction")
        connection.config_set("maxmemory", "0")
        connection.config_set("appendonly", "yes")
        connection.flushall()


@pytest.fixture
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def settings(url: str = "redis://127.0.0.1:1/0", **more: str) -> Settings:
    return Settings.from_env({"ROUNDELAY_REDIS_URL": url, **more})


def faults(found: Iterator[Finding]) -> str:
    return "\n".join(f"{finding.text} -> {finding.mend}" for finding in found if finding.verdict == "fault")


def nobodys_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_a_server_as_it_should_be_has_no_fault(url: str, server: redis.Redis):
    assert faults(redis_findings(settings(url))) == ""


def test_a_server_that_evicts_is_a_fault(url: str, server: redis.Redis):
    server.config_set("maxmemory-policy", "allkeys-lru")

    assert "maxmemory-policy is allkeys-lru -> set maxmemory-policy noeviction" in faults(redis_findings(settings(url)))


def test_a_server_that_keeps_nothing_is_a_fault(url: str, server: redis.Redis):
    server.config_set("appendonly", "no")

    assert "persistence is off -> set appendonly yes" in faults(redis_findings(settings(url)))


def test_a_server_that_is_nearly_full_is_worth_knowing(url: str, server: redis.Redis):
    server.config_set("maxmemory", str(server.info()["used_memory"] + 100_000))

    assert [finding.text for finding in redis_findings(settings(url)) if finding.verdict == "note"]


def test_a_server_that_does_not_answer_is_a_fault_and_so_is_a_wrong_password(url: str):
    away = faults(redis_findings(settings(f"redis://127.0.0.1:{nobodys_port()}/0")))
    closed = faults(redis_findings(settings(url.replace(url.split("@", maxsplit=1)[0], "redis://:wrong"))))

    assert "does not answer (ConnectionError) -> check ROUNDELAY_REDIS_URL" in away
    assert "put the right user and password into ROUNDELAY_REDIS_URL" in closed


def test_a_broker_of_its_own_is_reached_for(url: str):
    away = settings(url, ROUNDELAY_BROKER_URL=f"amqp://u:{KEY}@127.0.0.1:{nobodys_port()}//")
    near = settings(url, ROUNDELAY_BROKER_URL=url.removesuffix("0") + "1")

    assert "check ROUNDELAY_BROKER_URL" in faults(broker_findings(away))
    assert KEY not in faults(broker_findings(away))
    assert faults(broker_findings(near)) == ""


def test_a_tool_module_that_cannot_be_imported_is_a_fault():
    assert "nowhere.tools cannot be imported" in faults(tool_findings(settings(ROUNDELAY_TOOL_MODULES="nowhere.tools")))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, where its commands are typed; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    return tmp_path


def test_tool_modules_are_found_where_a_worker_finds_them_in_the_working_folder(project: Path):
    (project / "garden_tools.py").write_text(PLANT)

    found = list(tool_findings(settings(ROUNDELAY_TOOL_MODULES="garden_tools")))

    assert faults(iter(found)) == ""
    assert "plant" in found[0].text


def test_tool_modules_are_imported_after_the_setup_that_they_need(project: Path):
    (project / "yard_setup.py").write_text("ready = False\ndef begin():\n    global ready\n    ready = True\n")
    (project / "yard_tools.py").write_text(f"import yard_setup\nassert yard_setup.ready\n{PLANT}")
    asked = {"ROUNDELAY_TOOL_MODULES": "yard_tools", "ROUNDELAY_SETUP": "yard_setup:begin"}

    assert faults(tool_findings(settings(**asked))) == ""


@pytest.mark.parametrize("setup", ["nowhere:begin", "os:nothing_of_it"])
def test_a_setup_that_cannot_be_called_is_a_fault(setup: str):
    assert "ROUNDELAY_SETUP" in faults(tool_findings(settings(ROUNDELAY_SETUP=setup)))


def test_a_tool_that_no_model_could_be_told_of_is_a_fault(project: Path):
    (project / "odd_tools.py").write_text(PLANT.replace("plant", "p" * 65))

    assert "p" * 65 in faults(tool_findings(settings(ROUNDELAY_TOOL_MODULES="odd_tools")))


def test_a_missing_key_is_a_fault_that_names_its_variable(provider: str):
    found = faults(model_findings(settings(ROUNDELAY_MODEL="anthropic:x", ANTHROPIC_BASE_URL=provider)))

    assert "anthropic:x needs a key -> set ANTHROPIC_API_KEY" in found


@pytest.mark.parametrize("key", [f'"{KEY}"', f"{KEY} x", f"{KEY}\u200b"])
def test_a_key_that_was_pasted_badly_is_a_fault_without_being_shown(provider: str, key: str):
    found = list(model_findings(settings(ROUNDELAY_MODEL="openai:x", OPENAI_BASE_URL=provider, OPENAI_API_KEY=key)))

    assert "paste the key again" in faults(iter(found))
    assert KEY not in str(found)


def test_a_server_of_ones_own_needs_no_key(provider: str):
    assert faults(model_findings(settings(ROUNDELAY_MODEL="chat:x", ROUNDELAY_CHAT_BASE_URL=provider))) == ""


def test_a_model_server_that_cannot_be_reached_is_a_fault():
    nowhere = f"http://127.0.0.1:{nobodys_port()}"

    found = faults(model_findings(settings(ROUNDELAY_MODEL="chat:x", ROUNDELAY_CHAT_BASE_URL=nowhere)))

    assert "127.0.0.1 cannot be reached -> check the base URL" in found


def test_misspelt_variables_and_a_missing_model_are_worth_knowing(tmp_path: Path):
    env = {"ROUNDELAY_REDIS_URL": "redis://127.0.0.1/0", "ROUNDELAY_HOME": str(tmp_path), "ROUNDELAY_MAX_ROUND": "3"}

    notes = [found.text for found in settings_findings(Settings.from_env(env), env) if found.verdict == "note"]

    assert notes[0] == "ROUNDELAY_MAX_ROUND is not a setting; did you mean ROUNDELAY_MAX_ROUNDS?"
    assert "ROUNDELAY_MODEL is not set" in notes


async def _register(database_url: str) -> None:
    store = await Store.open(database_url)
    await store.migrate()
    await store.register("worker-1", "host", os.getpid(), 60.0)
    await store.close()


def test_a_database_without_tables_is_a_fault_and_without_workers_worth_knowing(
    url: str, server: redis.Redis, tmp_path: Path
):
    env = {"ROUNDELAY_REDIS_URL": url, "ROUNDELAY_HOME": str(tmp_path), "ROUNDELAY_MODEL": "demo:rules"}

    missing = faults(examine(env))
    is_made = (tmp_path / "roundelay.db").exists()
    (tmp_path / "roundelay.db").touch()
    empty = faults(examine(env))
    asyncio.run(_register(Settings.from_env(env).database_url))
    filled = list(examine(env))

    assert f"there is no SQLite file {tmp_path}/roundelay.db: the first worker makes it" in missing
    assert not is_made, "who only looks makes nothing"
    assert "start a worker once" in empty
    assert faults(iter(filled)) == ""
    assert ("workers", "1 alive") in [(finding.what, finding.text) for finding in filled]


def test_a_prefix_that_belongs_to_another_database_is_a_fault(url: str, server: redis.Redis, tmp_path: Path):
    env = {"ROUNDELAY_REDIS_URL": url, "ROUNDELAY_HOME": str(tmp_path), "ROUNDELAY_MODEL": "demo:rules"}
    asyncio.run(_register(Settings.from_env(env).database_url))
    server.set(database_key("roundelay"), "another")

    assert "belongs to another database -> give all workers one ROUNDELAY_DATABASE_URL" in faults(examine(env))


def test_a_database_that_cannot_be_reached_is_a_fault_without_its_password(url: str, server: redis.Redis):
    database = f"postgresql://u:{KEY}@127.0.0.1:{nobodys_port()}/x"
    env = {"ROUNDELAY_REDIS_URL": url, "ROUNDELAY_DATABASE_URL": database}

    found = list(examine(env))

    assert "check ROUNDELAY_DATABASE_URL" in faults(iter(found))
    assert KEY not in str(found)


def test_healthz_says_in_one_line_what_is_missing(
    url: str, server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ROUNDELAY_HOME", str(tmp_path))
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", f"redis://127.0.0.1:{nobodys_port()}/0")
    no_redis = (main(["healthz"]), capsys.readouterr().out)
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", url)
    no_file = (main(["healthz"]), capsys.readouterr().out)
    (tmp_path / "roundelay.db").touch()
    no_tables = (main(["healthz"]), capsys.readouterr().out)
    asyncio.run(_register(Settings.from_env(os.environ).database_url))
    healthy = (main(["healthz"]), capsys.readouterr().out)

    assert no_redis == (1, "redis_unreachable: ConnectionError\n")
    assert no_file == (1, "database_unreachable: UnsuitableDatabase\n")
    assert no_tables[0] == 1
    assert no_tables[1].startswith("database_unusable: ")
    assert healthy == (0, "ok\n")


def test_the_findings_can_be_had_as_json(
    url: str, server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ROUNDELAY_HOME", str(tmp_path))
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", url)
    monkeypatch.setenv("ROUNDELAY_MODEL", "demo:rules")

    code = main(["doctor", "--json"])

    found = json.loads(capsys.readouterr().out)
    assert (code, found["healthy"]) == (1, False)
    assert {"verdict", "what", "text", "mend"} == set(found["findings"][0])


def test_healthz_says_when_the_workers_of_this_machine_take_no_work(
    url: str, server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ROUNDELAY_HOME", str(tmp_path))
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", url)
    asyncio.run(_register(Settings.from_env(os.environ).database_url))
    server.set(alive_key("roundelay", f"{socket.gethostname()}-1-a"), "alive")
    idle = (main(["healthz"]), capsys.readouterr().out)
    server.set(alive_key("roundelay", f"{socket.gethostname()}-2-b"), "consuming")

    assert idle == (1, "not_consuming: a worker process lives but takes no work\n")
    assert main(["healthz"]) == 0


def test_no_living_worker_is_a_fault_and_notes_are_not_called_well(
    url: str, server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ROUNDELAY_HOME", str(tmp_path))
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", url)

    async def without_workers() -> None:
        store = await Store.open(Settings.from_env(os.environ).database_url)
        await store.migrate()
        await store.close()

    asyncio.run(without_workers())
    assert "none is alive" in faults(examine(os.environ))
    asyncio.run(_register(Settings.from_env(os.environ).database_url))
    capsys.readouterr()
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("nothing is broken; see the notes\n")  # no model is set


def test_an_overdue_message_is_a_fault():
    assert "3 are past their deadline" in faults(overdue_findings(3))
    assert faults(overdue_findings(0)) == ""
