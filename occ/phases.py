"""Where the time of a transaction went, as far as its parts can be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakelock.clock import Runtime
from lakelock.str_enum import StrEnum


class Phase(StrEnum):
    """LOOK_UP finds which files hold the rows, SHUFFLE computes the rows of the call and brings them together, WRITE merges
    and encodes files: Spark does the last two in one stage, so they are one phase. VALIDATE is the commit up to its decision
    without the wait for the lock, PUBLISH makes the decision visible.
    """

    LOOK_UP = "look-up"
    SHUFFLE = "shuffle"
    WRITE = "write"
    LOCK_WAIT = "lock-wait"
    VALIDATE = "validate"
    PUBLISH = "publish"


class Phases:
    """Adds up seconds by phase. The time of a phase inside another one counts for the inner one only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._seconds: dict[Phase, float] = dict.fromkeys(Phase, 0.0)
        self._running: list[Phase] = []
        self._since_s = 0.0

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """The time of the block is this phase's."""
        self._settle()
        self._running.append(phase)
        try:
            yield
        finally:
            self._settle()
            self._running.pop()

    def told(self) -> Mapping[str, float]:
        """Seconds so far by the name of the phase, in the order of the work; phases that took no time are left out."""
        self._settle()
        return {phase.value: round(took_s, 3) for phase, took_s in self._seconds.items() if took_s > 0}

    def _settle(self) -> None:
        """Count the time since the last change for the innermost phase."""
        now_s = self._runtime.monotonic_s()
        if self._running:
            self._seconds[self._running[-1]] += now_s - self._since_s
        self._since_s = now_s
