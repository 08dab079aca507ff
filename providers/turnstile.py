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
        finally:
            with self._mutex:
                came = turn.is_set()
                if not came:
                    self._waiting.remove(turn)
        return came

    def leave(self) -> None:
        """Let the next one in."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False
