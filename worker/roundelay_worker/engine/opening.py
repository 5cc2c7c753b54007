"""Opening a message: the working copy that goes with a claim, from the nearest place that has it.

That is what has just been accepted here, or the copy that this process handed on, or the database. Whatever was
gathered before the claim holds only if the claim finds the message at the same version.
"""

import asyncio
from dataclasses import dataclass

from roundelay_worker.engine.inbox import Entry
from roundelay_worker.engine.saving import FenceLost
from roundelay_worker.engine.session import Session
from roundelay_worker.engine.sessions import Sessions
from roundelay_worker.loop.history import Exchange
from roundelay_worker.store.records import Claim, Loaded
from roundelay_worker.store.store import Store


@dataclass(frozen=True, slots=True)
class Opening:
    """What may become the working copy of a message, gathered while its claim is not known."""

    entry: Entry | None
    copy: Session | None
    load: asyncio.Future[Loaded | None] | None


class Opener:
    """Opens messages for the process ``process_id``."""

    def __init__(self, store: Store, sessions: Sessions, process_id: str) -> None:
        self._store = store
        self._sessions = sessions
        self._process_id = process_id

    def begin(self, message_id: str, dispatch: int, entry: Entry | None) -> Opening:
        """Gather what is at hand; begin a load now, beside the claim, if nothing at hand can be current."""
        copy = self._sessions.recall(message_id)
        if (entry and entry.arrival) or (copy and copy.handed_on == dispatch):
            return Opening(entry, copy, None)
        load = asyncio.ensure_future(self._store.load(message_id, _exchanges(copy)))
        load.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may ask
        return Opening(entry, copy, load)

    async def open(self, claim: Claim, opening: Opening) -> Session:
        """Return the working copy of a claimed message.

        Raises ValidationError for a submission of a newer version, UnreadableState for such a state, and
        FenceLost if the message is gone.
        """
        copy = opening.copy
        if copy and (claim.saved_by, claim.fence.version) == (self._process_id, copy.fence.version):
            return copy
        return _entered(claim, opening.entry) or await self._loaded(claim, opening)

    async def _loaded(self, claim: Claim, opening: Opening) -> Session:
        old = opening.copy
        loaded = await opening.load if opening.load else None
        if loaded is None or loaded.version != claim.fence.version:
            loaded = await self._store.load(claim.fence.message_id, _exchanges(old))
        if loaded is None:
            raise FenceLost
        session = self._sessions.from_loaded(loaded, old.submission if old else None)
        session.setup = old.setup if old else None  # what a message runs with is the same in all its rounds
        return session


def _exchanges(copy: Session | None) -> tuple[Exchange, ...]:
    """Return what a copy that was handed on knows for good: what was saved is only added to."""
    return copy.saved.sequence if copy else ()


def _entered(claim: Claim, entry: Entry | None) -> Session | None:
    """Return the working copy of a message that this process has just accepted and nobody has saved since."""
    arrival, accepted = (entry.arrival, entry.accepted) if entry else (None, None)
    if arrival is None or accepted is None or not accepted.fresh or claim.fence.version:
        return None
    return Sessions.from_arrival(arrival, accepted, claim.fence)
