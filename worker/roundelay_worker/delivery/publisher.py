"""From the outbox to Redis: durable updates at ``{seq}-0``, deltas behind them, and the answer.

Redis itself refuses what is stale or was published before: ids of a stream only grow. A publication whose
first number does not follow what the stream holds means that Redis lost something; the stream is then made
again from the database. Whatever fails here is found later by the watchdog: the database knows what is not
known to be published.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio as aioredis
from redis.exceptions import NoScriptError, RedisError

from roundelay.names import answer_key, cancels_key, state_key, updates_key
from roundelay.updates import TextDelta, TextReset, ToolProgress, Update
from roundelay_worker.delivery.render import moment
from roundelay_worker.loop.surrogates import readable
from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.records import Publication

log = logging.getLogger(__name__)

_MOST_ENTRIES: Final = 20_000
"""Cap on a stream; only a message of thousands of rounds reaches it, and its readers then see a ``gap``."""
_MARK_EVERY: Final = 0.6
"""Seconds between two notes to the database of what is published; one statement notes all that waited so long.

Most need none: the next save of a message tells what is published of it.
"""
_MARKED_WITHIN: Final = 3.0
"""Seconds for such a note; readers must not wait for a database that is silent."""
_COMPLAIN_EVERY: Final = 5.0
"""Seconds between two lines in the log about a Redis that is away."""
_DELTA_EVERY: Final = 0.005
"""Seconds that deltas are gathered for: pieces that come together go out together."""
_KEPT_WHILE_LIVE: Final = 30 * 86_400
"""Seconds that Redis keeps what is told of a message that has not ended; its silence may be longer than the TTL."""

PUBLISH: Final = """
local stream, state, answer, cancels = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, id, status, turn, worker, after = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local final, first, count = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local live_ttl, conversation, idempotency = ARGV[11], ARGV[12], ARGV[15]
local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
local have = 0
if #last > 0 then have = tonumber(string.match(last[1][1], '^(%d+)')) end
if first > have + 1 then return -1 end
local trim = redis.call('HGET', state, 'trim')
if trim and tonumber(trim) < have then
  local old = redis.call('XRANGE', stream, trim .. '-1', trim .. '-18446744073709551615', 'COUNT', 5000)
  for i = 1, #old do redis.call('XDEL', stream, old[i][1]) end
end
for i = 1, count do
  local seq = first + i - 1
  if seq > have then
    redis.call('XADD', stream, 'MAXLEN', '~', ARGV[10], seq .. '-0', 'update', ARGV[15 + i])
  end
end
local newest = first + count - 1
if newest >= have then
  redis.call('HSET', state, 'status', status, 'turn', turn, 'worker', worker, 'after', after,
             'seq', newest, 'trim', have)
end
if conversation ~= '' then
  redis.call('HSETNX', state, 'conversation_id', conversation)
  redis.call('HSETNX', state, 'user_id', ARGV[13])
  redis.call('HSETNX', state, 'submitted_at', ARGV[14])
end
local ended = final ~= '' or redis.call('EXISTS', answer) == 1
if idempotency ~= '' then
  local record, first_use = string.match(idempotency, '^(%S+) (.+)$')
  redis.call('HSET', state, 'idempotency', record)
  redis.call('SET', record, first_use, 'EX', ended and ttl or live_ttl, 'NX')
end
redis.call('EXPIRE', stream, ended and ttl or live_ttl)
redis.call('EXPIRE', state, ended and ttl or live_ttl)
if final ~= '' then
  if redis.call('SET', answer, final, 'EX', ttl, 'NX') then redis.call('PUBLISH', answer, final) end
  redis.call('ZREM', cancels, id)
  local record = redis.call('HGET', state, 'idempotency')
  if record and record ~= '' then redis.call('EXPIRE', record, ttl) end
