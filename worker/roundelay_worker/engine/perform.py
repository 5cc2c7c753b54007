"""Doing one effect, and saying what happened as an event. Nothing is decided here."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from roundelay.updates import TextReset, ToolProgress
from roundelay_worker.delivery.publisher import Publisher
from roundelay_worker.delivery.render import moment, tool_name
from roundelay_worker.engine.call_ids import CallId
from roundelay_worker.engine.session import Session, Setup
from roundelay_worker.loop.effects import AskModel
from roundelay_worker.loop.events import CallFinished, CallVerified, TurnArrived, TurnFailed
from roundelay_worker.loop.moves import settled_error
from roundelay_worker.loop.state import CallPlan, Failure, Running, ToolWords
from roundelay_worker.loop.surrogates import readable
from roundelay_worker.process.clock import Clock
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience
from roundelay_worker.tools.context import ToolContext
from roundelay_worker.tools.registry import Registry
from roundelay_worker.tools.run.runner import ToolRunner

log = logging.getLogger(__name__)


_TOO_SLOW: Final = (
    "The model did not finish its turn within {limit:.0f} s (turn_timeout, or what was left of the message's time)."
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take, in seconds."""

    connect: float
    idle: float
    turn: float
    tool: float


class Performer:
    """Asks models and runs tools for the sessions of this process."""

    def __init__(
        self,
        registry: Registry,
        runner: ToolRunner,
        publisher: Publisher,
        clock: Clock,
        bounds: Bounds,
        loosened: Callable[[ToolContext], Awaitable[None]],
    ) -> None:
        self._registry = registry
        self._runner = runner
        self._publisher = publisher
        self._clock = clock
        self._bounds = bounds
        self._loosened = loosened

    def plan(self, name: str, allowed: tuple[str, ...]) -> CallPlan:
        """Return what the loop must know of a tool; an unknown one counts as a write."""
        tool = self._registry.get(name) if name in allowed else None
        if tool is None:
            return CallPlan()
        return CallPlan(effect=tool.effect, idempotent=tool.idempotent, polling=tool.polling)

    async def ask(
        self, session: Session, setup: Setup, wanted: AskModel, request: ModelRequest
    ) -> TurnArrived | TurnFailed:
        """Ask for one turn, within the time that its attempt has."""
        limit = self._turn_limit(session, wanted)
        session.step_deadline = time.monotonic() + limit
        try:
            async with asyncio.timeout(limit):
                turn = await setup.provider.ask(request, self._on_text(session, wanted), self._patience())
        except ModelFailure as failure:
            if failure.detail:
                extra = {"message_id": session.message_id, "code": failure.code, "detail": failure.detail}
                log.warning("model_refused", extra=extra)
            return self._failed(
                session,
                wanted,
                Failure(failure.code, failure.message, failure.retryable, failure.delay, failure.repair),
            )
        except TimeoutError:
            return self._failed(
                session, wanted, Failure("model_timeout", _TOO_SLOW.format(limit=limit), retryable=True)
            )
        except Exception as exc:  # the one broad catch: an adapter's bug must not end in silence
            log.exception("provider_broke", extra={"message_id": session.message_id})
            text = f"The model's adapter failed ({type(exc).__name__})."
            return self._failed(session, wanted, Failure("provider_error", text, retryable=True))
        session.step_deadline = None
        plans = tuple(self.plan(call.name, setup.tool_names) for call in turn.calls)
        words = tuple(self._words(call.name, setup.tool_names) for call in turn.calls)
        known = tuple(one for one in words if one is not None)
        return TurnArrived(wanted.round, wanted.attempt, turn, plans, self._clock.now(), known, setup.model)

    def _words(self, name: str, allowed: tuple[str, ...]) -> ToolWords | None:
        tool = self._registry.get(name) if name in allowed else None
        return None if tool is None else ToolWords(tool.name, tool.title, tool.effect, tool.private)

    def _turn_limit(self, session: Session, wanted: AskModel) -> float:
        state = session.state
        end = state.deadline if wanted.closing is not None else state.soft_deadline
        return max(min(self._bounds.turn, end - self._clock.now()), 0.001)

    def _patience(self) -> Patience:
        return Patience(self._bounds.connect, self._bounds.idle)

    def _on_text(self, session: Session, wanted: AskModel) -> Callable[[str], None]:
        seq, message_id = session.state.seq, session.message_id
        if wanted.attempt > 1:
            self._publisher.tell(seq, self._reset(message_id, wanted))
        shown = 0

        def publish(text: str) -> None:
            nonlocal shown
            self._publisher.delta(message_id, seq, wanted.round, wanted.attempt, shown, text)
            shown += len(text)

        return publish

    def _reset(self, message_id: str, wanted: AskModel) -> TextReset:
        now = moment(self._clock.now())
        return TextReset(at=now, message_id=message_id, turn=wanted.round, attempt=wanted.attempt)

    def _failed(self, session: Session, wanted: AskModel, failure: Failure) -> TurnFailed:
        session.step_deadline = None
        jitter = random.random()  # noqa: S311 - spreads retries, guards nothing
        return TurnFailed(wanted.round, wanted.attempt, failure, self._clock.now(), jitter)

    async def call(self, session: Session, setup: Setup, position: int) -> CallFinished:
        """Run one call to its result; a result always comes."""
        began = time.monotonic()
        round_number = session.state.round
        call = _running(session).turn.calls[position]
        tool = self._registry.get(call.name) if call.name in setup.tool_names else None
        limit = self._tool_limit(session, tool.timeout if tool else None)
        context = self._context(session, setup, round_number, position, limit)
        try:
            outcome = await self._runner.run(tool, call, setup.tool_names, context, limit)
        finally:
            if self._runner.is_loose_write(context.call_id):
                await self._loosened(context)
        seconds = time.monotonic() - began
        result = outcome.result
        if outcome.uncertain:
            result = replace(result, outcome="unknown")
        return CallFinished(round_number, position, result, self._clock.now(), seconds)

    def has_loose_write(self, session: Session) -> bool:
        """Say whether a write of the conversation that was given up is still at work in this process."""
        return self._runner.loose_writes((session.user_id, session.conversation_id)) > 0

    def pending_write(self, session: Session, position: int) -> CallFinished:
        """Refuse a write while an earlier one of the conversation, timed out, may still act."""
        result = settled_error(
            "write_pending",
            "An earlier write of this conversation timed out and may still be running, so this one was not begun.",
            "not_executed",
            "Tell the user, or try again later.",
        )
        return CallFinished(session.state.round, position, result, self._clock.now())

    async def verify(self, session: Session, setup: Setup, position: int) -> CallVerified:
        """Ask a tool whether a call in doubt took place; a tool without an answer leaves it unknown."""
        round_number = session.state.round
        call = _running(session).turn.calls[position]
        tool = self._registry.get(call.name)
        limit = self._tool_limit(session, tool.timeout if tool else None)
        context = self._context(session, setup, round_number, position, limit)
        if tool is None:
            return CallVerified(round_number, position, "unknown", False, self._clock.now())
        verified = await self._runner.verify(tool, call, context, limit)
        now = self._clock.now()
        return CallVerified(round_number, position, verified.state, session.executor_dead, now, verified.result)

    def _tool_limit(self, session: Session, own: float | None) -> float:
        left = session.state.soft_deadline - self._clock.now()
        return max(min(own or self._bounds.tool, left), 0.001)

    def _context(self, session: Session, setup: Setup, turn: int, position: int, limit: float) -> ToolContext:
        message_id, tool = session.message_id, _running(session).turn.calls[position].name
        call_id = str(CallId(message_id, turn, position))
        attempt, round_number = session.fence.attempt or 1, session.state.rounds + 1
        loop = asyncio.get_running_loop()

        def tell(text: str) -> None:
            # Behind what is saved by now: calls side by side save while this one goes on.
            told = ToolProgress(
                at=moment(self._clock.now()),
                message_id=message_id,
                turn=turn,
                round=round_number,
                attempt=attempt,
                tool=tool_name(tool),
                call=position,
                text=readable(text),
            )
            self._publisher.tell(session.saved.seq, told)

        def show(text: str) -> None:  # called from the tool's own thread
            loop.call_soon_threadsafe(tell, text)

        return ToolContext(
            message_id=message_id,
            conversation_id=session.conversation_id,
            user_id=session.user_id,
            call_id=call_id,
            idempotency_key=call_id,
            deadline=datetime.fromtimestamp(self._clock.now() + limit, UTC),
            context=setup.submission.context,
            on_progress=show,
        )


def _running(session: Session) -> Running:
    stage = session.state.stage
    if not isinstance(stage, Running):
        raise TypeError("calls are run only while their turn is")
    return stage
