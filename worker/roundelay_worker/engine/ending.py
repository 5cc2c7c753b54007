"""Ending a message: of a session at its end, or of a message that nobody works on."""

import logging
from dataclasses import replace

from roundelay.names import Status
from roundelay_worker.delivery import render
from roundelay_worker.engine.saving import FenceLost, Saver
from roundelay_worker.engine.session import Session, Told
from roundelay_worker.engine.sessions import Sessions, readable
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.events import CancelAsked, Condemned, Event, TimePassed
from roundelay_worker.loop.language import guess_language
from roundelay_worker.loop.state import Ended, Failure, State
from roundelay_worker.loop.step import step
from roundelay_worker.loop.texts import phrases
from roundelay_worker.process.clock import Clock
from roundelay_worker.store.codec import dumps
from roundelay_worker.store.errors import UnreadableState
from roundelay_worker.store.records import Dispatch, End, HandOn, Unread
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)

INTERNAL = Failure("internal_error", "Roundelay itself failed while working on this message; its log says where.")
BUSY = Failure("busy", "The conversation was busy, and the message was not to wait (on_busy=reject).")
WORKER_LOST = Failure("worker_lost", "The worker was lost again and again at the same step of this message.")


def apply(session: Session, event: Event) -> None:
    """Step an event into the working copy."""
    made = step(session.state, event)
    session.state = made.state
    session.notes.extend((note, event.now) for note in made.notes)


class Ender:
    """Ends messages; a version fence guards each."""

    def __init__(self, store: Store, saver: Saver, clock: Clock) -> None:
        self._store = store
        self._saver = saver
        self._clock = clock

    async def end_unowned(self, message_id: str, event: Event | None = None) -> tuple[Dispatch, ...]:
        """End a message that nobody works on, or whose owner does not react; the version fence guards it."""
        try:
            loaded = await self._store.load(message_id)
        except UnreadableState as newer:
            return await self.end_unread(newer.unread, event)
        if loaded is None or isinstance(loaded.state.stage, Ended):
            return ()
        session = Sessions.from_loaded(loaded, readable(loaded))
        session.fence = replace(session.fence, owner=None, attempt=None)
        now = self._clock.now()
        if event is None:
            event = CancelAsked(now) if loaded.cancel_requested else Condemned(BUSY, now)
        before = session.state
        apply(session, event)
        if session.state is before:
            return ()
        try:
            return await self.end(session) if isinstance(session.state.stage, Ended) else await self._hand_on(session)
        except FenceLost:
            return ()

    async def end_unread(self, unread: Unread, event: Event | None) -> tuple[Dispatch, ...]:
        """End a message whose state cannot be read: cancelled, out of time, or as the event condemns it."""
        now = self._clock.now()
        if isinstance(event, TimePassed) and now < unread.deadline:
            return ()
        status: Status = "cancelled"
        if isinstance(event, TimePassed | Condemned):
            status = "timed_out" if isinstance(event, TimePassed) else "failed"
        submission = readable(unread)
        words = phrases(submission.language or guess_language(submission.text))[status]
        ended = Ended(status, words, now, event.failure if isinstance(event, Condemned) else None)
        state = State(stage=ended, started_at=unread.started_at, seq=unread.seq)
        answer = render.answer(state, submission)
        update = render.update_body(Note("ended"), unread.seq + 1, now, unread.message_id, answer)
        saved = await self._store.end_unread(unread, End(status, dumps(answer)), update)
        return saved.dispatches if saved else ()

    async def _hand_on(self, session: Session) -> tuple[Dispatch, ...]:
        return (await self._saver.save(session, HandOn())).dispatches

    async def end(self, session: Session) -> tuple[Dispatch, ...]:
        """Save a session's end and publish it; return the tasks of what waited for it. Raises FenceLost."""
        stage = session.state.stage
        if not isinstance(stage, Ended):
            raise TypeError("only an ended message is ended")
        answer = render.answer(session.state, session.submission, session.accepted_at)
        saved = await self._saver.save(session, End(stage.status, dumps(answer)), answer)
        session.told = _told(session.state, stage)
        log.info("message_ended", extra={"message_id": session.message_id, "status": stage.status})
        return saved.dispatches


def _told(state: State, ended: Ended) -> Told:
    spent, code = state.spent, ended.failure.code if ended.failure else ""
    return Told(ended.status, code, state.round, spent.input_tokens, spent.output_tokens)