end
return newest
"""


ADD: Final = """
-- A delta follows the update that it belongs to. Where that one is not there (its publication failed, or the server
-- lost its scripts), the delta would take its place, and the update could never be added.
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not last or string.match(last[1], '^(%d+)') ~= ARGV[1] then return false end
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], ARGV[1] .. '-*', 'update', ARGV[3])
"""


@dataclass(frozen=True, slots=True)
class Publishing:
    """Updates to be published together, numbered ``first`` onwards without a hole, and the state they lead to.

    Whose message it is, when it came, and its idempotency record (``name message digest``) are told with the first
    update, and again when Redis has forgotten them.
    """

    message_id: str
    first: int
    updates: tuple[str, ...]
    status: str
    turn: int = 0
    worker: str = ""
    after: str = ""
    answer: str = ""
    user_id: str = ""
    conversation_id: str = ""
    submitted_at: float = 0.0
    idempotency: str = ""


@dataclass(slots=True)
class _Text:
    """A piece of a turn's text, ``offset`` characters in; neighbours are joined."""

    message_id: str
    seq: int
    turn: int
    attempt: int
    offset: int
    pieces: list[str]

    def continues(self, message_id: str, turn: int, attempt: int) -> bool:
        """Return whether the next piece of that attempt's text belongs to this one."""
        return (self.message_id, self.turn, self.attempt) == (message_id, turn, attempt)

    def update(self, at: float) -> Update:
        """Return what readers are told."""
        return TextDelta(
            at=moment(at),
            message_id=self.message_id,
            turn=self.turn,
            attempt=self.attempt,
            text=readable("".join(self.pieces)),
            offset=self.offset,
        )


@dataclass(frozen=True, slots=True)
class _Provisional:
    """An update without a number of its own, behind number ``seq``."""

    seq: int
    update: TextReset | ToolProgress

    @property
    def message_id(self) -> str:
        """The message that it tells of."""
        return self.update.message_id


def publishing(publication: Publication) -> Publishing:
    """Return what the outbox holds as it is to be published."""
    return Publishing(
        message_id=publication.message_id,
        first=publication.first_seq,
        updates=tuple(body for _, body in publication.updates),
        status=publication.status,
        turn=publication.round,
        after=publication.after or "",
        answer=publication.answer or "",
        user_id=publication.user_id,
        conversation_id=publication.conversation_id,
        submitted_at=publication.submitted_at,
        idempotency=publication.idempotency or "",
    )


Fetch = Callable[[str], Awaitable[Publication | None]]
"""Returns everything that the outbox holds of a message."""
Mark = Callable[[list[tuple[str, int]]], Awaitable[None]]


def _always() -> bool:
    return True


