"""What to do next, and the notes that a step leaves for the reader."""

from dataclasses import dataclass

from roundelay.names import SoftStop, UpdateKind
from roundelay_worker.loop.state import Spent


@dataclass(frozen=True, slots=True)
class Start:
    """Resolve the settings and begin."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask for the turn ``round``, not before ``due_at``; claim attempt ``attempt + 1`` first unless ``begun``."""

    round: int
    attempt: int
    begun: bool
    max_output_tokens: int
    closing: SoftStop | None = None
    nudge: str = ""
    due_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunCall:
    """Run one call of the turn ``round``."""

    round: int
    position: int


@dataclass(frozen=True, slots=True)
class VerifyCall:
    """Ask the tool whether a call in doubt took place."""

    round: int
    position: int


Effect = Start | AskModel | RunCall | VerifyCall


@dataclass(frozen=True, slots=True)
class Note:
    """A durable update in the making; the shell adds number, time and ids. Its fields are those of the update."""

    kind: UpdateKind
    turn: int | None = None
    round: int | None = None
    attempt: int | None = None
    tool: str | None = None
    call: int | None = None
    ok: bool | None = None
    seconds: float | None = None
    code: str | None = None
    closing: SoftStop | None = None
    delay: float | None = None
    spent: Spent | None = None
