"""What the distribution offers, and what importing it costs."""

import inspect
import subprocess
import sys
import time

import pytest
from pydantic import ValidationError

import roundelay
from roundelay import Answer, AsyncClient, AsyncJob, Client, Job, MessageState, Submission, Update
from roundelay.testing import AsyncMemoryClient, AsyncMemoryJob, MemoryClient, MemoryJob

PUBLIC = {
    "Answer",
    "AnswerTimeout",
    "AsyncClient",
    "AsyncJob",
    "CallNote",
    "Client",
    "ErrorNote",
    "IdempotencyConflict",
    "InvalidSubmission",
    "Job",
    "MessageNotFound",
    "MessageState",
    "ModelOptions",
    "NotConfigured",
    "Options",
    "RoundelayError",
    "ServiceUnavailable",
    "Submission",
    "UnreadableRecord",
    "Update",
    "Usage",
}


def test_the_public_surface_is_this():
    assert set(roundelay.__all__) == PUBLIC
    assert all(getattr(roundelay, name).__name__ == name for name in PUBLIC)
    assert set(dir(roundelay)) >= PUBLIC
    with pytest.raises(AttributeError, match="no attribute 'Sever'"):
        roundelay.Sever  # noqa: B018


def _verbs(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


def test_both_clients_and_both_handles_have_the_same_verbs():
    assert _verbs(Client) == _verbs(AsyncClient)
    assert _verbs(Job) == _verbs(AsyncJob)
    assert set(_verbs(Client)) == {"from_env", "submit", "get", "nudge", "close"}
    assert set(_verbs(Job)) == {"wait", "follow", "cancel", "state"}


def test_the_clients_in_memory_have_the_verbs_of_the_real_ones():
    for memory, real in ((MemoryClient, Client), (AsyncMemoryClient, AsyncClient)):
        assert _verbs(memory).items() >= {k: v for k, v in _verbs(real).items() if k != "from_env"}.items()
    assert _verbs(MemoryJob) == _verbs(Job)
    assert _verbs(AsyncMemoryJob) == _verbs(AsyncJob)


def test_importing_brings_neither_celery_nor_redis():
    code = "import sys; from roundelay import Client, AsyncClient, Answer; Client('redis://h'); print(*sys.modules)"

    modules = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )

    assert "roundelay.client" in modules
    assert not modules & {"celery", "kombu", "redis", "sqlalchemy"}


def test_the_package_itself_imports_in_no_time():
    started_at = time.monotonic()
    subprocess.run([sys.executable, "-c", "import roundelay"], check=True)

    assert time.monotonic() - started_at < 0.5


@pytest.mark.parametrize("model", [Submission, Answer, Update, MessageState])
def test_what_cannot_be_read_is_not_quoted_in_its_error(model):
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json('{"message_id": ["secret"], "content": [{"type": "secret"}], "at": "secret"}')

    assert "secret" not in str(caught.value)
