"""Task attempts that continue when their commit no longer looks for them, and are killed with their files complete.

Spark makes a second attempt of a task that is slow or whose executor it believes lost, and does not report which has ended. An
attempt that survives checks at its end whether it is late (`spark_plugin/write_stages.py`); these are killed before that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

from lakelock.errors import LakelockError
from tests.simulator.checking.checks import Checker
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.operations import Insert, Look, Operation, Reap, Upsert
from tests.simulator.rows import Row
from tests.simulator.runtime import SimRuntime
from tests.simulator.scenarios.scenario import BUSIEST, HOT, ActorPlan, Scenario
from tests.simulator.scenarios.upkeep import Optimize
from tests.simulator.scheduler import Hub, Process
from tests.simulator.storage import SimStorage

OFTEN = 0.3
"""How often a task has such an attempt."""
_LATE_S = 3.0
_LOOK_S, _LOOKS = 0.05, 400

Attempt = Callable[..., object]
"""Writes a task's files once more; takes the `storage` and the `runtime` of its process."""


class Stragglers:
    """Starts them, each in a process of its own."""

    def __init__(
        self, hub: Hub, checker: Checker, process: Callable[[str], Process], storage: Callable[[Process], SimStorage]
    ) -> None:
        self._hub, self._checker = hub, checker
        self._process, self._storage = process, storage
        self._number = 0

    def follow(self, instant: str, attempt: Attempt) -> None:
        """Sometimes run this attempt, once the instant is decided."""
        hub = self._hub
        if hub.current.random.random() >= OFTEN:
            return
        self._number += 1
        process = self._process(f"straggler-{self._number}")
        hub.spawn(process, lambda: self._run(instant, attempt, SimRuntime(hub, process)), process.name)

    def _run(self, instant: str, attempt: Attempt, runtime: SimRuntime) -> None:
        hub = self._hub
        for _ in range(_LOOKS):
            if self._checker.ledger.is_decided(instant):
                hub.wait(_LATE_S * hub.current.random.random() ** 2)
                with suppress(LakelockError):
                    attempt(storage=self._storage(hub.current.process), runtime=runtime)
                return
            hub.wait(_LOOK_S)


def straggling(scenario: Scenario, random: Random) -> Scenario:
    """Rows that nobody looks up and rows that are rewritten all the time, with stragglers, readers, and a sweeping actor. In
    half of these scenarios another actor joins small files, too.

    Nobody derives writes from rows that were read: that would make temporary rows permanent.
    """
    rates = {FaultKind.SLOW: random.choice([0.01, 0.04]), FaultKind.PAUSE: random.choice([0.0, 0.002])}
    weather = Weather(rates, latency_s=0.01, longest_pause_s=2.0, hot="upload ")
    adding = tuple(_insert(random, BUSIEST + number) for number in range(random.randint(3, 8)))
    changing = tuple(_upsert(random, BUSIEST + 100 + number) for number in range(random.randint(3, 8)))
    looks = tuple(Look(BUSIEST + 200 + number) for number in range(20))
    sweeps: tuple[Operation, ...] = tuple(Reap(BUSIEST + 300 + number) for number in range(random.randint(10, 40)))
    actors: tuple[ActorPlan, ...] = (
        ActorPlan("adding", adding, think_s=0.3),
        ActorPlan("changing", changing, think_s=0.3),
        ActorPlan("reader", looks, think_s=0.5),
        ActorPlan("sweeper", sweeps, think_s=random.choice([0.03, 0.3])),
    )
    if random.random() < 0.5:
        joins = tuple(Optimize(BUSIEST + 400 + number) for number in range(random.randint(4, 16)))
        actors = (*actors, ActorPlan("optimizer", joins, think_s=0.2))
    return replace(scenario, actors=actors, weather=weather, profile="strict", lease_s=30.0, stragglers=True)


def _insert(random: Random, number: int) -> Operation:
    parts = random.sample("012", random.randint(1, 2))
    return Insert(number, tuple(Row(part, f"s{number}", random.randrange(100), (number,)) for part in parts))


def _upsert(random: Random, number: int) -> Operation:
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,)) for place in random.sample(HOT, 2)))
