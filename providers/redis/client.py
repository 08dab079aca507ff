"""Talking to Redis through redis-py: connections with a bound on each answer, and scripts that run as one step.

redis-py's own retries are off: a waiter tries again within its own bound, and a renewal must not hang. For each command,
redis-py's `Redis` takes a connection out of its pool, checks its socket, measures and dispatches: about as much work
again as the command itself, and its time-outs are fixed. Its connections are public API, and all that a lock needs, so
one is kept open (`Line`).

`lock` is the lock: a string with a TTL, set by SET NX PX; its value is one grant as JSON. `token` counts grants. `queue`
is a sorted set of the grants that wait, and `next` is the one that was woken when the lock became free: for a while no
other grant may take the lock. A waiter listens to a channel of its own (`ear` names it), so a release wakes one waiter
and not all; the answer of PUBLISH shows whether it still listens. All keys have one hash tag, so that a cluster keeps
them on one server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha1
from math import inf
from typing import Any

from lakelock.clock import Runtime
from lakelock.errors import ProviderRefused, ProviderUnavailable
from lakelock.providers.redis.servers import RedisAddress, RedisOptions, Servers, is_refusal, redis_driver

Command = tuple[str | bytes | int, ...]

_RESTED_S = 0.5
"""A connection that was idle for this long may have been closed by the server, and is checked first."""


class Line:
    """A connection of redis-py, made by `dial` when it is first needed. Used by one thread at a time.

    `dial` is given the seconds that it may take.
    """

    def __init__(self, dial: Callable[[float], Any], errors: Any, runtime: Runtime) -> None:
        self._dial, self._errors, self._runtime = dial, errors, runtime
        self._connection: Any = None
        self._used_s = 0.0

    def ask(self, commands: Sequence[Command], within_s: float) -> list[Any]:
        """The answers to `commands`, sent back to back; an error from the server is an answer, too.

        Any other error is raised and closes the line: a late answer must not be taken for that of the next command.
        """
        until_s = self._runtime.monotonic_s() + within_s
        try:
            connection = self._connected(within_s)
            for command in commands:
                connection.send_command(*command, check_health=False)
            answers = [self._answer(connection, until_s) for _ in commands]
        except BaseException:
            self.close()
            raise
        self._used_s = self._runtime.monotonic_s()
        return answers

    def hear(self, within_s: float) -> Any:
        """A message that the server pushes on a subscribed line; None when there is none within that time."""
        connection = self._connection
        if connection is None:
            raise self._errors.ConnectionError("the line is closed")
        return connection.read_response() if connection.can_read(within_s) else None

    def close(self) -> None:
        """Hang up; the next call of `ask` opens the line again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.disconnect()

    def _connected(self, within_s: float) -> Any:
        connection = self._connection
        if connection is not None and self._runtime.monotonic_s() - self._used_s > _RESTED_S:
            try:
                stale = connection.can_read(0)
            except (self._errors.RedisError, OSError):
                stale = True
            if stale:
                self.close()
        if self._connection is None:
            self._connection = self._dial(within_s)
        return self._connection

    def _answer(self, connection: Any, until_s: float) -> Any:
        if not connection.can_read(max(0.001, until_s - self._runtime.monotonic_s())):
            raise self._errors.TimeoutError("no answer in time")
        try:
            return connection.read_response()
        except self._errors.ResponseError as error:
            return error


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

_REPLICAS_WAIT_S = 0.5
"""How long a request waits for replicas, where `wait_replicas` asks for some."""


