"""The Lua that must happen in one piece inside Redis; each script says its KEYS, ARGV and reply."""

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Final


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua text and the name Redis gives it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


SUBMIT: Final = Script("""
-- KEYS state, record, waiting, inbox [, idempotency record]
-- ARGV message id, submission, conversation id, user id, seconds to keep, digest
-- -> {'stored'} | {'known', first message id, its conversation id} | {'conflict'}
-- Run twice for one id (a reply was lost, the client asked again) it stores once.
if redis.call('EXISTS', KEYS[1]) == 1 then return {'stored'} end
if KEYS[5] then
  local record = redis.call('GET', KEYS[5])
  if record then
    local first, digest = string.match(record, '^(%S+) (%S+)$')
    if digest ~= ARGV[6] then return {'conflict'} end
    local state = string.sub(KEYS[1], 1, -1 - string.len(ARGV[1])) .. first
    return {'known', first, redis.call('HGET', state, 'conversation_id') or ''}
  end
end
local time = redis.call('TIME')
local now = time[1] .. '.' .. string.format('%06d', time[2])
redis.call('SET', KEYS[2], ARGV[2])
redis.call('RPUSH', KEYS[3], ARGV[1])
redis.call('ZADD', KEYS[4], now, ARGV[1])
redis.call('HSET', KEYS[1], 'status', 'queued', 'conversation_id', ARGV[3], 'user_id', ARGV[4],
  'submitted_at', now, 'idempotency', KEYS[5] or '')
redis.call('EXPIRE', KEYS[1], ARGV[5])
if KEYS[5] then redis.call('SET', KEYS[5], ARGV[1] .. ' ' .. ARGV[6], 'EX', ARGV[5]) end
return {'stored'}
""")

NUDGE: Final = Script("""
-- KEYS state     ARGV seconds to keep     -> 1 if the message was not known to Redis yet
-- For a message that lies in the web app's own database: wait() and follow() may be called at once.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'status', 'queued', 'submitted_at', time[1] .. '.' .. string.format('%06d', time[2]))
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
""")

CANCEL: Final = Script("""
-- KEYS answer, state, record, cancels
-- ARGV message id, control channel, seconds to keep, final status ...
-- -> 1 asked for | 0 it had ended | -1 unknown
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local status = redis.call('HGET', KEYS[2], 'status')
for i = 4, #ARGV do
  if status == ARGV[i] then return 0 end
end
if not status and redis.call('EXISTS', KEYS[3]) == 0 then return -1 end
local now = redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', '(' .. (now - ARGV[3]))
redis.call('ZADD', KEYS[4], now, ARGV[1])
redis.call('EXPIRE', KEYS[4], ARGV[3])
redis.call('PUBLISH', ARGV[2], 'cancel ' .. ARGV[1])
return 1
""")

LOOK: Final = Script("""
-- KEYS answer, state, record, updates, filled     ARGV prefix of alive keys, what filled holds
-- -> {answer, {state field, value ...}, record if there is no state, {id, text} of the last update,
--     1 if the worker is lost, 1 if Redis holds what the database knows}
local answer = redis.call('GET', KEYS[1])
local state = redis.call('HGETALL', KEYS[2])
local record = #state == 0 and redis.call('GET', KEYS[3])
local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local worker = redis.call('HGET', KEYS[2], 'worker')
local lost = worker and worker ~= '' and redis.call('EXISTS', ARGV[1] .. worker) == 0
return {answer, state, record, last and {last[1], last[2][2]} or false, lost and 1 or 0,
  redis.call('GET', KEYS[5]) == ARGV[2] and 1 or 0}
""")

WAKE: Final = Script("""
-- KEYS wake stream     ARGV seconds to keep
redis.call('XADD', KEYS[1], 'MAXLEN', 1, '*', 'w', 1)
return redis.call('EXPIRE', KEYS[1], ARGV[1])
""")
