"""What the documents say of the code is true of it."""

import re
from pathlib import Path

import pytest

from roundelay_worker.settings import Settings

ROOT = Path(__file__).parents[3]
DEFAULTS = re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
NAMED = re.findall(r"`([\w/]+\.py)` (test_\w+)", (ROOT / "docs/cases.md").read_text())
IN_THE_CLIENT = ("ANSWER_TTL", "MAX_MESSAGE_BYTES")


def test_every_wait_and_every_message_has_a_limit_by_default_and_the_readme_tells_it():  # D11, D39
    settings = Settings.from_env({"ROUNDELAY_REDIS_URL": "redis://localhost"})
    told = {name: float(value.replace(",", "")) for name, value in DEFAULTS}

    assert told == {name: float(getattr(settings, name.lower())) for name in told}
    assert {"CONNECT_TIMEOUT", "IDLE_TIMEOUT", "TURN_TIMEOUT", "TOOL_TIMEOUT", "MESSAGE_TIMEOUT"} <= told.keys()
    assert {"MAX_ROUNDS", "REPEAT_LIMIT", "MODEL_ATTEMPTS", *IN_THE_CLIENT} <= told.keys()
    assert all(told.values())


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_the_tests_that_hold_the_cases_are_there(file: str, name: str):
    found = [path for folder in ("tests", "tests/acceptance") if (path := ROOT / folder / file).exists()]

    assert found, file
    assert any(f"def {name}(" in path.read_text() for path in found)
