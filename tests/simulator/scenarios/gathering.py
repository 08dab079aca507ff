"""Scenarios of small writes that meet: most of them wait for each other, while their writers pause, die and give up."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.api import layout
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.locks import LockKind
from tests.simulator.operations import Collect, DeleteKeys, Insert, Operation, Reap, Upsert
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import BUSIEST, ActorPlan, Scenario

_HOT = (
    f"put-if-absent {layout.DECISIONS}/",
    f"put-if-absent {layout.OFFERS}/",
    f"list {layout.OFFERS}",
    f"get {layout.OFFERS}/",
    f"get {layout.DECISIONS_BOUNDARY}",
)

_SHARED = ("s0", "s1", "s2")
"""Keys that several of them write."""


def gathering(scenario: Scenario, random: Random) -> Scenario:
    """Several writers insert, upsert and delete again and again with hardly a pause, beside what the scenario has."""
    rates = {
        FaultKind.PAUSE: random.choice([0.0, 0.003, 0.01]),
        FaultKind.PAUSE_AFTER: random.choice([0.0, 0.003]),
        FaultKind.CRASH: random.choice([0.0, 0.001]),
        FaultKind.CRASH_AFTER: random.choice([0.0, 0.001]),
        FaultKind.LATE: random.choice([0.0, 0.002]),
        FaultKind.LOST_REPLY: random.choice([0.0, 0.002]),
        FaultKind.UNAVAILABLE: random.choice([0.0, 0.0, 0.002]),
    }
    weather = Weather(
        rates,
        latency_s=random.choice([0.002, 0.01]),
        longest_pause_s=random.choice([2.0, 12.0, 30.0]),
        longest_late_s=random.choice([1.0, 8.0]),
        crashes_at_most=4,
        hot=random.choice((*_HOT, _HOT[:2], _HOT[1:4])),
    )
    writers = [
        ActorPlan(
            f"gatherer-{number}",
            tuple(_write(random, BUSIEST * (100 + number) + one) for one in range(random.randint(3, 8))),
            skew_ms=random.choice([0, 0, 40, -5_000]),
            think_s=random.choice([0.01, 0.05]),
        )
        for number in range(random.randint(3, 7))
    ]
    kinds = random.choice([(Reap,), (Collect,), (Collect, Collect, Reap)])
    chores = tuple(random.choice(kinds)(BUSIEST * 99 + number) for number in range(16))
    keeper = ActorPlan("tidier", chores, think_s=random.choice([0.3, 1.0]))
    return replace(
        scenario,
        actors=(*scenario.actors, *writers, keeper),
        weather=weather,
        lock=random.choice([LockKind.STORAGE, LockKind.STORAGE, LockKind.GENEROUS, LockKind.FORGETFUL]),
        collect_above=random.choice([2, 2, 4, 64]),
        keeps_turns=False,  # a pause, or a lock that forgets, lets an insert decide that looked before others reserved
        groups=True,
    )


def _write(random: Random, number: int) -> Operation:
    kind, parts = random.choice([Insert, Insert, Upsert, Upsert, DeleteKeys]), random.sample("0123", random.randint(1, 2))
    if kind is Insert:
        return Insert(number, tuple(Row(part, f"g{number}-{part}", random.randrange(100), (number,)) for part in parts))
    shared = random.sample(_SHARED, random.randint(1, 2))
    if kind is Upsert:
        return Upsert(number, tuple(Row(part, key, random.randrange(100), (number,)) for part in parts for key in shared))
    return DeleteKeys(number, parts[0], tuple(shared))
