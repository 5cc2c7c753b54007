"""The SQL store: one class, two databases."""

from roundelay_worker.store.errors import (
    Conflict,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    UnreadableState,
    UnsuitableDatabase,
)
from roundelay_worker.store.lease import LeaseKeeper
from roundelay_worker.store.publishing import accepted_update
from roundelay_worker.store.store import Store

__all__ = [
    "Conflict",
    "LeaseKeeper",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreUnavailable",
    "UnreadableState",
    "UnsuitableDatabase",
    "accepted_update",
]
