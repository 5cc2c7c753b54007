"""What a look at a deployment found: good, bad with what to mend, or worth knowing."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; ``mend`` says what to do about a fault or a note."""

    verdict: Verdict
    what: str
    text: str
    mend: str = ""


def ok(what: str, text: str) -> Finding:
    """Return a finding that is as it should be."""
    return Finding("ok", what, text)


def note(what: str, text: str, mend: str = "") -> Finding:
    """Return a finding that is worth knowing and stops nothing."""
    return Finding("note", what, text, mend)


def fault(what: str, text: str, mend: str) -> Finding:
    """Return a finding that must be mended."""
    return Finding("fault", what, text, mend)
