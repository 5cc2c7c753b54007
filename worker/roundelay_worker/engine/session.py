"""A message in the hands of this process, between claim and hand-on."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from roundelay.messages import Submission
from roundelay.names import Status
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Entry, Exchange
from roundelay_worker.loop.state import State
from roundelay_worker.providers.base import Provider, ToolSpec
from roundelay_worker.store.records import Dispatch, Fence

StopReason = Literal["cancelled", "drained", "lost", "timed_out"]
"""Why a session is stopped from outside: the user, a shutdown, a lost lease, a deadline."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a message runs with, resolved once when it starts and the same for all its requests."""

    provider: Provider
    system: str
    tools: tuple[ToolSpec, ...]
    tool_names: tuple[str, ...]
    submission: Submission
    context: tuple[Entry, ...]
    tool_result_bytes: int
    most_request_bytes: int
    model: str = ""
    asked: str = ""
    """The user's text with the ledger of the job that it continues; '' where that is the text alone."""
    shown: dict[tuple[int, bool, bool], tuple[Exchange, Exchange]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What requests showed of each exchange so far, so that they show the same objects again."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a watcher of tasks is told of a round's end: states and counts, never a word of content."""

    state: Literal["going_on", "retrying"] | Status
    code: str = ""
    rounds: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """What a round came to: the tasks to be sent, and what its own task is to show; None where nothing was done."""

    dispatches: tuple[Dispatch, ...] = ()
    told: Told | None = None


@dataclass(slots=True)
class Session:
    """The working copy of one message: its state, what is not saved yet, and how to stop it.

    ``saved`` is the state that the database has under ``fence``. ``allowed_attempt`` is the number of the attempt
    that the claim allows and that no request was sent for yet, None once it is used.
    """

    message_id: str
    user_id: str
    conversation_id: str
    accepted_at: float
    fence: Fence
    state: State
    saved: State
    submission: Submission
    setup: Setup | None = None
    first: bool = False
    """Nothing was said before in its conversation."""
    resolved: str | None = None
    """What the start resolved, as the database has it; None before."""
    handed_on: int | None = None
    """The dispatch number of the next round, once this process has handed it on."""
    allowed_attempt: int | None = None
    losses: int = 0
    executor_dead: bool = False
    notes: list[tuple[Note, float]] = field(default_factory=list)
    stopping: StopReason | None = None
    task: asyncio.Task[object] | None = None
    told: Told | None = None
    """What its task is to show once the round has ended."""
    step_deadline: float | None = None
    """By the loop's clock: when whatever is awaited now must be over."""

    def stop(self, reason: StopReason) -> None:
        """Interrupt whatever the session waits for; the first reason holds."""
        if self.stopping is None and self.task is not None and not self.task.done():
            self.stopping = reason
            self.task.cancel()
