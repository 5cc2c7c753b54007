"""The messages in the hands of this process, and the last ones it handed on."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from roundelay.messages import Submission
from roundelay_worker.engine.session import Session, StopReason
from roundelay_worker.loop.language import guess_language
from roundelay_worker.loop.state import Queued, State
from roundelay_worker.store.accepting import FIRST
from roundelay_worker.store.records import Accepted, Arrival, Fence, Loaded, Unread

_REMEMBERED: Final = 60.0
"""Seconds; where several processes share the rounds of a message, each has a copy of what it was."""


class Sessions:
    """Finds a message that this process works on, and remembers those it handed on.

    A round usually comes back to the process that saved the one before; its copy is as good as a load, because
    a claim tells version and writer, and each save is fenced by version.
    """

    def __init__(self, remember: int, wake: Callable[[str, float], None]) -> None:
        self._live: dict[str, Session] = {}
        self._reserved: set[str] = set()
        self._handed_on: OrderedDict[str, tuple[float, Session]] = OrderedDict()
        self._remember = remember
        self._wake = wake
        self._stopping: StopReason | None = None

    def add(self, session: Session) -> None:
        """Note that this process works on a message."""
        self._live[session.message_id] = session
        if self._stopping is not None:
            session.stop(self._stopping)

    def discard(self, session: Session) -> None:
        """Note that this process works on a message no more."""
        if self._live.get(session.message_id) is session:
            del self._live[session.message_id]

    def held(self) -> tuple[str, ...]:
        """Return the ids of the messages that this process works on."""
        return (*self._live, *self._reserved)

    @contextmanager
    def reserved(self, message_id: str) -> Iterator[None]:
        """Hold a message that this process claimed for somebody who is not ready yet."""
        self._reserved.add(message_id)
        try:
            yield
        finally:
            self._reserved.discard(message_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._live.values()))

    def stop(self, message_id: str, reason: StopReason) -> bool:
        """Interrupt a message that this process works on; False if it does not."""
        session = self._live.get(message_id)
        if session is None:
            return False
        session.stop(reason)
        return True

    def stop_all(self, reason: StopReason) -> None:
        """Interrupt all that this process works on, and all that it begins from now on."""
        self._stopping = reason
        for session in self:
            session.stop(reason)

    def wake_at(self, message_id: str, pause: float) -> None:
        """Have a postponed message looked at when its time has come."""
        self._wake(message_id, pause)

    def remember(self, session: Session) -> None:
        """Keep the working copy of a message that was handed on, for as long as it is likely to come back."""
        session.task = None
        now = time.monotonic()
        self._handed_on[session.message_id] = (now, session)
        self._handed_on.move_to_end(session.message_id)
        while len(self._handed_on) > self._remember or next(iter(self._handed_on.values()))[0] < now - _REMEMBERED:
            self._handed_on.popitem(last=False)

    def recall(self, message_id: str) -> Session | None:
        """Return the working copy of a message that was handed on, and forget it; another process may have gone on."""
        return self._handed_on.pop(message_id, (0.0, None))[1]

    @staticmethod
    def from_loaded(loaded: Loaded, submission: Submission | None = None) -> Session:
        """Return a working copy of what the database has; raise ValidationError if its submission cannot be read."""
        submission = submission or Submission.model_validate_json(loaded.submission)
        state = loaded.state
        if isinstance(state.stage, Queued):
            state = _spoken_to(state, submission)
        return Session(
            message_id=loaded.message_id,
            user_id=loaded.user_id,
            conversation_id=loaded.conversation_id,
            accepted_at=loaded.accepted_at,
            fence=Fence(loaded.message_id, loaded.version, loaded.owner, loaded.attempt),
            state=state,
            saved=loaded.state,
            submission=submission,
            resolved=loaded.resolved,
            executor_dead=loaded.executor_dead,
        )

    @staticmethod
    def from_arrival(arrival: Arrival, accepted: Accepted, fence: Fence) -> Session:
        """Return a working copy of what has just been accepted; raise ValidationError as ``from_loaded`` does."""
        submission = Submission.model_validate_json(arrival.submission)
        return Session(
            message_id=arrival.message_id,
            user_id=arrival.user_id,
            conversation_id=arrival.conversation_id,
            accepted_at=accepted.accepted_at,
            fence=fence,
            state=_spoken_to(FIRST, submission),
            saved=FIRST,
            submission=submission,
            first=accepted.first,
        )


def _spoken_to(state: State, submission: Submission) -> State:
    """Return the state of a message that may end before it starts: its words are for a person."""
    return replace(state, language=submission.language or guess_language(submission.text))


def readable(loaded: Loaded | Unread) -> Submission:
    """Return the submission of a message that is only to be ended; of a newer version, what every version has."""
    try:
        return Submission.model_validate_json(loaded.submission)
    except ValidationError:
        return Submission.model_construct(
            message_id=loaded.message_id, conversation_id=loaded.conversation_id, user_id=loaded.user_id, content=()
        )
