"""One connection to Redis that is kept open, with a bound on the wait for each answer.

For each command, redis-py's `Redis` takes a connection out of its pool, checks its socket, measures and dispatches: about as
much work again as the command itself, and its time-outs are fixed. Its connections are public API, and all that a lock needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lakelock.clock import Runtime

Command = tuple[str | bytes | int, ...]

_RESTED_S = 0.5
"""A connection that was idle for this long may have been closed by the server, and is checked first."""


class Line:
    """A connection of redis-py, connected when it is first needed. Used by one thread at a time."""

    def __init__(self, connection: Any, errors: Any, runtime: Runtime) -> None:
        self._connection, self._errors, self._runtime = connection, errors, runtime
        self._timeouts_s = connection.socket_timeout, connection.socket_connect_timeout
        self._open, self._used_s = False, 0.0

    def ask(self, commands: Sequence[Command], within_s: float) -> list[Any]:
        """The answers to `commands`, sent back to back; an error from the server is an answer, too.

        Any other error is raised and closes the line: a late answer must not be taken for that of the next command.
        """
        until_s = self._runtime.monotonic_s() + within_s
        try:
            self._connect(within_s)
            for command in commands:
                self._connection.send_command(*command, check_health=False)
            answers = [self._answer(until_s) for _ in commands]
        except BaseException:
            self.close()
            raise
        self._used_s = self._runtime.monotonic_s()
        return answers

    def hear(self, within_s: float) -> Any:
        """A message that the server pushes on a subscribed line; None when there is none within that time."""
        if not self._open:
            raise self._errors.ConnectionError("the line is closed")
        return self._connection.read_response() if self._connection.can_read(within_s) else None

    def close(self) -> None:
        """Hang up; the next call of `ask` opens the line again."""
        self._open = False
        with suppress(Exception):
            self._connection.disconnect()

    def _connect(self, within_s: float) -> None:
        if self._open and self._runtime.monotonic_s() - self._used_s > _RESTED_S:
            try:
                stale = self._connection.can_read(0)
            except (self._errors.RedisError, OSError):
                stale = True
            if stale:
                self.close()
        if not self._open:
            # Connecting includes some requests and answers; this bounds each of them.
            timeouts_s = (min(longest_s, within_s) for longest_s in self._timeouts_s)
            self._connection.socket_timeout, self._connection.socket_connect_timeout = timeouts_s
            self._connection.connect()
            self._open = True

    def _answer(self, until_s: float) -> Any:
        if not self._connection.can_read(max(0.001, until_s - self._runtime.monotonic_s())):
            raise self._errors.TimeoutError("no answer in time")
        try:
            return self._connection.read_response()
        except self._errors.ResponseError as error:
            return error
