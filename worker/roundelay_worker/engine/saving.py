"""Saving what a session decided, and publishing it once it is saved."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from roundelay_worker.delivery import render
from roundelay_worker.delivery.publisher import Publisher, Publishing
from roundelay_worker.engine.session import Session
from roundelay_worker.loop.state import STATE_VERSION, Queued
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.records import Claim, End, Keep, Next, Postpone, Save, Saved
from roundelay_worker.store.store import Store

T = TypeVar("T")

STORE_PATIENCE = 120.0
"""Seconds for which a save is tried again while the database is away: what it holds is nowhere else."""
STORE_PAUSE = 0.2


class FenceLost(Exception):
    """The row is not ours any more; nothing may be saved, published or begun."""


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end even when cancelled meanwhile; then be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class Saver:
    """Saves the sessions of this process; a save holds only while the row is still ours."""

    def __init__(self, store: Store, publisher: Publisher, process_id: str) -> None:
        self._store = store
        self._publisher = publisher
        self._process_id = process_id

    async def save(
        self, session: Session, then: Next, answer: dict[str, Any] | None = None, *, under_lease: bool = False
    ) -> Saved:
        """Save what was decided, and publish it; a cancellation waits until both have happened."""
        return await unbroken(self._save_and_publish(session, then, answer, under_lease=under_lease))

    async def _save_and_publish(
        self, session: Session, then: Next, answer: dict[str, Any] | None, *, under_lease: bool
    ) -> Saved:
        first = session.saved.seq + 1
        bodies = tuple(
            render.update_body(note, first + i, at, session.message_id, answer)
            for i, (note, at) in enumerate(session.notes)
        )
        state = session.state
        save = Save(
            fence=session.fence,
            before=session.saved,
            state=state,
            updates=tuple((first + i, body) for i, body in enumerate(bodies)),
            next=then,
            under_lease=under_lease,
            published=self._publisher.take_published(session.message_id),
            process=self._process_id,
            resolved=session.resolved if isinstance(session.saved.stage, Queued) else None,
        )
        session.notes.clear()
        saved = await self._stored(save)
        if saved is None:
            raise FenceLost
        session.fence = replace(session.fence, version=saved.version, attempt=saved.attempt)
        session.saved = state
        self._publish(session, first, bodies, then)
        return saved

    async def _stored(self, save: Save) -> Saved | None:
        """Save, again and again while the database is away; None if the row is not ours any more."""
        ends = time.monotonic() + STORE_PATIENCE
        unsure = False
        while True:
            try:
                saved = await self._store.save(save)
                return await self._look_for(save) if saved is None and unsure else saved
            except StoreUnavailable:
                if time.monotonic() > ends:
                    raise
                unsure = True
                await asyncio.sleep(STORE_PAUSE)

    async def _look_for(self, save: Save) -> Saved | None:
        """Return what became of a save whose reply was lost; None if it cannot be told, and the row goes its way."""
        fence = save.fence
        if not isinstance(save.next, Keep) or fence.owner is None:
            return None
        held = replace(fence, version=fence.version + 1)
        claim = await self._store.claim(fence.message_id, self._process_id, held=held, max_state_version=STATE_VERSION)
        return Saved(claim.fence.version, (), claim.fence.attempt or 0) if isinstance(claim, Claim) else None

    def _publish(self, session: Session, first: int, bodies: tuple[str, ...], then: Next) -> None:
        if not bodies:
            return
        ended = isinstance(then, End)
        status = then.status if isinstance(then, End) else "retrying" if isinstance(then, Postpone) else "running"
        self._publisher.publish(
            Publishing(
                message_id=session.message_id,
                first=first,
                updates=bodies,
                status=status,
                turn=session.state.round,
                worker="" if ended else self._process_id,
                answer=then.answer if isinstance(then, End) else "",
            )
        )