class Publisher:
    """One writer to Redis per process; callers hand over and go on.

    What is queued while ``may_publish`` says no (the lease ran out) is dropped: whoever has the message speaks for it.
    ``now`` dates the deltas, among updates that the database's clock has dated.
    """

    def __init__(
        self,
        redis: aioredis.Redis,
        prefix: str,
        ttl: float,
        fetch: Fetch,
        mark: Mark,
        may_publish: Callable[[], bool] = _always,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._ttl = int(ttl)
        self._fetch = fetch
        self._mark = mark
        self._queue: list[Publishing | _Text | _Provisional] = []
        self._published: dict[str, int] = {}
        self._to_note: dict[str, int] = {}
        self._complained = -_COMPLAIN_EVERY
        self._unsent = 0
        self._wake = asyncio.Event()
        self._script = redis.register_script(PUBLISH)
        self._adding = redis.register_script(ADD)
        self._may_publish = may_publish
        self._now = now

    def publish(self, publishing: Publishing) -> None:
        """Queue durable updates that are saved."""
        self._queue.append(publishing)
        self._wake.set()

    def delta(self, message_id: str, seq: int, turn: int, attempt: int, offset: int, text: str) -> None:
        """Queue a piece of text of a turn that is not saved."""
        last = self._queue[-1] if self._queue else None
        if isinstance(last, _Text) and last.continues(message_id, turn, attempt):
            last.pieces.append(text)
            return
        self._queue.append(_Text(message_id, seq, turn, attempt, offset, [text]))
        self._wake.set()

    def tell(self, seq: int, update: TextReset | ToolProgress) -> None:
        """Queue that the text of a turn begins anew, or a tool's own word on how far its call is."""
        self._queue.append(_Provisional(seq, update))
        self._wake.set()

    async def run(self) -> None:
        """Publish what is queued until cancelled."""
        marked = time.monotonic()
        while True:
            await self._wait(marked)
            await self._send_queued()
            if time.monotonic() - marked >= _MARK_EVERY:
                marked = time.monotonic()
                await self._note()

    async def drain(self) -> None:
        """Publish and note what is queued now."""
        await self._send_queued()
        await self._note()
        await self._note()

    async def _send_queued(self) -> None:
        batch, self._queue = self._queue, []
        if batch and self._may_publish():
            await self._send(batch)

    async def _wait(self, marked: float) -> None:
        pause = max(_MARK_EVERY - (time.monotonic() - marked), 0.001) if self._published or self._to_note else None
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        if not any(isinstance(item, Publishing) for item in self._queue):
            await asyncio.sleep(_DELTA_EVERY)

    async def _send(self, batch: list[Publishing | _Text | _Provisional]) -> None:
        try:
            replies = await self._pipe(batch)
        except (RedisError, OSError) as exc:
            self._unsent += len(batch)
            if time.monotonic() - self._complained > _COMPLAIN_EVERY:
                log.warning("publish_failed", extra={"error": type(exc).__name__, "unsent": self._unsent})
                self._complained, self._unsent = time.monotonic(), 0
            await asyncio.sleep(0.05)
            return
        except Exception:  # one that cannot be written must not hold up the others
            if len(batch) == 1:
                log.exception("publish_broke", extra={"message_id": batch[0].message_id})
                return
            for item in batch:
                await self._send([item])
            return
        for item, reply in zip(batch, replies, strict=True):
            if isinstance(item, Publishing):
                await self._landed(item, reply)

    async def _pipe(self, batch: list[Publishing | _Text | _Provisional]) -> list[Any]:
        replies = await self._execute(batch)
        lost = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if lost:
            await self._redis.script_load(PUBLISH)
            await self._redis.script_load(ADD)
            for i, reply in zip(lost, await self._execute([batch[i] for i in lost]), strict=True):
                replies[i] = reply
        return replies

    async def _execute(self, batch: list[Publishing | _Text | _Provisional]) -> list[Any]:
        pipe = self._redis.pipeline(transaction=False)
        for item in batch:
            if isinstance(item, Publishing):
                keys, args = self._arguments(item)
                pipe.evalsha(self._script.sha, len(keys), *keys, *args)
            else:
                self._add(pipe, item)
        return list(await pipe.execute(raise_on_error=False))

    def _add(self, pipe: Any, item: _Text | _Provisional) -> None:
        update = item.update(self._now()) if isinstance(item, _Text) else item.update
        key = updates_key(self._prefix, update.message_id)
        pipe.evalsha(self._adding.sha, 1, key, item.seq, _MOST_ENTRIES, update.to_json())

    def _arguments(self, item: Publishing) -> tuple[list[str], list[Any]]:
        prefix, message_id = self._prefix, item.message_id
        keys = [updates_key(prefix, message_id), state_key(prefix, message_id), answer_key(prefix, message_id)]
        fields = [self._ttl, message_id, item.status, item.turn, item.worker, item.after, item.answer]
        bounds = [item.first, len(item.updates), _MOST_ENTRIES, max(self._ttl, _KEPT_WHILE_LIVE)]
        identity = [item.conversation_id, item.user_id, f"{item.submitted_at:.6f}", item.idempotency]
        return [*keys, cancels_key(prefix)], [*fields, *bounds, *identity, *item.updates]

    async def _landed(self, item: Publishing, reply: Any) -> None:
        if isinstance(reply, Exception):
            log.warning("publish_refused", extra={"error": type(reply).__name__, "message_id": item.message_id})
        elif reply == -1:
            await self.rebuild(item.message_id)
        else:
            self._published[item.message_id] = max(int(reply), self._published.get(item.message_id, 0))

    async def rebuild(self, message_id: str) -> bool:
        """Make a message's stream, state and answer again from the database, in one transaction."""
        try:
            found = await self._fetch(message_id)
        except StoreUnavailable:
            log.warning("rebuild_failed", extra={"error": "StoreUnavailable", "message_id": message_id})
            return False
        return found is not None and await self.restore(found)

    async def restore(self, found: Publication) -> bool:
        """Make a stream, its state and answer again from ``found``, in one transaction."""
        item, message_id = publishing(found), found.message_id
        keys, args = self._arguments(item)
        pipe = self._redis.pipeline(transaction=True)
        pipe.delete(keys[0])
        pipe.eval(PUBLISH, len(keys), *keys, *args)
        try:
            replies = await pipe.execute()
        except (RedisError, OSError) as exc:
            log.warning("rebuild_failed", extra={"error": type(exc).__name__, "message_id": message_id})
            return False
        self._published[message_id] = int(replies[-1])
        return True

    def take_published(self, message_id: str) -> int | None:
        """Return the highest number known to be published, to be noted with the next save."""
        before = self._to_note.pop(message_id, None)
        return self._published.pop(message_id, before)

    async def _note(self) -> None:
        noted, self._to_note, self._published = self._to_note, self._published, {}
        if not noted:
            return
        try:
            async with asyncio.timeout(_MARKED_WITHIN):
                await self._mark(list(noted.items()))
        except (StoreUnavailable, TimeoutError):
            # Not known to be published, so the watchdog publishes it again; Redis refuses what it has.
            log.warning("published_not_noted", extra={"messages": len(noted)})
