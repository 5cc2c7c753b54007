"""From the inbox in Redis into the database: from then on a message survives the loss of Redis.

Accepting a message accepts the earlier ones of its conversation first, in the order in which they came.
The task and the watchdog may both accept it; the second finds it done. Inbox records are deleted only
after the database has them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import redis.asyncio as aioredis
from redis.exceptions import RedisError

from roundelay.messages import Submission
from roundelay.names import cancels_key, control_channel, inbox_key, record_key, waiting_key
from roundelay_worker.delivery.publisher import Publisher, Publishing
from roundelay_worker.process.clock import Clock
from roundelay_worker.process.redis import ids_in
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.publishing import accepted_update
from roundelay_worker.store.records import Accepted, Arrival, OutboxRow
from roundelay_worker.store.store import Store

log = logging.getLogger(__name__)

_PIECE: Final = 100
_PIECE_BYTES: Final = 4_000_000
"""A conversation may have any number of messages in the inbox: Redis, and we, take up so many of them at once."""

FIND: Final = """
-- The inbox records of a message and of those before it in its conversation, from place ARGV[3] of its list on.
-- -> {1 if there are more before the message, {{id, record, age, cancelled, idempotency record} ...}}
local prefix, id, from, most, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
-- A key of another type than ours is a stranger's, and counts as none: it must not hold up the conversation.
local function get(command, ...)
  local found = redis.pcall(command, ...)
  return type(found) == 'table' and found.err and false or found
