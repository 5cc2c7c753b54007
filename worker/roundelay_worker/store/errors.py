"""What can go wrong between the store and its database.

::

    StoreError
    ├── StoreUnavailable        the database did not answer, or the connection broke; what was asked may have happened
    │   └── StoreBusy           another process held the database for too long; nothing was done
    ├── UnreadableState         the row was written by a newer version that this one must not go on from
    │   └── BrokenState         the row cannot be read by any version; the message can only be ended
    ├── Conflict                such a row is there already; nothing was done
    └── UnsuitableDatabase      this database cannot be used as it is; the text says what to mend
"""

from roundelay_worker.store.records import Unread


class StoreError(Exception):
    """Base of everything that the store raises on purpose."""


class StoreUnavailable(StoreError):
    """The database did not answer; a write may have happened or not, a fence tells which."""


class StoreBusy(StoreUnavailable):
    """The database was held by others for too long; nothing was done."""


class Conflict(StoreError):
    """Two made the same row at once; nothing was done by this one."""


class UnreadableState(StoreError):
    """The stored state belongs to a newer version; the row is left to workers of that version."""

    def __init__(self, unread: Unread) -> None:
        super().__init__(f"message {unread.message_id} has state version {unread.state_version}; this worker is older")
        self.unread = unread


class BrokenState(UnreadableState):
    """The stored state is of this version or an older one, and cannot be read all the same."""

    def __init__(self, unread: Unread) -> None:
        Exception.__init__(self, f"the state of message {unread.message_id} cannot be read")
        self.unread = unread


class UnsuitableDatabase(StoreError):
    """The database cannot be used as it is."""
