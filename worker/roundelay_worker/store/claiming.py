"""Claim: one conditional statement makes a message ours before each model call, or says why not.

The attempt is counted before the work, so that a crash counts.

A claim does not wait for the disk: it is told to nobody. A server that crashes within the half second before it is
on disk forgets it, as if it had never been made: the message is ready again, and whoever held it finds its fence gone.
The next save waits for the disk, and with it all that was before.
"""

from typing import Final

from roundelay_worker.store.driver import Driver, Row
from roundelay_worker.store.records import Claim, Fence, Refused, RefusedBecause

_LIVE: Final = "EXISTS (SELECT 1 FROM roundelay_processes WHERE id = $2 AND lease_until > {now} AND lost_at IS NULL)"

_CLAIM: Final = f"""
UPDATE roundelay_messages
SET owner = $2, attempt = attempt + 1, claimed_at = {{now}}, begun = TRUE, due_at = NULL, redispatched = 0
WHERE id = $1 AND status IS NULL AND NOT parked AND verdict IS NULL AND cancel_requested_at IS NULL
    AND state_version <= $3
    AND (
        (
            CAST($5 AS bigint) IS NULL AND owner IS NULL AND (due_at IS NULL OR due_at <= {{now}})
            AND dispatch = COALESCE(CAST($4 AS bigint), dispatch)
        )
        OR (owner = $2 AND version = CAST($5 AS bigint))
    )
    AND {_LIVE} AND {{relaxed}}
RETURNING version, attempt, losses, saved_by, claimed_at
"""  # noqa: S608 - constants

_WHY: Final = f"""
SELECT owner, dispatch, version, due_at, parked, verdict, cancel_requested_at, ended_at, state_version,
    due_at > {{now}} AS early, {_LIVE} AS live
FROM roundelay_messages WHERE id = $1
"""  # noqa: S608 - constants


async def claim(
    driver: Driver, message_id: str, owner: str, *, dispatch: int | None, held: Fence | None, max_state_version: int
) -> Claim | Refused:
    """Make ``message_id`` the work of ``owner``: by a task's dispatch number, or again by the fence it holds."""
    version = held.version if held else None
    rows = await driver.fetch(_CLAIM, message_id, owner, max_state_version, dispatch, version)
    if rows:
        return _claimed(message_id, owner, rows[0])
    found = await driver.fetch(_WHY, message_id, owner, again=True)
    return Refused(_reason(found[0], owner, dispatch, held, max_state_version) if found else "missing")


def _claimed(message_id: str, owner: str, row: Row) -> Claim:
    fence = Fence(message_id, row["version"], owner, row["attempt"])
    return Claim(fence, row["losses"], row["claimed_at"], row["saved_by"])


def _reason(row: Row, owner: str, dispatch: int | None, held: Fence | None, max_state_version: int) -> RefusedBecause:
    """Return the reason of most use; what has changed since the claim was refused is ``stale``."""
    reasons: tuple[tuple[bool, RefusedBecause], ...] = (
        (row["ended_at"] is not None, "ended"),
        (row["verdict"] is not None, "condemned"),
        (row["cancel_requested_at"] is not None, "cancelled"),
        (bool(row["parked"]), "parked"),
        (row["state_version"] > max_state_version, "newer_version"),
        (held is not None and (row["owner"], row["version"]) != (owner, held.version), "stale"),
        (held is None and dispatch is not None and row["dispatch"] != dispatch, "stale"),
        (held is None and row["owner"] is not None, "owned"),
        (bool(row["early"]), "not_due"),
        (not row["live"], "no_lease"),
    )
    return next((reason for holds, reason in reasons if holds), "stale")
