"""Families in which something comes late or twice: repeated batches, claims, files of paused writers, replies to decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from tests.api import AppTransaction, layout
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.locks import LockKind
from tests.simulator.operations import DeleteBelow, Insert, Operation, Reap, Relay, Tally, Transfer, Upsert
from tests.simulator.rows import NOT_GIVEN, Row
from tests.simulator.scenarios.scenario import ACCOUNTS, BUSIEST, HOT, ActorPlan, Scenario

_OWN = BUSIEST + 100
"""The first number of the operations that a family adds."""
_HALVES = 5 * BUSIEST
"""The same for writers of single columns, which join scenarios of any kind."""

Maker = Callable[[int, Random], Operation]

_AROUND_A_DECISION = (f"list {layout.DECISIONS}", f"get {layout.DECISIONS_BOUNDARY}")
_DECISIONS = (f"put-if-absent {layout.DECISIONS}/", f"get {layout.DECISIONS}/")


def twinned(scenario: Scenario, random: Random) -> Scenario:
    """Two runs of one query side by side, batch by batch, some of them blind: a batch may be applied twice."""
    batches = tuple(_batch(_OWN + version, version, random) for version in range(1, random.randint(4, 8)))
    think_s = random.choice([0.01, 0.1])
    twins = tuple(ActorPlan(name, batches, think_s=think_s) for name in ("query", "query-twin"))
    weather = replace(
        scenario.weather,
        rates={**scenario.weather.rates, FaultKind.SLOW: 0.02},
        hot=random.choice([f"get {layout.PROPERTIES}", f"put-if-absent {layout.HEARTBEATS}/"]),
    )
    return replace(scenario, actors=(*scenario.actors[:2], *twins), weather=weather)


def _batch(number: int, version: int, random: Random) -> Operation:
    part, key = random.choice([*HOT, ("2", f"b{number}")])
    row = Row(part, key, random.randrange(100), (number,))
    application = AppTransaction("query", version)
    return random.choice([Insert, Upsert, Relay])(number, (row,), application)


def belated(scenario: Scenario, random: Random) -> Scenario:
    """Claims that arrive after their owner has finished, on file groups that are rewritten all the time or never again."""
    rates = {
        FaultKind.LATE: random.choice([0.01, 0.03]),
        FaultKind.CRASH_AFTER: random.choice([0.0, 0.003]),
        FaultKind.SLOW: random.choice([0.0, 0.01]),
    }
    weather = Weather(rates, latency_s=0.01, longest_late_s=20.0, hot=f"put-if-absent {layout.CLAIMS}/")
    makers = (_transfer, _hot_rows, lambda number, _: Tally(number, "0"), lambda number, _: DeleteBelow(number, 30))
    return replace(
        scenario,
        actors=(*_writers(scenario), _own("rewriter", random, 8, makers)),
        weather=weather,
        lock=LockKind.STORAGE,
        early=True,
        collect_above=random.choice([4, 64, 64]),
    )


def sleepy(scenario: Scenario, random: Random) -> Scenario:
    """Writers that pause between a marker and its file, are rolled back meanwhile, and then continue."""
    rates = {FaultKind.PAUSE: random.choice([0.01, 0.03]), FaultKind.UNAVAILABLE: random.choice([0.0, 0.005])}
    weather = Weather(rates, latency_s=0.01, longest_pause_s=12.0, hot="upload ")
    reapers = ActorPlan("reaper", tuple(Reap(_OWN + 100 + number) for number in range(30)), think_s=1.0)
    sleeper = _own("sleeper", random, 12, (_transfer, _hot_rows))
    return replace(scenario, actors=(*_writers(scenario), sleeper, reapers), weather=weather)


def doubtful(scenario: Scenario, random: Random) -> Scenario:
    """Decisions without a reply, also by writers whose commit one process tries and another gives up."""
    rates = {
        FaultKind.LOST_REPLY: random.choice([0.0, 0.01]),
        FaultKind.UNAVAILABLE: random.choice([0.015, 0.025]),
        FaultKind.LATE: random.choice([0.02, 0.03]),
    }
    late_s = random.choice([0.03, 0.06, 2.0])
    weather = Weather(rates, latency_s=0.005, longest_late_s=late_s, hot=_DECISIONS)
    jobs = _own("job", random, 16, (_relay,))
    return replace(scenario, actors=(*_writers(scenario), jobs), weather=weather)


def overtaken(scenario: Scenario, random: Random) -> Scenario:
    """Writers that pause briefly between their two listings, and others between decision and publication."""
    rates = {FaultKind.PAUSE: random.choice([0.02, 0.04]), FaultKind.CRASH: random.choice([0.001, 0.003])}
    weather = Weather(rates, latency_s=0.01, longest_pause_s=3.0, hot=_AROUND_A_DECISION)
    busy = tuple(
        ActorPlan(f"busy-{actor}", tuple(_cold_row(_OWN + 20 * actor + one) for one in range(8)), think_s=0.1)
        for actor in range(random.randint(2, 4))
    )
    return replace(scenario, actors=(*_writers(scenario)[:2], *busy), weather=weather, lock=LockKind.GENEROUS)


def by_column(scenario: Scenario, random: Random) -> Scenario:
    """Writers that know one column each, on the same rows as writers that write and delete whole rows."""
    halves = tuple(
        ActorPlan(
            f"{column}-{actor}",
            tuple(_half(_HALVES + 40 * number + one, column, random) for one in range(random.randint(3, 8))),
            think_s=random.choice([0.02, 0.2]),
        )
        for number, (column, actor) in enumerate((("left", 0), ("right", 0), (random.choice(["left", "right"]), 1)))
    )
    files: Literal["json", "parquet"] = "parquet" if random.random() < 0.5 else "json"
    return replace(scenario, actors=(*scenario.actors, *halves), files=files)


def _half(number: int, column: str, random: Random) -> Operation:
    places = random.sample((*HOT, ("0", "p0"), ("1", "p1")), random.randint(1, 2))
    left, right = (number, NOT_GIVEN) if column == "left" else (NOT_GIVEN, number)
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,), left, right) for place in places))


def _writers(scenario: Scenario) -> tuple[ActorPlan, ...]:
    """The actors of the scenario that have no chores."""
    return tuple(actor for actor in scenario.actors if actor.name != "keeper")


def _own(name: str, random: Random, most: int, makers: Sequence[Maker]) -> ActorPlan:
    operations = [random.choice(makers)(_OWN + number, random) for number in range(random.randint(3, most))]
    return ActorPlan(name, tuple(operations), think_s=random.choice([0.05, 0.3]))


def _transfer(number: int, random: Random) -> Operation:
    source, target = random.sample(ACCOUNTS, 2)
    return Transfer(number, source, target, random.randint(1, 9))


def _hot_rows(number: int, random: Random) -> Operation:
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,)) for place in random.sample(HOT, 2)))


def _cold_row(number: int) -> Operation:
    return Insert(number, (Row("0", f"e{number}", 50, (number,)),))


def _relay(number: int, random: Random) -> Operation:
    return Relay(number, tuple(Row(part, f"r{number}", random.randrange(100), (number,)) for part in random.sample("012", 2)))
