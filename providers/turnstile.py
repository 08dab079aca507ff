"""A queue between the threads of one process, so that only one of them at a time contends for the remote lock."""

from __future__ import annotations

from collections import deque

from lakelock.clock import Flag, Runtime


class Turnstile:
    """Lets one in at a time, in order of arrival."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._mutex = runtime.mutex()
        self._taken = False
        self._waiting: deque[Flag] = deque()

    def enter(self, wait_s: float) -> bool:
        """Go in within `wait_s` seconds; False if our turn did not come in that time."""
        with self._mutex:
            if not self._taken:
                self._taken = True
                return True
            turn = self._runtime.flag()
            self._waiting.append(turn)
        try:
            turn.wait(wait_s)
        except BaseException:
            if not self._withdraws(turn):
                self.leave()  # it had come: whoever is next would wait for ever
            raise
        return not self._withdraws(turn)

    def _withdraws(self, turn: Flag) -> bool:
        """Stop waiting for this turn; False if it has come."""
        with self._mutex:
            if turn.is_set():
                return False
            self._waiting.remove(turn)
            return True

    def leave(self) -> None:
        """Let the next one in."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False
