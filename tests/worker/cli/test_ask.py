"""The commands that a person types, against a real server and a stand-in for the worker."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
import redis

from roundelay import Answer, Client, ErrorNote, Update
from roundelay.names import answer_key, cancels_key, inbox_key, updates_key
from roundelay_worker.cli import main
from roundelay_worker.embedded.child import until
from roundelay_worker.embedded.valkey import running_valkey

pytestmark = pytest.mark.services

Play = Callable[[redis.Redis, str], None]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as address:
        yield address


@pytest.fixture(autouse=True)
def _environment(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", url)
    monkeypatch.setenv("ROUNDELAY_HOME", str(tmp_path))


@contextmanager
def stand_in(url: str, play: Play) -> Iterator[None]:
    """Wait for the next message in the inbox and play the worker for it."""

    def work() -> None:
        with redis.Redis.from_url(url, decode_responses=True) as connection:
            connection.delete(inbox_key("roundelay"))
            ready.set()
            while not (found := connection.zpopmin(inbox_key("roundelay"))):
                time.sleep(0.01)
            play(connection, found[0][0])

    ready = threading.Event()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(5)
    yield
    thread.join(10)
    assert not thread.is_alive()


def end(connection: redis.Redis, message_id: str, status: str = "answered", error: ErrorNote | None = None) -> None:
    now = datetime.now(UTC)
    answer = Answer(
        message_id=message_id, conversation_id="c", status=status, text="It is 42.", error=error, finished_at=now
    )
    update = Update(kind="ended", at=now, message_id=message_id, seq=1, answer=answer)
    connection.set(answer_key("roundelay", message_id), answer.model_dump_json())
    connection.publish(answer_key("roundelay", message_id), answer.model_dump_json())
    connection.xadd(updates_key("roundelay", message_id), {"update": update.model_dump_json()}, id="1-0")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("answered", 0),
        ("round_limit", 3),
        ("token_limit", 3),
        ("timed_out", 3),
        ("no_progress", 3),
        ("failed", 1),
        ("refused", 1),
        ("cancelled", 1),
    ],
)
def test_the_exit_code_says_how_the_message_ended(url: str, status: str, code: int, capsys: pytest.CaptureFixture[str]):
    with stand_in(url, lambda connection, message_id: end(connection, message_id, status)):
        assert main(["ask", "What is it?"]) == code

    told = capsys.readouterr()
    assert told.out == "It is 42.\n"
    assert (status.replace("_", " ") in told.err) == (status != "answered")


def test_a_failure_is_told_with_its_code(url: str, capsys: pytest.CaptureFixture[str]):
    error = ErrorNote(code="quota", message="The account has no credit.")
    with stand_in(url, lambda connection, message_id: end(connection, message_id, "failed", error)):
        main(["ask", "What is it?"])

    assert "quota: The account has no credit." in capsys.readouterr().err


def test_with_json_the_output_is_the_answer_and_nothing_else(url: str, capsys: pytest.CaptureFixture[str]):
    with stand_in(url, end):
        main(["ask", "What is it?", "--json"])

    assert json.loads(capsys.readouterr().out)["status"] == "answered"


def test_a_dash_reads_the_message_from_the_standard_input(url: str, monkeypatch: pytest.MonkeyPatch):
    stored: list[str] = []

    def play(connection: redis.Redis, message_id: str) -> None:
        stored.append(str(connection.get(f"roundelay:message:{message_id}")))
        end(connection, message_id)

    monkeypatch.setattr("sys.stdin", StringIO("from a file"))
    with stand_in(url, play):
        main(["ask", "-", "--user", "u7", "--conversation", "c1", "--max-rounds", "2", "--model", "demo:rules"])

    submission = json.loads(stored[0])
    assert submission["content"] == [{"type": "text", "text": "from a file"}]
    assert (submission["user_id"], submission["conversation_id"]) == ("u7", "c1")
    assert (submission["max_rounds"], submission["model"]) == (2, "demo:rules")


def test_after_the_timeout_it_says_how_to_look_again(capsys: pytest.CaptureFixture[str]):
    assert main(["ask", "What is it?", "--timeout", "0.2"]) == 124
    assert "roundelay show" in capsys.readouterr().err


def test_what_cannot_be_accepted_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert main(["ask", "  "]) == 2
    assert main(["ask", "hello", "--model", "gpt-5"]) == 2
    assert "provider:model" in capsys.readouterr().err


def test_without_any_redis_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("ROUNDELAY_REDIS_URL")

    for words in (["ask", "hello"], ["cancel", "m"], ["show", "m"], ["healthz"]):
        assert main(words) == 2
        assert "roundelay up" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["show", "m"], ["prune"]])
def test_a_database_that_cannot_be_used_is_told_in_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "x.db").write_text("this is no database, and long enough to tell")
    monkeypatch.setenv("ROUNDELAY_DATABASE_URL", f"sqlite:///{tmp_path}/x.db")

    assert main(words) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"roundelay {words[0]}: the SQLite file cannot be used")
    assert "ROUNDELAY_DATABASE_URL" in told
    assert told.count("\n") == 1


def test_cancelling_marks_the_message_and_says_what_became_of_it(url: str, capsys: pytest.CaptureFixture[str]):
    waiting = threading.Event()

    def play(connection: redis.Redis, message_id: str) -> None:
        ids.append(message_id)
        waiting.set()
        assert until(lambda: connection.zscore(cancels_key("roundelay"), message_id) is not None, 5)
        end(connection, message_id, "cancelled")

    ids: list[str] = []
    with stand_in(url, play), Client(url) as client:
        client.submit("hello")
        assert waiting.wait(5)
        assert main(["cancel", ids[0]]) == 0
        assert f"{ids[0]}: cancelled" in capsys.readouterr().out
        assert main(["cancel", ids[0]]) == 1
        assert "had ended: cancelled" in capsys.readouterr().err


def test_an_unknown_message_cannot_be_cancelled(capsys: pytest.CaptureFixture[str]):
    assert main(["cancel", "nobody"]) == 1
    assert "roundelay cancel:" in capsys.readouterr().err
