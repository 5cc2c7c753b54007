"""Accept: a message enters the database and takes its place in its conversation.

The conversation's row is the lock that accepting and ending share, and it says whose turn it is. On PostgreSQL
one statement does it all: the upsert waits for the row and then goes by its newest version, so that a message
that ends meanwhile is seen; nothing in the statement reads other messages, which after a wait would be read as
they were before it. Two who accept the same message at once collide on its key, and the second starts over.

A fresh message counts as dispatched when it was submitted: that is when its client sent the task, and where in the
queue it is to be found, whoever accepts it.
"""

from collections.abc import Sequence
from typing import Any, Final

from roundelay_worker.loop.state import STATE_VERSION, State
from roundelay_worker.store.codec import encoded_head
from roundelay_worker.store.driver import Driver, Query, Row, Script, filled
from roundelay_worker.store.errors import Conflict
from roundelay_worker.store.records import Accepted, Arrival

FIRST: Final = State(seq=1)
"""The state of a message that has only been accepted."""

_HEAD: Final = encoded_head(FIRST)

_FIND: Final = """
SELECT accepted_at, after_message, verdict, FALSE AS parked FROM roundelay_messages WHERE id = $1
"""

_TAKE_PLACE: Final = """
INSERT INTO roundelay_conversations AS c (user_id, conversation_id, accepted, running)
SELECT $2, $3, 1, $1 WHERE NOT EXISTS (SELECT 1 FROM roundelay_messages WHERE id = $1)
ON CONFLICT (user_id, conversation_id) DO UPDATE
SET accepted = c.accepted + 1, running = COALESCE(c.running, excluded.running)
RETURNING accepted, running
"""

_INSERT: Final = """
INSERT INTO roundelay_messages (
    id, user_id, conversation_id, position, submission, idempotency, submitted_at, accepted_at, progressed_at,
    queue_deadline, deadline, head, state_version, round, seq, queue, queued_at, dispatch, dispatched_at,
    parked, after_message, verdict, cancel_requested_at
)
SELECT
    $1, $2, $3, place.accepted, CAST($4 AS text), CAST($5 AS text), clock.sent, clock.at, clock.at,
    clock.sent + CAST($7 AS double precision), CAST({never} AS double precision),
    CAST($8 AS text), CAST($9 AS bigint), 1, 1, 'messages', clock.sent, 1, clock.sent,
    place.running <> $1,
    CASE WHEN place.running <> $1 AND NOT CAST($10 AS boolean) THEN place.running END,
    CASE WHEN place.running <> $1 AND CAST($10 AS boolean) THEN 'busy' END,
    CASE WHEN CAST($11 AS boolean) THEN clock.at END
FROM {place} CROSS JOIN (
    SELECT now.at, CASE WHEN now.sent < now.at THEN now.sent ELSE now.at END AS sent
    FROM (SELECT {now} AS at, CAST($6 AS double precision) AS sent) AS now
) AS clock
RETURNING accepted_at, after_message, verdict, parked, position
"""

_POSTGRES: Final = filled(
    "WITH place AS ({take}) {insert}", take=_TAKE_PLACE, insert=filled(_INSERT, place="place", never="'Infinity'")
)
_SQLITE: Final = filled(_INSERT, place="(SELECT $12 AS accepted, $13 AS running) AS place", never="9e999")

_INTERRUPT: Final = """
WITH picked AS MATERIALIZED (
    SELECT id FROM roundelay_messages
    WHERE user_id = $2 AND conversation_id = $3 AND id <> $1 AND ended_at IS NULL AND cancel_requested_at IS NULL
    ORDER BY id {lock}
)
UPDATE roundelay_messages SET cancel_requested_at = {now} FROM picked WHERE roundelay_messages.id = picked.id
RETURNING roundelay_messages.id
"""


async def accept(driver: Driver, arrivals: Sequence[Arrival]) -> tuple[Accepted, ...]:
    """Accept ``arrivals`` in order, each whole or not at all; one that is there already stays as it is."""
    return tuple([await _accept_one(driver, arrival) for arrival in arrivals])


async def _accept_one(driver: Driver, arrival: Arrival) -> Accepted:
    try:
        return await _entered(driver, arrival)
    except Conflict:
        return await _entered(driver, arrival)


async def _entered(driver: Driver, arrival: Arrival) -> Accepted:
    if driver.dialect == "sqlite" or arrival.on_busy == "interrupt":
        return await driver.run(lambda: _script(driver, arrival))
    rows = await driver.fetch(_POSTGRES, *_arguments(arrival))
    if rows:
        return _accepted(arrival, rows[0], fresh=True)
    (found,) = await driver.fetch(_FIND, arrival.message_id, again=True)
    return _accepted(arrival, found, fresh=False)


def _script(driver: Driver, arrival: Arrival) -> Script[Accepted]:
    found = yield Query(_FIND, (arrival.message_id,))
    if found:
        return _accepted(arrival, found[0], fresh=False)
    arguments = _arguments(arrival)
    if driver.dialect == "sqlite":
        place = (yield Query(_TAKE_PLACE, arguments[:3]))[0]
        rows = yield Query(_SQLITE, (*arguments, place["accepted"], place["running"]))
    else:
        rows = yield Query(_POSTGRES, arguments)
        if not rows:
            raise Conflict(f"message {arrival.message_id} was accepted by another at this moment")
    interrupts: tuple[str, ...] = ()
    if arrival.on_busy == "interrupt" and rows[0]["parked"]:
        interrupts = tuple([row["id"] for row in (yield Query(_INTERRUPT, arguments[:3]))])
    return _accepted(arrival, rows[0], fresh=True, interrupts=interrupts)


def _arguments(arrival: Arrival) -> tuple[Any, ...]:
    return (
        arrival.message_id,
        arrival.user_id,
        arrival.conversation_id,
        arrival.submission,
        arrival.idempotency,
        arrival.submitted_at,
        arrival.queue_timeout,
        _HEAD,
        STATE_VERSION,
        arrival.on_busy == "reject",
        arrival.cancelled,
    )


def _accepted(arrival: Arrival, row: Row, *, fresh: bool, interrupts: tuple[str, ...] = ()) -> Accepted:
    return Accepted(
        message_id=arrival.message_id,
        fresh=fresh,
        accepted_at=row["accepted_at"],
        after=row["after_message"],
        verdict=row["verdict"],
        interrupts=interrupts,
        first=fresh and row["position"] == 1,
    )
