"""The lock in Redis, as scripts that Redis runs as one step each.

`lock` is the lock: a string with a TTL, set by SET NX PX; its value is one grant as JSON. `token` counts grants. `queue` is a
sorted set of the grants that wait, and `next` is the one that was woken when the lock became free: for a while nobody else may
take the lock. A waiter listens to a channel of its own (`ear` names it), so a release wakes one waiter and not all; the answer
of PUBLISH shows whether it still listens. All keys have one hash tag, so that a cluster keeps them on one server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Protocol

GRACE_MS = 500
"""How long the lock is kept for the waiter that was woken."""
_QUEUE_MS = 86_400_000


@dataclass(frozen=True)
class Script:
    """A script, and the name by which Redis remembers it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class Names(Protocol):
    """Keys that one script needs together; they have one hash tag, so that a cluster keeps them on one server."""

    @property
    def names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Keys:
    """The names of everything that belongs to one lock."""

    key: str

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Lock, token, queue and next, as the scripts expect them."""
        tagged = f"{{{self.key}}}"
        return tagged, f"{tagged}:token", f"{tagged}:queue", f"{tagged}:next"

    def channel(self, channel_id: str) -> str:
        """The channel that one waiter listens to."""
        return f"{{{self.key}}}:free:{channel_id}"


_HEAD = f"""
local lock, counter, queue, reserved = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local function hand_over()
  while true do
    local first = redis.call('zpopmin', queue)[1]
    if not first then return end
    local fine, waiter = pcall(cjson.decode, first)
    local heard = fine and redis.pcall('publish', lock .. ':free:' .. waiter.ear, 'free')
    if type(heard) == 'number' and heard > 0 then
      redis.call('set', reserved, first, 'PX', {GRACE_MS})
      return first
    end
  end
end
"""

TAKE = Script(
    _HEAD
    + f"""
local me, lease_ms, floor, join = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local function grant()
  local now = redis.call('time')
  local token = math.max((tonumber(redis.call('get', counter)) or 0) + 1, floor, now[1] * 1000 + math.floor(now[2] / 1000))
  redis.call('set', lock, me, 'NX', 'PX', lease_ms)
  redis.call('set', counter, string.format('%.0f', token))
  return token
end
if redis.call('exists', lock, reserved, queue) == 0 then return grant() end
local held, left_ms = redis.call('get', lock), 0
if held == me then
  redis.call('pexpire', lock, lease_ms)
  return tonumber(redis.call('get', counter))
end
if held then
  left_ms = redis.call('pttl', lock)
else
  local woken, first = redis.call('get', reserved), redis.call('zrange', queue, 0, 0)[1]
  if not woken and first and first ~= me then woken = hand_over() end
  if not woken or woken == me then
    if woken then redis.call('del', reserved) end
    if first then redis.call('zrem', queue, me) end
    return grant()
  end
  held, left_ms = woken, redis.call('pttl', reserved)
end
if join == '1' and not redis.call('zscore', queue, me) then
  local last = redis.call('zrevrange', queue, 0, 0, 'WITHSCORES')[2]
  redis.call('zadd', queue, (tonumber(last) or 0) + 1, me)
  redis.call('pexpire', queue, {_QUEUE_MS})
end
return {{tonumber(redis.call('get', counter)) or 0, held, left_ms}}
"""
)
"""value, lease in ms, lowest token, 1 to queue up -> the token; or a list: the latest token, the holder, its ms left."""

EXTEND = Script(
    """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""
)
"""value, lease in ms -> 1, or 0 when the lock is not this grant's."""

GIVE_BACK = Script(
    _HEAD
    + """
if redis.call('get', lock) ~= ARGV[1] then return 0 end
redis.call('del', lock)
hand_over()
return 1
"""
)
"""value -> 1, or 0 when the lock is not this grant's."""

LEAVE = Script(
    _HEAD
    + """
local me = ARGV[1]
redis.call('zrem', queue, me)
if redis.call('get', lock) == me then redis.call('del', lock) end
if redis.call('get', reserved) == me then redis.call('del', reserved) end
if redis.call('exists', lock, reserved) == 0 then hand_over() end
return 1
"""
)
"""value -> 1: it no longer waits, and holds nothing without knowing it."""

LOOK = Script(
    """
local now = redis.call('time')
return {redis.call('get', KEYS[1]) or '', redis.call('pttl', KEYS[1]), redis.call('get', KEYS[2]) or '0',
        now[1] * 1000 + math.floor(now[2] / 1000), redis.call('zrange', KEYS[3], 0, -1)}
"""
)
""" -> the holder ('' if free), its ms left, the latest token, the server's clock in ms, the waiters."""

BREAK = Script(
    _HEAD
    + """
local token, held = redis.call('get', counter) or '0', redis.call('get', lock)
if token ~= ARGV[1] then return {'token', token, 0} end
if not held then return {'free', '', 0} end
if ARGV[2] ~= '1' then return {'held', held, redis.call('pttl', lock)} end
redis.call('del', lock)
hand_over()
return {'broken', held, 0}
"""
)
"""token, 1 for force -> what was found or done, with the token or the holder, and its ms left."""
