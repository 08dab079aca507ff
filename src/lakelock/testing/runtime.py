"""Time, randomness and threads that a test decides: the same calls give the same run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import TypeVar
from uuid import UUID

from lakelock.clock import Flag, Repeating

T = TypeVar("T")

START_MS = 1_700_000_000_000


class ManualRuntime:
    """A `Runtime` whose clock moves only by `advance` and `sleep`, for use in one thread.

    Actions started by `every` run inside those two calls, at their exact times, in order of time and then of starting.
    `skew_ms` may be set to make the wall clock wrong; that changes neither the monotonic clock nor the schedule.
    """

    def __init__(self, *, seed: int = 0, start_ms: int = START_MS) -> None:
        self._random = Random(seed)
        self._start_ms, self._elapsed_s = start_ms, 0.0
        self._scheduled: list[_Scheduled] = []
        self._started = 0
        self.skew_ms = 0
        self.slept_s: list[float] = []

    def now_ms(self) -> int:
        return self._start_ms + self.skew_ms + round(self._elapsed_s * 1000)

    def monotonic_s(self) -> float:
        return self._elapsed_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.advance(max(0.0, seconds))

    def random(self) -> float:
        return self._random.random()

    def uuid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def advance(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, and run what is due on the way; stop early once `unless` is true."""
        until_s = self._elapsed_s + seconds
        while not unless():
            due = [each for each in self._scheduled if each.due_s <= until_s and not each.running]
            if not due:
                self._elapsed_s = max(self._elapsed_s, until_s)
                return
            first = min(due, key=lambda each: (each.due_s, each.number))
            self._elapsed_s = max(self._elapsed_s, first.due_s)
            first.run()

    def freeze(self, seconds: float) -> None:
        """Let time pass while nothing runs, as for a paused process; whatever was due then runs at the next `advance`."""
        self._elapsed_s += seconds

    def every(self, interval_s: float, action: Callable[[], None], *, name: str) -> Repeating:
        self._started += 1
        scheduled = _Scheduled(self, name, interval_s, action, self._elapsed_s + interval_s, self._started)
        self._scheduled.append(scheduled)
        return scheduled

    @property
    def repeating(self) -> list[str]:
        """Names of the background actions that have not been stopped."""
        return [each.name for each in self._scheduled]

    def stop_repeating(self) -> None:
        """End every background action at once and without its `stop`, as the death of a process does."""
        self._scheduled.clear()

    def gather(self, calls: Sequence[Callable[[], T]], *, limit: int) -> list[T]:
        return [call() for call in calls]

    def mutex(self) -> AbstractContextManager[object]:
        return nullcontext()

    def flag(self) -> Flag:
        return _ManualFlag(self)

    def _stop(self, scheduled: _Scheduled) -> None:
        if scheduled in self._scheduled:
            self._scheduled.remove(scheduled)


@dataclass(eq=False)
class _Scheduled:
    runtime: ManualRuntime
    name: str
    interval_s: float
    action: Callable[[], None]
    due_s: float
    number: int
    running: bool = False

    def run(self) -> None:
        """Run once; the next run is due one interval after this one has ended."""
        self.running = True
        try:
            self.action()
        except BaseException:
            self.stop()
            raise
        finally:
            self.running = False
            self.due_s = self.runtime.monotonic_s() + self.interval_s

    def stop(self) -> None:
        self.runtime._stop(self)


class _ManualFlag:
    def __init__(self, runtime: ManualRuntime) -> None:
        self._runtime, self._set = runtime, False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout_s: float) -> bool:
        self._runtime.advance(timeout_s, unless=self.is_set)
        return self._set
