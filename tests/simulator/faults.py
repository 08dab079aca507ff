"""What can go wrong with a request, and with which requests: drawn from the seed, listed, and left out at will."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import log

from tests.simulator.scheduler import Task


class FaultKind(str, Enum):
    """One way in which a request goes wrong."""

    UNAVAILABLE = "no answer; it was not carried out"
    LOST_REPLY = "carried out, but no answer"
    LATE = "no answer, and it is carried out later"
    DUPLICATE = "carried out twice by a retrying client, which reports the second answer"
    SLOW = "it takes long"
    PAUSE = "its process stands still before sending it"
    PAUSE_AFTER = "its process stands still after it was carried out"
    CRASH = "its process dies before sending it"
    CRASH_AFTER = "its process dies after it was carried out"


_ANY = (FaultKind.SLOW, FaultKind.PAUSE, FaultKind.PAUSE_AFTER, FaultKind.CRASH, FaultKind.CRASH_AFTER)
_READ = (FaultKind.UNAVAILABLE, *_ANY)
_WRITE = (FaultKind.UNAVAILABLE, FaultKind.LOST_REPLY, FaultKind.LATE, FaultKind.DUPLICATE, *_ANY)
_HOTTER = 15
_CRASHES = frozenset({FaultKind.CRASH, FaultKind.CRASH_AFTER})


@dataclass(frozen=True)
class Fault:
    """A fault at request number `request` of the task `label`; `amount_s` is a delay, if the fault needs one."""

    label: str
    request: int
    kind: FaultKind
    amount_s: float
    what: str = field(default="", compare=False)

    @property
    def place(self) -> tuple[str, int]:
        return self.label, self.request

    def __str__(self) -> str:
        return f"{self.label} request {self.request} ({self.what}): {self.kind.value}, {self.amount_s:.2f} s"


@dataclass(frozen=True)
class Weather:
    """How often each fault happens to a request, and how long things take."""

    rates: Mapping[FaultKind, float] = field(default_factory=dict)
    latency_s: float = 0.005
    longest_pause_s: float = 6.0
    longest_late_s: float = 6.0
    crashes_at_most: int = 3
    hot: str | tuple[str, ...] = ""
    """Requests whose text begins with this, or with one of these, meet faults far more often than others."""


class Faults:
    """Draws the fate of each request. `only` leaves out all faults but those at these places (a minimised run)."""

    def __init__(self, weather: Weather, only: frozenset[tuple[str, int]] | None = None) -> None:
        self.weather, self._only = weather, only
        self.happened: list[Fault] = []
        self.calm = False
        self.spared: Callable[[], bool] = lambda: False
        """Times at which nothing goes wrong in this run."""
        self._crashes = 0
        self._read = _ladder(weather, _READ)
        self._write = _ladder(weather, _WRITE)

    def fate(self, task: Task, what: str, *, writes: bool) -> tuple[float, Fault | None]:
        """How long the request takes, and what happens to it. Draws the same number of random numbers for each request."""
        task.requests += 1
        random = task.random.random
        delay, coin, amount = -log(1.0 - random()) * self.weather.latency_s, random(), random()
        if self.calm:
            return delay, None
        if self.weather.hot and what.startswith(self.weather.hot):
            coin /= _HOTTER
        ladder = self._write if writes else self._read
        if not ladder or coin >= ladder[-1][0]:
            return delay, None
        kind = next(kind for limit, kind in ladder if coin < limit)
        return delay, self._fault(task, kind, amount, what)

    def _fault(self, task: Task, kind: FaultKind, amount: float, what: str) -> Fault | None:
        if self._only is not None and (task.label, task.requests) not in self._only:
            return None
        if self.spared():
            return None
        if kind in _CRASHES:
            if self._crashes >= self.weather.crashes_at_most:
                return None
            self._crashes += 1
        fault = Fault(task.label, task.requests, kind, self._amount_s(kind, amount), what)
        self.happened.append(fault)
        return fault

    def _amount_s(self, kind: FaultKind, amount: float) -> float:
        if kind in (FaultKind.PAUSE, FaultKind.PAUSE_AFTER):
            return amount * amount * self.weather.longest_pause_s
        if kind in (FaultKind.LATE, FaultKind.DUPLICATE):
            return amount**3 * self.weather.longest_late_s
        return amount * amount


def _ladder(weather: Weather, kinds: tuple[FaultKind, ...]) -> tuple[tuple[float, FaultKind], ...]:
    steps, limit = [], 0.0
    for kind in kinds:
        rate = weather.rates.get(kind, 0.0)
        if rate:
            limit += rate
            steps.append((limit, kind))
    return tuple(steps)
