"""`lakelock.clock.Runtime` on the simulator's scheduler: each process has a wall clock and a rate of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

from lakelock.clock import Flag, Repeating
from tests.simulator.scheduler import Hub, Process, Task

T = TypeVar("T")

START_MS = 1_700_000_000_000
_LONG_S = 3_600.0
_VERSION_MASK = 0xF000 << 64 | 0xC000 << 48
_VERSION_4 = 4 << 76 | 0x8000 << 48


class SimRuntime:
    """Time, randomness and threads of one simulated process."""

    def __init__(self, hub: Hub, process: Process) -> None:
        self._hub, self._process = hub, process

    def now_ms(self) -> int:
        return START_MS + self._process.skew_ms + round(self._hub.now_s * self._process.rate * 1000)

    def monotonic_s(self) -> float:
        return self._process.number * 1_000.0 + self._hub.now_s * self._process.rate

    def sleep(self, seconds: float) -> None:
        self._hub.wait(seconds / self._process.rate)

    def random(self) -> float:
        return self._hub.current.random.random()

    def uuid(self) -> str:
        bits = self._hub.current.random.getrandbits(128) & ~_VERSION_MASK | _VERSION_4
        text = f"{bits:032x}"  # what str(UUID(...)) gives, in a third of the time
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def every(self, interval_s: float, action: Callable[[], None], *, name: str) -> Repeating:
        return _Repeating(self._hub, self._process, interval_s / self._process.rate, action)

    def gather(self, calls: Sequence[Callable[[], T]], *, limit: int) -> list[T]:
        """Run the calls one by one, in an order that the seed chooses; all of them run before the first error is raised."""
        order = list(range(len(calls)))
        if limit > 1 and len(order) > 1:
            self._hub.current.random.shuffle(order)
        results: dict[int, T] = {}
        errors: dict[int, Exception] = {}
        for number in order:
            try:
                results[number] = calls[number]()
            except Exception as error:  # noqa: BLE001  raised below, as a pool of threads does
                errors[number] = error
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in range(len(calls))]

    def mutex(self) -> AbstractContextManager[object]:
        return _Mutex(self._hub)

    def flag(self) -> Flag:
        return _Flag(self._hub, self._process)


class _Repeating:
    def __init__(self, hub: Hub, process: Process, interval_s: float, action: Callable[[], None]) -> None:
        self._hub, self._interval_s, self._action = hub, interval_s, action
        self._running = self._stopped = False
        self._waiting: list[Task] = []
        starter = hub.current
        starter.repeats += 1
        self._task = hub.spawn(process, self._run, f"{starter.label}~{starter.repeats}")

    def _run(self) -> None:
        while True:
            self._hub.wait(self._interval_s)
            if self._stopped:
                return
            self._running = True
            try:
                self._action()
            finally:
                self._running = False
                for task in self._waiting:
                    self._hub.wake(task)
            if self._stopped:
                return

    def stop(self) -> None:
        self._stopped = True
        current = self._hub.current
        while self._running and current is not self._task:
            self._waiting.append(current)
            self._hub.park(_LONG_S)
            self._waiting.remove(current)


class _Mutex(AbstractContextManager[object]):
    """A reentrant lock between the tasks of one process."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._owner: object = None
        self._depth = 0
        self._waiting: list[Task] = []

    def __enter__(self) -> object:
        current = self._hub.current
        while self._owner is not None and self._owner is not current:
            self._waiting.append(current)
            self._hub.park(_LONG_S)
            self._waiting.remove(current)
        self._owner, self._depth = current, self._depth + 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            for task in self._waiting:
                self._hub.wake(task)


class _Flag:
    def __init__(self, hub: Hub, process: Process) -> None:
        self._hub, self._process = hub, process
        self._set = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        self._set = True
        for task in self._waiting:
            self._hub.wake(task)

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout_s: float) -> bool:
        if not self._set and timeout_s > 0:
            self._waiting.append(self._hub.current)
            self._hub.park(timeout_s / self._process.rate)
            self._waiting.remove(self._hub.current)
        return self._set
