"""One connection to Redis that is kept open, with a bound on the wait for each answer.

For each command, redis-py's `Redis` takes a connection out of its pool, checks its socket, measures and dispatches: about as
much work again as the command itself, and its time-outs are fixed. Its connections are public API, and all that a lock needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from lakelock.clock import Runtime

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
