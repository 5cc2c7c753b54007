"""The page about updates: its programs run as they stand, and its tables are those of the models."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from roundelay._core.validation import Options
from roundelay.names import UpdateKind
from roundelay.updates import UPDATE_MODELS, Update

PAGE = (Path(__file__).parents[2] / "docs" / "updates.md").read_text()
STREAMING, TESTING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def table(heading: str) -> list[list[str]]:
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| `")
    ]
    return [[cell.strip("`") if number < 2 else cell for number, cell in enumerate(row)] for row in rows]


def test_the_page_has_each_kind_with_its_model_and_the_fields_that_only_it_has():
    rows = {kind: (model, set(re.findall(r"`([a-z]+)`", fields))) for kind, model, _, fields in table("The kinds")}

    assert rows.keys() == set(get_args(UpdateKind))
    for kind, (model, told) in rows.items():
        own = set(UPDATE_MODELS[kind].model_fields) - set(Update.model_fields)
        assert (model, own - told) == (UPDATE_MODELS[kind].__name__, set())


def test_the_page_has_each_field_that_all_kinds_have():
    assert [row[0] for row in table("What all have")] == list(Update.model_fields)


def test_the_program_of_the_page_shows_the_text_as_it_is_written():
    body = STREAMING.partition("for update in")[2]
    assert len(body.splitlines()) <= 10

    code = f"""
import roundelay
from roundelay.testing import MemoryClient

class Stand(MemoryClient):
    @classmethod
    def from_env(cls):
        return cls(cls.play)

    def submit(self, text, **options):
        job = super().submit(text, **options)
        for kind, fields in (
            ("turn_started", dict(turn=1)),
            ("text_delta", dict(turn=1, attempt=1, text="It w", offset=0)),
            ("text_reset", dict(turn=1, attempt=2)),
            ("text_delta", dict(turn=1, attempt=2, text="It is", offset=0)),
            ("text_delta", dict(turn=1, attempt=2, text=" 5.", offset=5)),
        ):
            self.report(job.message_id, kind, **fields)
        self.finish(job.message_id, "It is 5.")
        return job

    def play(submission):
        return None

roundelay.Client = Stand
{STREAMING}
print(shown)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.returncode) == ("It is 5.\n", 0), done.stderr
    assert [line for line in done.stderr.splitlines() if line] == ["It w", "It is", "It is 5.", "It is 5."]


def test_the_test_of_the_page_passes():
    exec(compile(TESTING, "docs/updates.md", "exec"), {})


@pytest.mark.parametrize("option", Options.__annotations__)
def test_options_tells_of_each_option(option):
    assert f"``{option}``" in (Options.__doc__ or "")
