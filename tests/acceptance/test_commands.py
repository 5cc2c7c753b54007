"""The commands as a person meets them: real processes, everything embedded, nothing set beforehand."""

import asyncio
import base64
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from roundelay import AsyncClient
from roundelay_worker.embedded.child import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

COMMAND = [sys.executable, "-c", "import sys; from roundelay_worker.cli import main; sys.exit(main())"]
ROOT = Path(__file__).parents[2]
READY_WITHIN = 30.0
SLOW_COUNT = "Count to 1000 one by one with the calculator."


def clean_environment(home: Path) -> dict[str, str]:
    """Return an environment with no setting and no key in it."""
    named = re.compile(r"ROUNDELAY_|OPENAI_|ANTHROPIC_|GEMINI_|GOOGLE_API|FLOWER_")
    kept = {name: value for name, value in os.environ.items() if not named.match(name)}
    return {**kept, "ROUNDELAY_HOME": str(home)}


def roundelay(home: Path, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(home)
    return subprocess.run(
        [*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


@contextmanager
def up(home: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Keep ``roundelay up`` running, from the moment its addresses are known."""
    command = [*COMMAND, "up", "--processes", "1", *words]
    with subprocess.Popen(command, env=clean_environment(home), stdout=subprocess.PIPE, text=True) as process:
        try:
            addresses = home / "addresses.json"
            assert until(lambda: addresses.exists() or process.poll() is not None, READY_WITHIN)
            assert process.poll() is None
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Yield the home of a running ``roundelay up``, shared by the tests that only ask."""
    with tempfile.TemporaryDirectory() as folder, up(Path(folder), "--no-flower"):
        yield Path(folder)


def message_id_in(told: str) -> str:
    found = re.search(r"message (\S+) in conversation", told)
    assert found, told
    return found[1]


def test_demo_shows_rounds_a_cap_and_portuguese_and_leaves_nothing_behind(tmp_path: Path):
    environment = {**clean_environment(tmp_path / "unused"), "TMPDIR": str(tmp_path)}
    shown = subprocess.run(
        [*COMMAND, "demo"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.count("answered: 3 rounds") == 2
    assert "round limit: 5 rounds" in shown.stdout
    assert "Shall I go on?" in shown.stdout
    assert "População do Brasil" in shown.stdout
    assert re.search(r"turn 1 .*\| *#", shown.stdout)
    assert list(tmp_path.iterdir()) == []


def test_ask_answers_over_three_rounds_with_progress_beside_it(home: Path):
    asked = roundelay(home, "ask", "What is 12 * 7, how many miles are 42 km, and what time is it in Tokyo?")

    assert asked.returncode == 0, asked.stderr
    assert "12 * 7 = 84" in asked.stdout
    assert "26.0975" in asked.stdout
    assert "round 3: current_time done" in asked.stderr


def test_ask_answers_in_the_language_of_the_question(home: Path):
    asked = roundelay(home, "ask", "Qual é a população do Brasil? Divida isso por 27.")

    assert asked.returncode == 0, asked.stderr
    assert "milhões" in asked.stdout


def test_an_output_that_knows_few_letters_breaks_nothing(home: Path):
    words = [*COMMAND, "ask", "Qual é a população do Brasil?", "--json"]
    environment = {**clean_environment(home), "PYTHONIOENCODING": "ascii"}
    asked = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert asked.returncode == 0, asked.stderr
    assert "milh?es" in json.loads(asked.stdout)["text"]


def test_a_message_at_its_cap_exits_3_and_going_on_continues_from_there(home: Path):
    count = ("Count to 5 one by one with the calculator.", "--conversation", "cap")
    capped = roundelay(home, "ask", *count, "--max-rounds", "3", "--json")
    going_on = roundelay(home, "ask", "Yes, go on.", "--conversation", "cap", "--json")

    answer = json.loads(capped.stdout)
    assert capped.returncode == 3
    assert (answer["status"], answer["rounds"]) == ("round_limit", 3)
    assert [call["name"] for call in answer["undone"]] == ["calculator"]
    assert going_on.returncode == 0, going_on.stderr
    assert json.loads(going_on.stdout)["rounds"] == 2


def test_show_draws_the_timeline_of_a_message(home: Path):
    message_id = message_id_in(roundelay(home, "ask", "What is 2 + 3, and what time is it in UTC?").stderr)

    drawn = roundelay(home, "show", message_id)
    written = json.loads(roundelay(home, "show", message_id, "--json").stdout)

    assert drawn.returncode == 0, drawn.stderr
    assert re.search(r"turn 2 +\d+\.\d{3} s \|", drawn.stdout)
    assert "answered: 2 rounds" in drawn.stdout
    assert [span["name"].strip() for span in written["spans"]] == [
        "waiting",
        "turn 1",
        "calculator",
        "turn 2",
        "current_time",
        "turn 3",
    ]
    assert written["answer"]["status"] == "answered"


def test_show_of_an_unknown_message_says_so(home: Path):
    shown = roundelay(home, "show", "nobody")

    assert shown.returncode == 1
    assert "knows no message nobody" in shown.stderr


def test_cancel_ends_a_running_message(home: Path):
    words = [*COMMAND, "ask", SLOW_COUNT, "--max-rounds", "1000", "--model", "demo:slow"]
    environment = clean_environment(home)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        assert asking.stderr is not None
        message_id = message_id_in(asking.stderr.readline())
        assert until(lambda: "round 2" in str(asking.stderr.readline() if asking.stderr else ""), 20)

        cancelled = roundelay(home, "cancel", message_id)
        _, told = asking.communicate(timeout=20)

    assert cancelled.returncode == 0, cancelled.stderr
    assert cancelled.stdout.strip() == f"{message_id}: cancelled"
    assert asking.returncode == 1
    assert "cancelled" in told


def test_ctrl_c_cancels_the_message_that_was_asked(home: Path):
    words = [*COMMAND, "ask", SLOW_COUNT, "--max-rounds", "1000", "--model", "demo:slow"]
    environment = clean_environment(home)
    # A shell starts what it puts in the background with SIGINT ignored, and whoever is started then ignores it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        assert asking.stderr is not None
        message_id = message_id_in(asking.stderr.readline())
        assert until(lambda: "round 2" in str(asking.stderr.readline() if asking.stderr else ""), 20)
        asking.send_signal(signal.SIGINT)
        asking.communicate(timeout=20)

    assert asking.returncode == 1
    assert json.loads(roundelay(home, "show", message_id, "--json").stdout)["answer"]["status"] == "cancelled"


def test_ctrl_c_while_a_command_is_being_loaded_ends_it_without_a_traceback(tmp_path: Path):
    (tmp_path / "pydantic.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(9)"
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as above
    environment = {**clean_environment(tmp_path), "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [*COMMAND, "doctor"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert (ended.returncode, ended.stderr) == (130, "")


def test_ask_gives_up_waiting_with_124_and_the_message_goes_on(home: Path):
    words = ("ask", SLOW_COUNT, "--max-rounds", "1000", "--model", "demo:slow", "--timeout", "0.5")
    asked = roundelay(home, *words)

    message_id = message_id_in(asked.stderr)
    assert asked.returncode == 124
    assert "not ended yet" in roundelay(home, "show", message_id).stdout
    assert roundelay(home, "cancel", message_id).returncode == 0


def test_doctor_finds_nothing_to_mend_beside_a_running_up(home: Path):
    assert until(lambda: roundelay(home, "healthz").returncode == 0, READY_WITHIN)

    looked = roundelay(home, "doctor")

    assert looked.returncode == 0, looked.stdout
    assert "nothing is broken" in looked.stdout  # no model is set in this shell, which is a note
    assert re.search(r"workers: 1 alive", looked.stdout)


def test_doctor_says_what_to_mend_where_nothing_runs(tmp_path: Path):
    looked = roundelay(tmp_path, "doctor")

    assert looked.returncode == 1
    assert "ROUNDELAY_REDIS_URL is not set" in looked.stdout
    assert "roundelay up" in looked.stdout


def test_a_second_up_on_one_home_is_refused(home: Path):
    refused = roundelay(home, "up", "--no-flower")

    assert refused.returncode == 1
    assert f"already runs on {home}" in refused.stderr


def test_up_announces_itself_privately_and_takes_everything_back_at_its_end(tmp_path: Path):
    with up(tmp_path, "--no-flower") as process:
        mode = (tmp_path / "addresses.json").stat().st_mode & 0o777
        told = process.stdout.readline() if process.stdout else ""
        healthy = roundelay(tmp_path, "healthz")
        process.send_signal(signal.SIGINT)
        code = process.wait(60)

    assert mode == 0o600
    assert code == 0
    assert "roundelay is up" in told
    assert (healthy.returncode, healthy.stdout) == (0, "ok\n")
    assert not (tmp_path / "addresses.json").exists()


def test_an_up_whose_workers_cannot_start_says_why_and_ends(tmp_path: Path):
    (tmp_path / "odd_tools.py").write_text("raise RuntimeError('no shop')\n")
    environment = {**clean_environment(tmp_path / "home"), "ROUNDELAY_TOOL_MODULES": "odd_tools"}
    command = [*COMMAND, "up", "--no-flower"]
    ended = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "odd_tools cannot be imported: RuntimeError: no shop (odd_tools.py:1)" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "home" / "addresses.json").exists()


def is_running(pid: str) -> bool:
    """Tell whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(300)
def test_a_killed_up_leaves_no_process_and_the_next_one_finishes_its_message(tmp_path: Path):
    words = ("ask", "Count to 40 one by one with the calculator.", "--max-rounds", "40", "--model", "demo:slow")
    with up(tmp_path, "--no-flower") as process:
        asked = roundelay(tmp_path, *words, "--timeout", "1.5")
        message_id = message_id_in(asked.stderr)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.wait()
        assert until(lambda: not any(map(is_running, children)), 100)  # their grace is 30 s

    with up(tmp_path, "--no-flower"):
        assert until(lambda: '"answered"' in roundelay(tmp_path, "show", message_id, "--json").stdout, 60)


def test_flower_beside_up_answers_on_the_loopback_only(tmp_path: Path):
    with up(tmp_path):
        url = json.loads((tmp_path / "addresses.json").read_text())["flower_url"]
        page = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"

        def answers() -> bool:
            asked = subprocess.run([sys.executable, "-c", page, url], capture_output=True, text=True, check=False)
            return asked.stdout.strip() == "200"

        assert until(answers, READY_WITHIN)
        listening = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=False).stdout
        port = url.rpartition(":")[2]
        assert f"0.0.0.0:{port}" not in listening
        assert f"*:{port}" not in listening


def status_of(url: str, auth: str = "") -> int:
    """Return what a web server says to these credentials; 0 if there is none."""
    word = {"Authorization": f"Basic {base64.b64encode(auth.encode()).decode()}"} if auth else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=word), timeout=5) as reply:
            return reply.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
    except OSError:
        return 0


def test_flower_that_others_may_reach_asks_everyone_for_its_password(home: Path):  # H3
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    env = {**clean_environment(home), "ROUNDELAY_FLOWER_AUTH": "me:pw"}
    with subprocess.Popen([*COMMAND, "flower", "--address", "0.0.0.0", "--port", str(port)], env=env) as flower:
        try:
            assert until(lambda: status_of(url), READY_WITHIN)
            assert [status_of(f"{url}{page}") for page in ("/", "/api/workers", "/tasks")] == [401] * 3
            assert [status_of(url, auth) for auth in ("me:wrong", "me:pw")] == [401, 200]
        finally:
            flower.terminate()


def test_the_compose_file_shows_flower_to_this_host_only_and_with_a_password():  # H3
    compose = (ROOT / "docker-compose.yml").read_text()
    assert 'ports: ["127.0.0.1:5555:5555"]' in compose
    assert "ROUNDELAY_FLOWER_AUTH: roundelay:${FLOWER_PASSWORD:?" in compose


def test_pruning_forgets_what_ended_before(tmp_path: Path):
    with up(tmp_path, "--no-flower"):
        message_id = message_id_in(roundelay(tmp_path, "ask", "What is 2 + 3?").stderr)
        pruned = roundelay(tmp_path, "prune", "--older-than", "0")

        assert pruned.stdout.strip() == "1 messages deleted"
        assert roundelay(tmp_path, "show", message_id).returncode == 1


def test_the_readmes_example_runs_as_it_stands(home: Path):
    example = re.search(r"```python\n(from roundelay import Client.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example
    script = f"{example[1]}\nprint(answer.status)"

    shown = subprocess.run(
        [sys.executable, "-c", script], env=clean_environment(home), capture_output=True, text=True, check=False
    )

    assert shown.stdout.strip() == "answered", shown.stderr


def test_the_example_web_app_submits_streams_and_reconnects(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROUNDELAY_HOME", str(home))
    app = runpy.run_path(str(ROOT / "examples" / "web_app.py"))["app"]

    async def visit() -> tuple[str, str, int]:
        async with AsyncClient.from_env() as client:
            state = {"roundelay": client}
            body = json.dumps({"text": "What is 2 + 3, and what time is it in UTC?"})
            _, submitted = await request(app, state, "POST", "/messages", body.encode())
            place = f"/messages/{json.loads(submitted)['message_id']}/updates"
            _, whole = await request(app, state, "GET", place)
            _, rest = await request(app, state, "GET", place, last_seen=b"3")
            missing, _ = await request(app, state, "GET", "/messages/nobody/updates")
            return whole, rest, missing

    whole, rest, missing = asyncio.run(visit())

    numbers = [int(number) for number in re.findall(r"^id: (\d+)$", whole, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "event: ended" in whole
    assert re.findall(r"^id: (\d+)$", rest, re.MULTILINE)[0] == "4"
    assert missing == 404


async def request(
    app: Any, state: dict[str, Any], method: str, path: str, body: bytes = b"", last_seen: bytes = b""
) -> tuple[int, str]:
    """Put one request to an ASGI app; return its status and body."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    headers = [(b"cookie", b"user=u1"), *([(b"last-event-id", last_seen)] if last_seen else [])]
    await app({"type": "http", "method": method, "path": path, "headers": headers, "state": state}, receive, send)
    return said[0]["status"], b"".join(message.get("body", b"") for message in said).decode()
