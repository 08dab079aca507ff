"""Families of scenarios: one seed in eight is made for a kind of trouble that chance alone rarely produces.

A family takes a random scenario without a foreign writer, and changes what matters to it; the rest stays random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.api import layout
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.locks import LockKind
from tests.simulator.operations import Collect, Insert, Look, Operation, Overwrite, Reap
from tests.simulator.rows import Row
from tests.simulator.scenarios.late_families import belated, doubtful, overtaken, sleepy, twinned
from tests.simulator.scenarios.scenario import BUSIEST, ActorPlan, Scenario

_HOT_REQUESTS = (
    f"put-if-absent {layout.DECISIONS}/",
    f"list {layout.DECISIONS}",
    f"get {layout.DECISIONS_BOUNDARY}",
)
_HOUR_BEHIND_MS = -3_600_000


def stormy(scenario: Scenario, random: Random) -> Scenario:
    """Writers pause while the log behind them is collected, so numbers are used twice."""
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


def paged(scenario: Scenario, random: Random) -> Scenario:
    """Storage answers a listing in small pages, here and there without order, and anybody may pause between two of them."""
    pause_s = random.choice([0.3, 0.6])
    weather = Weather({FaultKind.PAUSE: 0.03}, latency_s=0.005, longest_pause_s=pause_s, hot=f"list {layout.TIMELINE}")
    actors = tuple(replace(plan, skew_ms=0, rate=1.0, think_s=0.02) for plan in scenario.actors)
    looks = [tuple(Look(BUSIEST * (2 + number) + one) for one in range(30)) for number in range(3)]
    readers = [ActorPlan(f"reader-{number}", looks[number], think_s=0.1) for number in range(3)]
    made = replace(scenario, actors=(*actors, *readers), weather=weather, lease_s=30.0, page_keys=random.choice([4, 6, 9]))
    if random.random() < 2 / 3:
        return made
    hot = random.choice([layout.TIMELINE, layout.DECISIONS])
    return replace(made, weather=replace(weather, hot=f"list {hot}"), collect_above=64, page_keys=4, scattered=True)


def slow_reapers(scenario: Scenario, random: Random) -> Scenario:
    """Writers pause where they decide, and so do those who roll them back, while the log grows and is collected."""
    weather = Weather({FaultKind.PAUSE: 0.05}, latency_s=0.01, longest_pause_s=24.0, hot=_HOT_REQUESTS[0])
    return _reaped(scenario, weather, LockKind.GENEROUS, reapers=random.randint(2, 3))


def blind_reapers(scenario: Scenario, random: Random) -> Scenario:
    """As `slow_reapers`, and those who roll back also pause between the timeline and the log."""
    weather = Weather({FaultKind.PAUSE: 0.04}, latency_s=0.01, longest_pause_s=30.0, hot=_HOT_REQUESTS[:2])
    return _reaped(scenario, weather, LockKind.GENEROUS, reapers=random.randint(2, 3))


def dying_writers(scenario: Scenario, random: Random) -> Scenario:
    """Writers die anywhere, above all once they have decided, and several roll them back under a lock that excludes nobody."""
    rates = {FaultKind.PAUSE: 0.005, FaultKind.PAUSE_AFTER: 0.01, FaultKind.CRASH: 0.01, FaultKind.CRASH_AFTER: 0.005}
    pause_s = random.choice([8.0, 16.0])
    weather = Weather(rates, latency_s=0.01, longest_pause_s=pause_s, crashes_at_most=20, hot=_HOT_REQUESTS[0])
    return _reaped(scenario, weather, random.choice([LockKind.GENEROUS, LockKind.GENEROUS, LockKind.FORGETFUL]), reapers=2)


def crowded_opening(scenario: Scenario, random: Random) -> Scenario:
    """The first moments of a table: writers that pause or die while writing their files, and are overtaken by others."""
    rates = {FaultKind.PAUSE: 0.03, FaultKind.PAUSE_AFTER: 0.01, FaultKind.CRASH_AFTER: 0.005, FaultKind.SLOW: 0.01}
    weather = Weather(rates, latency_s=0.01, longest_pause_s=12.0, crashes_at_most=3, hot=("upload ", "list part="))
    writers = [
        ActorPlan(
            f"writer-{number}",
            tuple(_insert(random, 10 * number + one) for one in range(random.randint(1, 3))),
            skew_ms=random.choice([0, 0, 40, 3_600_000]),
            think_s=0.1,
        )
        for number in range(random.randint(2, 4))
    ]
    reader = ActorPlan("reader", tuple(Look(BUSIEST + 900 + number) for number in range(30)), think_s=0.4)
    chores = _chores("reaper", 0, 6, Reap, 1.0)
    return replace(scenario, actors=(*writers, reader, chores), weather=weather)


def same_moment(scenario: Scenario, random: Random) -> Scenario:
    """Everybody's clock is behind the table's times, so all take the same next one; files that they fail to remove stay."""
    rates = {FaultKind.UNAVAILABLE: 0.03, FaultKind.CRASH: 0.003, FaultKind.PAUSE: random.choice([0.0, 0.01])}
    weather = Weather(rates, latency_s=0.01, longest_pause_s=4.0, hot=f"delete {layout.TIMELINE}/")
    slow = tuple(replace(plan, skew_ms=_HOUR_BEHIND_MS, think_s=0.05) for plan in scenario.actors)
    fast = ActorPlan("fast", (Insert(BUSIEST + 900, (Row("0", "fast", 50, (BUSIEST + 900,)),)),), think_s=0.01)
    work = {part: tuple(_overwrite(random, part, 10 * int(part) + one) for one in range(6)) for part in "12"}
    overwriters = [ActorPlan(f"overwriter-{part}", work[part], skew_ms=_HOUR_BEHIND_MS, think_s=0.05) for part in work]
    return replace(scenario, actors=(*slow, fast, *overwriters), weather=weather)


def late_reapers(scenario: Scenario, random: Random) -> Scenario:
    """Reapers pause between the timeline and the heartbeats, and writers before they commit what they wrote."""
    rates = {FaultKind.PAUSE: random.choice([0.02, 0.04]), FaultKind.CRASH: 0.001}
    hot = (f"list {layout.HEARTBEATS}", f"list {layout.TEMP}/")
    weather = Weather(rates, latency_s=0.01, longest_pause_s=random.choice([12.0, 24.0]), hot=hot)
    reapers = [_chores(f"reaper-{number}", number, 12, Reap, 0.3) for number in range(random.randint(1, 3))]
    return replace(scenario, actors=(*scenario.actors, *reapers), weather=weather, lease_s=3.0)


def _reaped(scenario: Scenario, weather: Weather, lock: LockKind, *, reapers: int) -> Scenario:
    """The scenario with some actors that reap repeatedly, and one that collects repeatedly."""
    keepers = [_chores(f"reaper-{number}", number, 20, Reap, 0.3) for number in range(reapers)]
    keepers.append(_chores("collector", reapers, 40, Collect, 0.2))
    actors = (*scenario.actors, *keepers)
    return replace(scenario, actors=actors, weather=weather, lock=lock, lease_s=3.0, collect_above=2)


def _chores(name: str, number: int, count: int, kind: type[Operation], think_s: float) -> ActorPlan:
    first = BUSIEST * (number + 2)
    return ActorPlan(name, tuple(kind(first + one) for one in range(count)), think_s=think_s)


def _insert(random: Random, number: int) -> Operation:
    first = BUSIEST + 500 + number
    return Insert(first, tuple(Row(part, f"e{number}", 50, (first,)) for part in random.sample("012", random.randint(1, 3))))


def _overwrite(random: Random, part: str, number: int) -> Operation:
    first = BUSIEST + 500 + number
    return Overwrite(first, (Row(part, f"w{number}", random.randrange(100), (first,)),))


FAMILIES: tuple[Callable[[Scenario, Random], Scenario], ...] = (
    stormy,
    slow_reapers,
    blind_reapers,
    dying_writers,
    crowded_opening,
    same_moment,
    late_reapers,
    twinned,
    belated,
    sleepy,
    doubtful,
    overtaken,
)
ONE_IN = 8


def has_family(seed: int) -> bool:
    return seed % ONE_IN == ONE_IN - 1


def in_family(scenario: Scenario) -> Scenario:
    """The scenario, changed by the family whose turn it is."""
    family = FAMILIES[scenario.seed // ONE_IN % len(FAMILIES)]
    return family(scenario, Random(f"family/{scenario.seed}"))