end
local owner = get('HMGET', prefix .. ':state:' .. id, 'user_id', 'conversation_id') or {}
local list = prefix .. ':waiting:' .. (owner[1] or '') .. '/' .. (owner[2] or '')
local place = owner[2] and get('LPOS', list, id)
local ids = place and redis.call('LRANGE', list, from, math.min(place, from + most - 1)) or {id}
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local records = {}
for i = 1, #ids do
  if bytes <= 0 then return {1, records} end
  local record = get('GET', prefix .. ':message:' .. ids[i])
  if record then
    bytes = bytes - #record
    local submitted = redis.call('ZSCORE', KEYS[1], ids[i])
    local age = submitted and string.format('%.6f', now - tonumber(submitted)) or '0'
    local cancelled = redis.call('ZSCORE', KEYS[2], ids[i])
    local name = get('HGET', prefix .. ':state:' .. ids[i], 'idempotency')
    local first = name and name ~= '' and get('GET', name)
    records[#records + 1] = {ids[i], record, age, cancelled and 1 or 0, first and name .. ' ' .. first or ''}
  else
    redis.call('LREM', list, 1, ids[i])
  end
end
return {place and place >= from + most and 1 or 0, records}
"""

Found = Literal["accepted", "unreadable", "missing"]
"""What became of a message that was looked for in the inbox."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What was found of a message; if it entered the database just now, as what, and what that made of it."""

    found: Found
    arrival: Arrival | None = None
    accepted: Accepted | None = None


class Acceptor:
    """Copies inbox records into the database, in order."""

    def __init__(
        self,
        redis: aioredis.Redis,
        prefix: str,
        store: Store,
        publisher: Publisher,
        clock: Clock,
        queue_timeout: float | None,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._store = store
        self._publisher = publisher
        self._clock = clock
        self._queue_timeout = queue_timeout
        self._find = redis.register_script(FIND)
        self._unreadable: set[str] = set()

    async def accept(self, message_id: str) -> Entry:
        """Accept a message, earlier ones of its conversation first; ``missing`` if the inbox does not know it."""
        entry = Entry("missing")
        left = 0  # those that nobody here can read stay in their list
        more = True
        while more:
            more, records = await self._piece(message_id, left)
            arrivals = [arrival for record in records if (arrival := self._arrival(*record)) is not None]
            left += len(records) - len(arrivals)
            accepted = await self.take(arrivals) if arrivals else ()
            entered = [one for one in zip(arrivals, accepted, strict=True) if one[0].message_id == message_id]
            if entered:
                entry = Entry("accepted", *entered[0])
            elif any(_text(record[0]) == message_id for record in records):
                entry = Entry("unreadable")
        return entry

    async def _piece(self, message_id: str, left: int) -> tuple[bool, list[Any]]:
        keys = [inbox_key(self._prefix), cancels_key(self._prefix)]
        more, records = await self._find(keys=keys, args=[self._prefix, message_id, left, _PIECE, _PIECE_BYTES])
        return bool(more), records

    async def take(self, arrivals: Sequence[Arrival]) -> tuple[Accepted, ...]:
        """Accept arrivals in their order, publish that, and clear them from the inbox."""
        accepted = await self._store.accept(arrivals)
        for one, arrival in zip(accepted, arrivals, strict=True):
            if one.fresh:
                self._announce(one, arrival)
        await self._clear(arrivals)
        for message_id in [message_id for one in accepted for message_id in one.interrupts]:
            await self._redis.publish(control_channel(self._prefix), f"cancel {message_id}")
        return accepted

    def _announce(self, one: Accepted, arrival: Arrival) -> None:
        self._publisher.publish(
            Publishing(
                message_id=one.message_id,
                first=1,
                updates=(accepted_update(one.message_id, one.accepted_at, one.after),),
                status="waiting" if one.after else "queued",
                after=one.after or "",
                user_id=arrival.user_id,
                conversation_id=arrival.conversation_id,
                submitted_at=arrival.submitted_at,
            )
        )

    async def _clear(self, arrivals: Sequence[Arrival]) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for arrival in arrivals:
            waiting = waiting_key(self._prefix, arrival.user_id, arrival.conversation_id)
            pipe.lrem(waiting, 1, arrival.message_id)
            pipe.zrem(inbox_key(self._prefix), arrival.message_id)
            pipe.delete(record_key(self._prefix, arrival.message_id))
        await pipe.execute()

    def _arrival(
        self, message_id: bytes | str, body: bytes | str, age: Any, cancelled: Any, idempotency: bytes | str = ""
    ) -> Arrival | None:
        try:
            submission = Submission.model_validate_json(body)
        except ValueError:
            # Another version of the client wrote it; it stays where it is for a worker that can read it.
            self._note_unreadable(_text(message_id))
            return None
        return Arrival(
            message_id=submission.message_id,
            user_id=submission.user_id,
            conversation_id=submission.conversation_id,
            submission=_text(body),
            submitted_at=self._clock.now() - float(age),  # the database's clock: Redis' may differ
            on_busy=submission.on_busy,
            queue_timeout=self._queue_timeout,
            cancelled=bool(cancelled),
            idempotency=_text(idempotency) or None,
        )

    def _note_unreadable(self, message_id: str) -> None:
        """Say it once: the record is looked at again in every sweep."""
        if message_id not in self._unreadable:
            self._unreadable.add(message_id)
            log.warning("inbox_record_unreadable", extra={"message_id": message_id})

    async def overdue(self, age: float, limit: int) -> list[str]:
        """Return ids that are in the inbox for ``age`` seconds, oldest first, those that we can read."""
        most = limit + len(self._unreadable)
        seconds, micros = await self._redis.time()  # the clock that dated them
        older_than = seconds + micros / 1e6 - age
        key = inbox_key(self._prefix)
        found = await self._redis.zrangebyscore(key, "-inf", older_than, start=0, num=most)
        ids = await ids_in(self._redis, key, cast("list[bytes | str]", found))
        return [message_id for message_id in ids if message_id not in self._unreadable][:limit]

    async def forget(self, message_id: str) -> None:
        """Drop an inbox entry whose record is gone, because the database has the message."""
        await self._redis.zrem(inbox_key(self._prefix), message_id)

    async def take_outbox(self, limit: int) -> None:
        """Accept what web apps wrote into the outbox table inside their own transactions; the unreadable stays."""
        while rows := await self._store.outbox_rows(limit, self._unreadable):
            arrivals = [arrival for row in rows if (arrival := await self._left(row))]
            taken = await self._taken(arrivals)
            await self._store.delete_outbox([arrival.message_id for arrival in taken])
            if len(taken) == len(rows):
                return  # else there may be others behind those that are passed from now on

    async def _taken(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """Accept arrivals; where they cannot be together, each by itself, and return those that could."""
        try:
            if arrivals:
                await self.take(arrivals)
        except (StoreUnavailable, RedisError, OSError):
            raise
        except Exception:
            if len(arrivals) > 1:
                return [one for arrival in arrivals for one in await self._taken([arrival])]
            log.exception("outbox_row_broke", extra={"message_id": arrivals[0].message_id})
            self._unreadable.add(arrivals[0].message_id)
            return ()
        return arrivals

    async def _left(self, row: OutboxRow) -> Arrival | None:
        cancelled = await self._redis.zscore(cancels_key(self._prefix), row.message_id) is not None
        return self._arrival(row.message_id, row.submission, max(self._clock.now() - row.created_at, 0.0), cancelled)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
