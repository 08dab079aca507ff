"""Erasures and other wide writers beside streams of appends that make them lose, until they have reserved (ADR 20)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

from tests.simulator.faults import FaultKind, Weather
from tests.simulator.locks import LockKind
from tests.simulator.operations import Collect, DeleteBelow, DeleteKeys, Insert, Operation, Reap, Upsert
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import BUSIEST, HOT, ActorPlan, Scenario, Tending

_OWN = 20 * BUSIEST
"""The first number of their operations."""


def reserving(scenario: Scenario, random: Random) -> Scenario:
    """Anybody may die, and requests may fail, but nobody stands still: so a reservation has to hold what it promises."""
    rates = {
        FaultKind.CRASH: random.choice([0.0, 0.002]),
        FaultKind.CRASH_AFTER: random.choice([0.0, 0.002]),
        FaultKind.UNAVAILABLE: random.choice([0.0, 0.0, 0.005]),
        FaultKind.LOST_REPLY: random.choice([0.0, 0.0, 0.005]),
        FaultKind.DUPLICATE: random.choice([0.0, 0.01]),
    }
    streams = [_stream(number, random) for number in range(random.randint(1, 3))]
    erasers = [_eraser(number, random) for number in range(random.randint(1, 3))]
    wide = [_wide(number, random) for number in range(random.randint(0, 3))]
    chores = tuple((Collect if number % 3 else Reap)(_OWN + 900 + number) for number in range(12))
    keeper = ActorPlan("keeper", chores, think_s=1.0)
    return replace(
        scenario,
        actors=(*streams, *erasers, *wide, keeper),
        profile="strict",
        isolation="Serializable",
        lock=LockKind.STORAGE,
        weather=Weather(rates, latency_s=random.choice([0.01, 0.03]), crashes_at_most=6),
        page_keys=Scenario.page_keys,
        collect_above=random.choice([2, 64]),
        early=random.random() < 0.8,
        lease_s=3.0,
        redo_attempts=random.choice([0, 2]),
        stragglers=False,
        tending=Tending(),
        silent_from_s=inf,
        reserve_after=random.choice([1, 2]),
        holder_wait_s=100.0,
        keeps_turns=True,
    )


def _stream(number: int, random: Random) -> ActorPlan:
    first = _OWN + 100 * number
    inserts = tuple(_insert(first + one, random) for one in range(random.randint(10, 30)))
    return ActorPlan(f"stream-{number}", inserts, think_s=random.choice([0.1, 0.5]))


def _insert(number: int, random: Random) -> Operation:
    parts = random.sample("012", random.randint(1, 3))
    return Insert(number, tuple(Row(part, f"s{number}", random.randrange(100), (number,)) for part in parts))


def _eraser(number: int, random: Random) -> ActorPlan:
    first = _OWN + 400 + 100 * number
    erasures = tuple(DeleteBelow(first + one, random.choice([50, 100])) for one in range(random.randint(1, 4)))
    return ActorPlan(f"eraser-{number}", erasures, think_s=random.choice([0.2, 1.0]))


def _wide(number: int, random: Random) -> ActorPlan:
    first = _OWN + 700 + 50 * number
    operations = tuple(_rewrite(first + one, random) for one in range(random.randint(2, 8)))
    return ActorPlan(f"wide-{number}", operations, think_s=random.choice([0.1, 0.5]))


def _rewrite(number: int, random: Random) -> Operation:
    if random.random() < 0.2:
        part = random.choice("012")
        return DeleteKeys(number, part, (f"h{part}",))
    places = [*random.sample(HOT, random.randint(1, 3)), *((part, f"n{number}") for part in random.sample("012", 1))]
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,)) for place in places))
