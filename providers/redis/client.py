"""Talking to Redis through redis-py.

redis-py's own retries are off: a waiter tries again within its own bound, and a renewal must not hang.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from lakelock.clock import Runtime
from lakelock.errors import ProviderRefused, ProviderUnavailable
from lakelock.providers.redis.address import RedisAddress
from lakelock.providers.redis.line import Command, Line
from lakelock.providers.redis.options import RedisOptions, redis_driver
from lakelock.providers.redis.scripts import Names, Script
from lakelock.providers.redis.servers import Servers, is_refusal

_REPLICAS_WAIT_S = 0.5
"""How long a request waits for replicas, where `wait_replicas` asks for some."""


class RedisClient:
    """Runs scripts on the server that has the lock, one at a time. Connects when it is first needed."""

    def __init__(
        self, address: RedisAddress, options: RedisOptions, keys: Names, runtime: Runtime, *, longest_s: float
    ) -> None:
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
        with self._mutex, self.trouble():
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
        with self._mutex, self.trouble():
            try:
                (answer,) = self._checked(self._answers((("INFO", "memory"),), inf))
            except self._driver.exceptions.NoPermissionError:
                return ""
        memory = dict(line.partition(":")[::2] for line in answer.decode().splitlines())
        return memory.get("maxmemory_policy", "") if memory.get("maxmemory", "0") != "0" else ""

    def listen(self, channel: str, within_s: float = inf) -> Subscription:
        """A subscription that is in effect on return."""
        self._notice_fork()
        with self._mutex, self.trouble():
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
    def trouble(self) -> Iterator[None]:
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
    """One subscription, which is told when it is this writer's turn."""

    def __init__(self, client: RedisClient, line: Line, runtime: Runtime) -> None:
        self._client, self._line, self._runtime = client, line, runtime

    def wait(self, at_most_s: float) -> bool:
        """Whether a message came within that time. `ProviderUnavailable` when the connection is gone."""
        until_s = self._runtime.monotonic_s() + at_most_s
        with self._client.trouble():
            while (left_s := until_s - self._runtime.monotonic_s()) > 0:
                heard = self._line.hear(left_s)
                if heard is not None and heard[0] == b"message":
                    return True
        return False

    def close(self) -> None:
        self._line.close()
