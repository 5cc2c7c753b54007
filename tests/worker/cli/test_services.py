"""Worker, beat and Flower: what is started, and that no door is left open."""

from importlib.metadata import version
from pathlib import Path

import pytest
from hatchling.build import prepare_metadata_for_build_wheel

from roundelay_worker.cli import main
from roundelay_worker.cli.flower import flower_auth, flower_command, flower_env
from roundelay_worker.cli.parser import parser
from roundelay_worker.cli.programs import worker_jobs
from roundelay_worker.settings import Settings, SettingsError

ROOT = Path(__file__).parents[3]
SETTINGS = Settings.from_env({"ROUNDELAY_REDIS_URL": "redis://:hidden@127.0.0.1/0", "ROUNDELAY_CONCURRENCY": "7"})


def test_each_worker_process_has_a_name_of_its_own_and_the_threads_pool():
    first, second = worker_jobs(2, SETTINGS, {})

    names = [job.command[job.command.index("--hostname") + 1] for job in (first, second)]
    assert names[0] != names[1]
    assert first.command[first.command.index("--pool") + 1] == "threads"
    assert first.command[first.command.index("--concurrency") + 1] == "7"
    assert "hidden" not in " ".join(first.command)


def test_slots_given_on_the_command_line_reach_the_workers_settings():
    (job,) = worker_jobs(1, SETTINGS, {"ROUNDELAY_CONCURRENCY": "7"}, concurrency=3, logs=Path("/logs"))

    assert job.env["ROUNDELAY_CONCURRENCY"] == "3"
    assert job.log == Path("/logs/worker-1.log")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_flower_on_the_loopback_without_a_password_can_only_show(address: str):
    auth = flower_auth(address, {})

    assert auth == ""
    assert flower_env({}, auth)["FLOWER_READ_ONLY"] == "true"


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.5", "::", "", "flower.example"])
def test_flower_anywhere_else_always_has_a_password(address: str):
    auth = flower_auth(address, {})

    user, _, password = auth.partition(":")
    assert user == "roundelay"
    assert len(password) >= 16
    assert auth != flower_auth(address, {})


@pytest.mark.parametrize("auth", ["admin", "admin:", ":secret", "a:b,c"])
def test_a_password_that_closes_no_door_is_refused(auth: str):
    with pytest.raises(SettingsError, match="ROUNDELAY_FLOWER_AUTH must be user:password") as raised:
        flower_auth("127.0.0.1", {"ROUNDELAY_FLOWER_AUTH": auth})

    assert "secret" not in str(raised.value)


def test_no_variable_of_flowers_own_opens_another_door():
    env = {"FLOWER_ADDRESS": "0.0.0.0", "FLOWER_UNAUTHENTICATED_API": "1", "FLOWER_BASIC_AUTH": "", "FLOWER_DEBUG": "0"}

    handed_down = flower_env(env, "me:pw")

    assert handed_down == {"FLOWER_DEBUG": "0", "FLOWER_BASIC_AUTH": "me:pw"}
    assert not [word for word in flower_command("127.0.0.1", 5555) if "pw" in word]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["sing"],
        ["ask"],
        ["worker", "--processes", "0"],
        ["worker", "--concurrency", "many"],
        ["ask", "hi", "--timeout", "soon"],
        ["prune", "--older-than", "-1"],
        ["cancel"],
        ["flower", "--port", "70000"],
    ],
)
def test_wrong_words_are_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        main(words)

    assert left.value.code == 2
    assert "usage: roundelay" in capsys.readouterr().err


def test_every_command_has_its_help():
    for name in ("demo", "up", "worker", "beat", "flower", "ask", "show", "cancel", "doctor", "prune", "healthz"):
        with pytest.raises(SystemExit) as left:
            parser().parse_args([name, "--help"])
        assert left.value.code == 0


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert left.value.code == 0
    assert capsys.readouterr().out == f"roundelay {version('roundelay-worker')}\n"


@pytest.mark.parametrize("part", ["shared", "worker"])
def test_a_wheel_tells_what_it_holds(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT / part)

    made = tmp_path / prepare_metadata_for_build_wheel(str(tmp_path))
    told = (made / "METADATA").read_text()

    assert "Description-Content-Type: text/markdown" in told
    assert "# roundelay" in told


@pytest.mark.parametrize("words", [["up"], ["beat"]])
def test_a_home_that_cannot_be_made_is_told_with_exit_code_2(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ROUNDELAY_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", "redis://127.0.0.1:1/0")

    assert main(words) == 2
    assert "ROUNDELAY_HOME: the folder" in capsys.readouterr().err


def test_settings_that_cannot_be_used_are_told_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", "redis://127.0.0.1")
    monkeypatch.setenv("ROUNDELAY_MAX_ROUNDS", "ten")

    assert main(["worker"]) == 2
    assert "ROUNDELAY_MAX_ROUNDS must be a whole number" in capsys.readouterr().err
