"""Requests that were given up without an answer: taken back again and again, since a slow service may carry them out yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lakelock.clock import Repeating, Runtime
from lakelock.errors import LakelockError

_AGAIN_S = 0.25
"""What got no answer is taken back again after this, then after twice as long, and so on."""
_MOST = 8
"""How many are taken back at a time; of more the latest."""


@dataclass
class _Unanswered:
    """Taken back at `next_s`, then after `wait_s`, until `until_s`."""

    take_back: Callable[[], object]
    until_s: float
    next_s: float
    wait_s: float = _AGAIN_S


class TakingBack:
    """One thread for all requests of one writer, as long as there are some.

    No caller waits for it. Without it a grant that no writer knows of would keep all others out for a lease.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._mutex = runtime, runtime.mutex()
        self._unanswered: list[_Unanswered] = []
        self._thread: Repeating | None = None
        self._ended = False

    def add(self, take_back: Callable[[], object], for_s: float, name: str) -> None:
        """Call `take_back` now and then, for as long as the grant would last; its errors mean nothing."""
        now_s = self._runtime.monotonic_s()
        with self._mutex:
            self._unanswered = [*self._unanswered[1 - _MOST :], _Unanswered(take_back, now_s + for_s, now_s + _AGAIN_S)]
            if self._thread is None and not self._ended:
                self._thread = self._runtime.every(_AGAIN_S, self._look, name=f"take-back-{name}")

    def end(self) -> None:
        """From now on nothing is taken back."""
        self._ended = True
        self._stop()

    def _look(self) -> None:
        for found in self._unanswered:
            if self._runtime.monotonic_s() < found.next_s:
                continue
            with suppress(LakelockError):
                found.take_back()
            found.wait_s *= 2
            found.next_s = self._runtime.monotonic_s() + found.wait_s
        with self._mutex:
            self._unanswered = [found for found in self._unanswered if found.next_s < found.until_s]
            is_over = not self._unanswered
        if is_over:
            self._stop()

    def _stop(self) -> None:
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
