"""Scenarios beside a foreign writer that takes no lock and rolls back whatever is pending, as Java Hudi does by default."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.api import layout
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.foreign import ForeignWrite
from tests.simulator.locks import LockKind
from tests.simulator.operations import Insert, Look
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import BUSIEST, ActorPlan, Scenario

_HOT = (f"put-if-absent {layout.DECISIONS}/", f"get {layout.DECISIONS_BOUNDARY}", f"put-if-absent {layout.TIMELINE}/")


def careless(scenario: Scenario, random: Random) -> Scenario:
    """Writers that only insert, and pause around their decisions; the foreign one writes from the first moment on."""
    think_s = random.choice([0.05, 0.3, 1.0])
    writers = [_writer(random, number, think_s) for number in range(random.randint(1, 3))]
    numbers = range(BUSIEST * 4, BUSIEST * 4 + random.randint(6, 14))
    writes = tuple(ForeignWrite(n, (Row("1", f"f{n}", 50, (n,)),), eager=True, careless=True) for n in numbers)
    foreign = ActorPlan("foreign", writes, think_s=random.choice([0.01, 0.1, 0.5]))
    looks = tuple(Look(BUSIEST * 5 + number) for number in range(15))
    weather = Weather({FaultKind.PAUSE: random.choice([0.0, 0.02, 0.05])}, latency_s=0.02, longest_pause_s=1.5, hot=_HOT)
    return replace(
        scenario,
        actors=(foreign, *writers, ActorPlan("reader", looks, think_s=0.5)),
        foreign="careless",
        weather=weather,
        lock=LockKind.STORAGE,
        files="json",
        profile="strict",
        isolation="Serializable",
        lease_s=30.0,
    )


def _writer(random: Random, number: int, think_s: float) -> ActorPlan:
    first = BUSIEST * (number + 1)
    inserts = (
        Insert(one, tuple(Row(part, f"c{one}", 50, (one,)) for part in random.sample("012", random.randint(1, 2))))
        for one in range(first, first + random.randint(5, 12))
    )
    return ActorPlan(f"writer-{number}", tuple(inserts), skew_ms=random.choice([0, 0, 40]), think_s=think_s)
