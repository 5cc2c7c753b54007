"""A request in the fake's own terms: who said what, and what kind of reply is wanted."""

from dataclasses import dataclass
from typing import Literal

from roundelay_worker.testing.fake_llm.refusal import Format


@dataclass(frozen=True, slots=True)
class Said:
    """One thing in a conversation: a text of the user, the results of calls, or ``turns`` replies of the model."""

    kind: Literal["user", "results", "model"]
    text: str = ""
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked: ``room`` is the limit of the reply in tokens, ``closing`` that tools are forbidden.

    ``thinks`` says that reasoning comes signed: not where it is switched off, or its encrypted form is not asked for;
    ``shows`` that its text (or a summary) comes with it.
    """

    format: Format
    model: str
    talk: tuple[Said, ...]
    stream: bool = False
    closing: bool = False
    room: int | None = None
    size: int = 0
    wants_usage: bool = True
    thinks: bool = True
    shows: bool = True
