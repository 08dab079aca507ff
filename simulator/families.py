"""Families of scenarios: one seed in eight is made for a kind of trouble that chance alone rarely brings.

A family takes the scenario that chance gave, without a foreign writer, and changes what matters to it; the rest stays random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from lakelock.simulator.faults import FaultKind, Weather
from lakelock.simulator.locks import LockKind
from lakelock.simulator.operations import Collect, Reap
from lakelock.simulator.scenario import BUSIEST, ActorPlan, Scenario

_HOT_REQUESTS = (
    "put-if-absent .hoodie/.lakelock/decisions/",
    "list .hoodie/.lakelock/decisions",
    "get .hoodie/.lakelock/decisions.boundary",
)


def stormy(scenario: Scenario, random: Random) -> Scenario:
    """The same with writers that stand still while the log behind them is collected: where numbers are used twice."""
    rates = {
        FaultKind.PAUSE: random.choice([0.01, 0.03]),
        FaultKind.PAUSE_AFTER: random.choice([0.0, 0.02]),
        FaultKind.LATE: random.choice([0.0, 0.01]),
        FaultKind.CRASH: 0.001,
    }
    hot = random.choice([*_HOT_REQUESTS, _HOT_REQUESTS[0]])
    weather = Weather(rates, latency_s=0.01, longest_pause_s=12.0, longest_late_s=10.0, hot=hot)
    first = BUSIEST + scenario.seed % 2
    chores = tuple((Collect if number % 3 else Reap)(first + number) for number in range(24))
    keeper = ActorPlan("collector", chores, think_s=0.4)
    lock = random.choice([LockKind.GENEROUS, LockKind.FORGETFUL, LockKind.STORAGE])
    return replace(
        scenario,
        actors=(*scenario.actors, keeper),
        weather=weather,
        lock=lock,
        lease_s=random.choice([3.0, 30.0]),
        collect_above=2,
    )


FAMILIES: tuple[Callable[[Scenario, Random], Scenario], ...] = (stormy,)
ONE_IN = 8


def has_family(seed: int) -> bool:
    return seed % ONE_IN == ONE_IN - 1


def in_family(scenario: Scenario) -> Scenario:
    """The scenario changed by the family whose turn it is."""
    family = FAMILIES[scenario.seed // ONE_IN % len(FAMILIES)]
    return family(scenario, Random(f"family/{scenario.seed}"))
