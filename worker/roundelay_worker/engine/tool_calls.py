"""Running the calls of a turn: side by side or one by one, as the loop says, each step saved as it ends."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from roundelay_worker.engine.perform import Performer
from roundelay_worker.engine.saving import Saver
from roundelay_worker.engine.session import Session, Setup
from roundelay_worker.loop.effects import RunCall, VerifyCall
from roundelay_worker.loop.events import CallFinished, CallStarted, Event, TimePassed
from roundelay_worker.loop.state import Running
from roundelay_worker.loop.step import todo
from roundelay_worker.process.clock import Clock
from roundelay_worker.store.records import Keep
from roundelay_worker.store.store import Store

QUICK = 0.02
"""Seconds that reads may take to be saved together with their turn; then the turn is saved first."""

Apply = Callable[[Session, Event], None]


class TurnCalls:
    """Runs calls for the sessions of this process; ``apply`` steps an event into a session."""

    def __init__(self, store: Store, performer: Performer, saver: Saver, clock: Clock, apply: Apply) -> None:
        self._store = store
        self._performer = performer
        self._saver = saver
        self._clock = clock
        self._apply = apply

    async def run(self, session: Session, setup: Setup) -> None:
        """Run the calls of the turn at hand until all have their results, or something stops the turn."""
        tasks: dict[int, asyncio.Task[Event]] = {}
        began = time.monotonic()
        try:
            while isinstance(session.state.stage, Running):
                quick = time.monotonic() - began < QUICK and _only_reads(session.state.stage)
                await self._begin_calls(session, setup, tasks, quick)
                await self._await_calls(session, tasks, QUICK if quick else None)
        finally:
            await self._stop_calls(session, tasks)

    async def _begin_calls(
        self, session: Session, setup: Setup, tasks: dict[int, asyncio.Task[Event]], quick: bool
    ) -> None:
        now = self._clock.now()
        self._apply(session, TimePassed(now))
        begun: dict[int, Coroutine[Any, Any, Event]] = {}
        for effect in todo(session.state) if isinstance(session.state.stage, Running) else ():
            if isinstance(effect, VerifyCall) and effect.position not in tasks:
                begun[effect.position] = self._performer.verify(session, setup, effect.position)
            elif isinstance(effect, RunCall):
                self._apply(session, CallStarted(effect.round, effect.position, now))
                begun[effect.position] = await self._prepared(session, setup, effect.position)
        try:
            if not quick and isinstance(session.state.stage, Running) and session.state is not session.saved:
                await self._saver.save(session, Keep(), under_lease=bool(begun))
        except BaseException:
            for work in begun.values():
                work.close()
            raise
        for position, work in begun.items():
            tasks[position] = asyncio.ensure_future(work)

    async def _prepared(self, session: Session, setup: Setup, position: int) -> Coroutine[Any, Any, Event]:
        stage = session.state.stage
        write = isinstance(stage, Running) and stage.calls[position].plan.effect == "write"
        if write and (
            self._performer.has_loose_write(session)
            or await self._store.loose_write(session.user_id, session.conversation_id)
        ):
            return _ready(self._performer.pending_write(session, position))
        return self._performer.call(session, setup, position)

    async def _await_calls(
        self, session: Session, tasks: dict[int, asyncio.Task[Event]], patience: float | None
    ) -> None:
        if not tasks:
            return
        done, _ = await asyncio.wait(tasks.values(), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for position in [p for p, task in tasks.items() if task in done]:
            self._apply(session, tasks.pop(position).result())

    async def _stop_calls(self, session: Session, tasks: dict[int, asyncio.Task[Event]]) -> None:
        """End what still runs when a session stops; results that came in the meantime are kept."""
        if not tasks:
            return
        for task in tasks.values():
            task.cancel()
        done, _ = await asyncio.wait(tasks.values(), timeout=0.5)
        for task in done:
            if not task.cancelled() and task.exception() is None:
                self._apply(session, task.result())


async def _ready(event: CallFinished) -> Event:
    return event


def _only_reads(stage: Running) -> bool:
    return all(call.plan.effect == "read" and call.status != "in_doubt" for call in stage.calls)
