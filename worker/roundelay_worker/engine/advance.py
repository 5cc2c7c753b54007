"""One subtask: take a message, do its round, hand it on. The only caller of ``step``.

Decide, save, act: every event is stepped into the working copy, and what a step decided is saved before
anything outside can depend on it. A save holds only while the row is still ours; one that does not ends
the session without a trace, because somebody else goes on from what was saved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import ValidationError
from redis.exceptions import RedisError

from roundelay_worker.delivery.publisher import Publisher
from roundelay_worker.engine.ending import INTERNAL, WORKER_LOST, Ender, apply
from roundelay_worker.engine.inbox import Acceptor, Entry
from roundelay_worker.engine.model_request import estimated_tokens, model_request
from roundelay_worker.engine.opening import Opener, Opening
from roundelay_worker.engine.perform import Performer
from roundelay_worker.engine.saving import FenceLost, Saver, unbroken
from roundelay_worker.engine.session import RoundEnd, Session, Setup, Told
from roundelay_worker.engine.sessions import Sessions
from roundelay_worker.engine.setup import BetterElsewhere, CannotStart, Resolver
from roundelay_worker.engine.tool_calls import TurnCalls
from roundelay_worker.loop.effects import AskModel, RunCall, Start, VerifyCall
from roundelay_worker.loop.events import (
    AttemptBegan,
    CancelAsked,
    Condemned,
    OwnerLost,
    TimePassed,
    TurnFailed,
)
from roundelay_worker.loop.state import STATE_VERSION, Asking, Ended, Failure
from roundelay_worker.loop.step import todo
from roundelay_worker.process.clock import Clock
from roundelay_worker.providers.base import ModelFailure
from roundelay_worker.store.errors import BrokenState, StoreUnavailable
from roundelay_worker.store.processes import DOUBTED, GIVEN_UP
from roundelay_worker.store.records import (
    Claim,
    Dispatch,
    HandOn,
    Keep,
    Postpone,
    Refused,
)
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)
T = TypeVar("T")
Isolate = Callable[[Callable[[], Awaitable[Dispatch | None]]], Awaitable[tuple[Dispatch, ...]]]
"""Has a child process run the dispatch that it asks for once it is ready; returns what to send when it has died."""

_OUTBOX_AT_ONCE = 100
SHORT_PAUSE = 1.0
"""Seconds; a shorter back-off is waited out, a longer one frees the slot and is a due time in the database."""
LEFT_FOR = 0.5
"""Seconds before a message that was left to another worker is offered to all again."""
LOSSES_TO_QUARANTINE = DOUBTED
LOSSES_TO_GIVE_UP = GIVEN_UP
"""Losses at one saved step: after two lost leases the message runs alone in a child process."""


class Advance:
    """Runs rounds of messages for this process; ``isolate`` is None in a process that is itself a quarantine."""

    def __init__(
        self,
        store: Store,
        acceptor: Acceptor,
        performer: Performer,
        publisher: Publisher,
        resolver: Resolver,
        sessions: Sessions,
        clock: Clock,
        process_id: str,
        isolate: Isolate | None,
    ) -> None:
        self._store = store
        self._acceptor = acceptor
        self._performer = performer
        self._resolver = resolver
        self._sessions = sessions
        self._clock = clock
        self._process_id = process_id
        self._saver = Saver(store, publisher, process_id)
        self._calls = TurnCalls(store, performer, self._saver, clock, apply)
        self._opener = Opener(store, sessions, process_id)
        self.ender = Ender(store, self._saver, clock)
        self._isolate = isolate

    async def run(self, message_id: str, dispatch: int, *, new: bool = False) -> RoundEnd:
        """Do one round of a message; return what is to be sent and shown. Stale and repeated tasks do nothing.

        ``new`` says that the database may not have the message yet.
        """
        entry = await self._accept(message_id) if new else None
        opening = self._opener.begin(message_id, dispatch, entry)
        claim = await self._store.claim(
            message_id, self._process_id, dispatch=dispatch, max_state_version=STATE_VERSION
        )
        if isinstance(claim, Refused):
            return RoundEnd(await self._refused(message_id, claim))
        self._clock.seen(claim.now)
        if LOSSES_TO_QUARANTINE <= claim.losses < LOSSES_TO_GIVE_UP and self._isolate is not None:
            return RoundEnd(await self._quarantine(claim, self._isolate))
        try:
            session = await self._open(claim, opening)
        except BrokenState as broken:
            log.exception("state_unreadable", extra={"message_id": message_id})
            ended = await self.ender.end_unread(broken.unread, Condemned(INTERNAL, self._clock.now()))
            return RoundEnd(ended, Told("failed", INTERNAL.code))
        except ValidationError:
            # A newer client's submission, taken in by a newer worker: the row is left to workers of that version.
            log.warning("submission_unreadable", extra={"message_id": message_id})
            await self._store.hand_over(claim.fence)
            return RoundEnd()
        return RoundEnd(await self._drive(session), session.told)

    async def _accept(self, message_id: str) -> Entry | None:
        """Have the database know a message, from the inbox or from the web apps' outbox."""
        try:
            entry = await self._acceptor.accept(message_id)
            if entry.found == "missing":
                await self._acceptor.take_outbox(_OUTBOX_AT_ONCE)
        except (RedisError, OSError) as exc:
            # A task that is sent again is for a message that the database has.
            log.warning("inbox_unreachable", extra={"message_id": message_id, "error": type(exc).__name__})
            return None
        return entry

    async def _quarantine(self, claim: Claim, isolate: Isolate) -> tuple[Dispatch, ...]:
        """Have a message that may be deadly run where only it can be hurt."""
        with self._sessions.reserved(claim.fence.message_id):
            return await isolate(lambda: self._give_up(claim))

    async def _give_up(self, claim: Claim) -> Dispatch | None:
        dispatch = await self._store.hand_over(claim.fence)
        if dispatch is not None:
            log.warning("message_quarantined", extra={"message_id": dispatch.message_id})
        return dispatch

    async def _refused(self, message_id: str, refused: Refused) -> tuple[Dispatch, ...]:
        if refused.because in {"cancelled", "condemned"}:
            return await self.ender.end_unowned(message_id)
        log.debug("task_dropped", extra={"message_id": message_id, "because": refused.because})
        return ()

    async def _open(self, claim: Claim, opening: Opening) -> Session:
        session = await self._opener.open(claim, opening)
        session.fence = claim.fence
        session.losses = claim.losses
        session.allowed_attempt = claim.fence.attempt
        apply(session, OwnerLost(claim.now))
        return session

    async def _drive(self, session: Session) -> tuple[Dispatch, ...]:
        session.task = asyncio.current_task()
        self._sessions.add(session)
        try:
            return await self._rounds(session)
        except FenceLost:
            log.info("session_fenced", extra={"message_id": session.message_id})
            return ()
        except BetterElsewhere:
            await self._leave(session)
            return ()
        except StoreUnavailable:
            raise
        except Exception:  # a bug of ours must not leave a person without an answer
            log.exception("session_broke", extra={"message_id": session.message_id})
            apply(session, Condemned(INTERNAL, self._clock.now()))
            return await self._end_or_nothing(session)
        except asyncio.CancelledError:
            if session.stopping is None or session.task is None:
                raise
            session.task.uncancel()
            return await self._stopped(session)
        finally:
            self._sessions.discard(session)

    async def _leave(self, session: Session) -> None:
        """Leave a message to the workers that have what it needs; whoever takes it next may be one of them."""
        log.info("left_to_another_worker", extra={"message_id": session.message_id})
        if await self._store.leave(session.fence, LEFT_FOR):
            self._sessions.wake_at(session.message_id, LEFT_FOR)
        session.told = Told("retrying", "left_to_another_worker")

    async def _stopped(self, session: Session) -> tuple[Dispatch, ...]:
        match session.stopping:
            case "cancelled":
                apply(session, CancelAsked(self._clock.now()))
                return await self._end_or_nothing(session)
            case "drained":
                return await self._hand_back(session)
            case _:
                return ()

    async def _hand_back(self, session: Session) -> tuple[Dispatch, ...]:
        """Have somebody else go on from here, with the results that came and are not saved yet."""
        session.told = Told("retrying", "worker_stops", session.state.round)
        try:
            return (await self._saver.save(session, HandOn())).dispatches
        except FenceLost:
            return ()

    async def _end_or_nothing(self, session: Session) -> tuple[Dispatch, ...]:
        try:
            return await self.ender.end(session)
        except FenceLost:
            return ()

    async def _rounds(self, session: Session) -> tuple[Dispatch, ...]:
        if session.losses >= LOSSES_TO_GIVE_UP:
            apply(session, Condemned(WORKER_LOST, self._clock.now()))
        first = session.state.round
        while True:
            stage = session.state.stage
            if isinstance(stage, Ended):
                return await self.ender.end(session)
            if isinstance(stage, Asking) and session.state.round > first:
                return await self._hand_on(session)
            effect = todo(session.state)[0]
            if isinstance(effect, AskModel) and await self._waits(session, effect):
                return ()
            await self._act(session, effect)

    async def _act(self, session: Session, effect: Start | AskModel | RunCall | VerifyCall) -> None:
        if isinstance(effect, Start):
            await self._start(session)
            return
        setup = await self._setup(session)
        if setup is None:
            return
        match effect:
            case AskModel(begun=False):
                await self._begin(session, setup, effect)
            case AskModel():
                await self._ask(session, setup, effect)
            case RunCall() | VerifyCall():
                await self._calls.run(session, setup)

    async def _start(self, session: Session) -> None:
        try:
            setup, started = await self._resolver.start(session, self._clock.now())
        except CannotStart as exc:
            apply(session, Condemned(Failure(exc.code, str(exc)), self._clock.now()))
            return
        session.setup = setup
        apply(session, started)
        await self._saver.save(session, Keep())

    async def _setup(self, session: Session) -> Setup | None:
        if session.setup is None:
            try:
                session.setup = await self._resolver.again(session)
            except CannotStart as exc:
                apply(session, Condemned(Failure(exc.code, str(exc)), self._clock.now()))
        return session.setup

    async def _waits(self, session: Session, wanted: AskModel) -> bool:
        """Wait for a turn's due time: a short pause here, a long one as a due time in the database."""
        pause = (wanted.due_at or 0.0) - self._clock.now()
        if wanted.begun or pause <= 0:
            return False
        if pause > SHORT_PAUSE and wanted.due_at is not None:
            await self._saver.save(session, Postpone(wanted.due_at))
            session.told = Told("retrying", rounds=session.state.round)
            self._sessions.wake_at(session.message_id, pause)
            return True
        if session.notes:
            await self._saver.save(session, Keep())
        await asyncio.sleep(pause)
        return False

    async def _begin(self, session: Session, setup: Setup, wanted: AskModel) -> None:
        """Have an attempt allowed by the database, then by the loop."""
        if session.allowed_attempt is None:
            await self._claim_again(session)
        attempt, session.allowed_attempt = session.allowed_attempt, None
        if attempt is None or isinstance(session.state.stage, Ended):
            return
        estimate = self._estimate(session, setup, wanted) if session.state.limits.max_total_tokens else 0
        apply(session, AttemptBegan(wanted.round, attempt, estimate, self._clock.now()))

    def _estimate(self, session: Session, setup: Setup, wanted: AskModel) -> int:
        try:
            return estimated_tokens(model_request(session.state, setup, wanted, session.conversation_id))
        except ModelFailure:
            return 0  # the request itself fails with the reason, right after

    async def _claim_again(self, session: Session) -> None:
        if session.notes:
            await self._saver.save(session, Keep())
        claim = await unbroken(self._hold(session))
        if isinstance(claim, Claim):
            return
        if claim.because == "cancelled":
            apply(session, CancelAsked(self._clock.now()))
        else:
            raise FenceLost

    async def _hold(self, session: Session) -> Claim | Refused:
        claim = await self._store.claim(
            session.message_id, self._process_id, held=session.fence, max_state_version=STATE_VERSION
        )
        if isinstance(claim, Claim):
            self._clock.seen(claim.now)
            session.fence = claim.fence
            session.allowed_attempt = claim.fence.attempt
        return claim

    async def _ask(self, session: Session, setup: Setup, wanted: AskModel) -> None:
        try:
            request = model_request(session.state, setup, wanted, session.conversation_id)
        except ModelFailure as exc:
            failure = Failure(exc.code, exc.message)
            failed = TurnFailed(wanted.round, wanted.attempt, failure, self._clock.now(), 0.0, sent=False)
            apply(session, failed)
            return
        event = await self._performer.ask(session, setup, wanted, request)
        if isinstance(event, TurnFailed):
            apply(session, TimePassed(self._clock.now()))
        apply(session, event)

    async def _hand_on(self, session: Session) -> tuple[Dispatch, ...]:
        saved = await self._saver.save(session, HandOn())
        session.handed_on = saved.dispatches[0].dispatch
        session.told = Told("going_on", rounds=session.state.round)
        self._sessions.remember(session)
        return saved.dispatches
