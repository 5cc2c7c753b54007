"""Worker processes and their leases.

A lease is for work, not for life: a process whose lease ran out may be about to act, and only ``gone_at`` says
that it cannot any more.
"""

import json
from collections.abc import Sequence
from typing import Final

from roundelay_worker.store.driver import Driver

DOUBTED: Final = 2
"""Losses after which a message is run alone."""
GIVEN_UP: Final = 4
"""Losses that are final: one death alone that its worker saw, or two leases lost alone that nobody explained."""

_REGISTER: Final = """
INSERT INTO roundelay_processes (id, host, pid, birth, started_at, lease_until, offers)
VALUES ($1, $2, $3, $4, {now}, {now} + CAST($5 AS double precision), $6)
"""
RENEW: Final = """
UPDATE roundelay_processes SET lease_until = {now} + CAST($2 AS double precision)
WHERE id = $1 AND lost_at IS NULL AND gone_at IS NULL RETURNING id
"""
GONE: Final = "UPDATE roundelay_processes SET gone_at = {now}, lease_until = 0 WHERE id = $1 AND gone_at IS NULL"
_IS_LOST: Final = "SELECT 1 FROM roundelay_processes WHERE id = $1 AND lost_at IS NOT NULL"


_OFFERED: Final = """
SELECT DISTINCT offers FROM roundelay_processes
WHERE offers IS NOT NULL AND lease_until > {now} AND lost_at IS NULL AND gone_at IS NULL
"""


async def register(
    driver: Driver, process_id: str, host: str, pid: int, *, lease: float, birth: str, offers: Sequence[str]
) -> None:
    """Make a process known, with its first lease; an id is used once."""
    await driver.fetch(_REGISTER, process_id, host, pid, birth, lease, json.dumps(offers))


async def offered(driver: Driver) -> tuple[frozenset[str], ...]:
    """Return what live processes offer, each different set once."""
    return tuple(frozenset(json.loads(row["offers"])) for row in await driver.fetch(_OFFERED, again=True))


async def renew(driver: Driver, process_id: str, lease: float) -> bool:
    """Prolong a lease; False once others were told that it ran out."""
    return bool(await driver.fetch(RENEW, process_id, lease, again=True))


async def mark_gone(driver: Driver, process_id: str) -> None:
    """Record that a process has ended and cannot act any more."""
    await driver.fetch(GONE, process_id, again=True)


async def is_lost(driver: Driver, process_id: str) -> bool:
    """Say whether others were told that a lease ran out."""
    return bool(await driver.fetch(_IS_LOST, process_id, again=True))
