"""The page about errors names every code that an answer or a tool's result can have, and no other."""

import re
from pathlib import Path
from typing import get_args

from roundelay_worker.loop.texts import FAREWELLS
from roundelay_worker.loop.turns import _DISCARDED, _UNUSABLE
from roundelay_worker.providers.base import FailureCode

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "worker" / "roundelay_worker"
MADE = re.compile(r'\b(?:Failure|CannotStart|failure|settled_error|_retrying\(state, stage,)\(?\s*"([a-z_]+)"')


def codes_in_the_source() -> set[str]:
    files = [file for file in SOURCES.rglob("*.py") if "testing" not in file.parts]
    made = {code for file in files for code in MADE.findall(file.read_text())}
    return made | set(get_args(FailureCode)) | set(_DISCARDED) | set(_UNUSABLE.values())


def codes_on_the_page(until: str = "") -> set[str]:
    page = (ROOT / "docs" / "errors.md").read_text()
    page = page.partition(until)[0] if until else page
    return set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))


def test_the_page_has_a_row_for_each_code_and_no_row_for_none():
    assert codes_on_the_page() == codes_in_the_source()


def test_a_person_is_told_what_helps_against_each_code_of_a_failed_answer():
    assert set(FAREWELLS) == codes_on_the_page(until="## Soft stops are no errors") - {"refused"}