class RedisClient:
    """Runs scripts on the server that has the lock, one at a time. Connects when it is first needed."""

    def __init__(self, address: RedisAddress, options: RedisOptions, keys: Keys, runtime: Runtime, *, longest_s: float) -> None:
        self._driver = redis_driver()
        self._address, self._options, self._keys, self._runtime = address, options, keys, runtime
        self._timeout_s = min(options.socket_timeout, longest_s)
        self._heads: dict[str, Command] = {}
        self._pid, self._mutex = os.getpid(), runtime.mutex()
        self._line: Line | None = None

    def run(self, script: Script, *arguments: str | int, within_s: float = inf) -> Any:
        """The script's answer; `ProviderUnavailable` when there is none: the script may or may not have run."""
        return self._ask(script, arguments, (), within_s)[0]

    def run_as_asked(self, script: Script, *arguments: str | int, within_s: float = inf) -> tuple[Any, int]:
        """`run_replicated` where `lock.options.wait_replicas` asks for replicas, otherwise `run`, with 0 replicas."""
        if self._options.wait_replicas:
            return self.run_replicated(script, *arguments, within_s=within_s)
        return self.run(script, *arguments, within_s=within_s), 0

    def run_replicated(self, script: Script, *arguments: str | int, within_s: float = inf) -> tuple[Any, int]:
        """The script's answer, and how many replicas have what this connection wrote: asked on the same connection."""
        # WAIT must answer before the request is given up.
        wait_s = min(_REPLICAS_WAIT_S, 0.8 * min(self._timeout_s, within_s))
        wait = "WAIT", self._options.wait_replicas, round(wait_s * 1000)
        answer, replicas = self._ask(script, arguments, (wait,), within_s)
        return answer, int(replicas)

    def ensure_replicated(self, replicas: int, what: str) -> None:
        """`ProviderUnavailable` if fewer replicas than asked for had `what` in time."""
        wanted = self._options.wait_replicas
        if replicas < wanted:
            raise ProviderUnavailable(
                f"only {replicas} of {wanted} replicas had {what} in time",
                hint="check the replicas of Redis, or lower lock.options.wait_replicas",
            )

    def _ask(self, script: Script, arguments: Sequence[str | int], more: tuple[Command, ...], within_s: float) -> list[Any]:
        """The answers to the script and to the commands after it; the script's text is sent if the server does not have it."""
        self._notice_fork()
        with self._mutex, self.errors_translated():
            answers = self._answers((self._by_sha(script, arguments), *more), within_s)
            if isinstance(answers[0], self._driver.exceptions.NoScriptError):
                answers = self._answers((self._by_text(script, arguments), *more), within_s)
            return self._checked(answers)

    def _answers(self, commands: Sequence[Command], within_s: float) -> list[Any]:
        if self._line is None:
            self._line = self._new_line()
        return self._line.ask(commands, min(within_s, self._timeout_s))

    def _checked(self, answers: list[Any]) -> list[Any]:
        """The answers, unless one is an error: then it is raised, and the server looked up again, for it may be another one."""
        for answer in answers:
            if isinstance(answer, Exception):
                if self._line is not None:
                    self._line.close()
                raise answer
        return answers

    def eviction_policy(self) -> str:
        """What the server does when its memory is full; "" where that cannot happen or this user may not ask."""
        self._notice_fork()
        with self._mutex, self.errors_translated():
            try:
                (answer,) = self._checked(self._answers((("INFO", "memory"),), inf))
            except self._driver.exceptions.NoPermissionError:
                return ""
        memory = dict(line.partition(":")[::2] for line in answer.decode().splitlines())
        return memory.get("maxmemory_policy", "") if memory.get("maxmemory", "0") != "0" else ""

    def listen(self, channel: str, within_s: float = inf) -> Subscription:
        """A subscription that is in effect on return."""
        self._notice_fork()
        with self._mutex, self.errors_translated():
            line = self._new_line()
            (answer,) = line.ask((("SUBSCRIBE", channel),), min(within_s, self._timeout_s))
            if isinstance(answer, Exception):
                line.close()
                raise answer
        return Subscription(self, line, self._runtime)

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        self._notice_fork()
        with self._mutex:
            line, self._line = self._line, None
            if line is not None:
                line.close()

    def _notice_fork(self) -> None:
        """Drop the parent's connections in a forked child, without closing them: both would hear each other's answers."""
        if self._pid != os.getpid():
            self._pid, self._mutex = os.getpid(), self._runtime.mutex()
            self._line = None

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        driver = self._driver.exceptions
        try:
            yield
        except (driver.RedisError, OSError, ValueError) as error:  # ValueError: another thread closed this provider
            text, refused = str(error), is_refusal(self._driver, error)
            raise (ProviderRefused if refused else ProviderUnavailable)(
                f"Redis at {self._address.place} {'refused' if refused else 'gave no answer'}: {text or type(error).__name__}",
                hint="check the user, the password and what its ACL allows: scripts, the keys and channels "
                f"{self._keys.names[0]}*"
                if refused
                else "check that the server runs and is reachable from here, and lock.options.socket_timeout",
                final=refused,
            ) from error

    def _new_line(self) -> Line:
        servers = Servers(
            self._driver, self._address, self._options, self._keys.names[0], self._runtime, timeout_s=self._timeout_s
        )
        return Line(servers.connect, self._driver.exceptions, self._runtime)

    def _head(self, command: str, name: bytes) -> Command:
        names = [each.encode() for each in self._keys.names]
        return (command, name, b"%d" % len(names), *names)

    def _by_sha(self, script: Script, arguments: Sequence[str | int]) -> Command:
        head = self._heads.get(script.sha)
        if head is None:
            head = self._heads[script.sha] = self._head("EVALSHA", script.sha.encode())
        return (*head, *arguments)

    def _by_text(self, script: Script, arguments: Sequence[str | int]) -> Command:
        return (*self._head("EVAL", script.text.encode()), *arguments)


class Subscription:
    """One subscription, which gets a message when it is this writer's turn."""

    def __init__(self, client: RedisClient, line: Line, runtime: Runtime) -> None:
        self._client, self._line, self._runtime = client, line, runtime

    def wait(self, at_most_s: float) -> bool:
        """Whether a message came within that time. `ProviderUnavailable` when the connection is gone."""
        until_s = self._runtime.monotonic_s() + at_most_s
        with self._client.errors_translated():
            while (left_s := until_s - self._runtime.monotonic_s()) > 0:
                heard = self._line.hear(left_s)
                if heard is not None and heard[0] == b"message":
                    return True
        return False

    def close(self) -> None:
        self._line.close()
