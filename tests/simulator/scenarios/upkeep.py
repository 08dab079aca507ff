"""Upkeep in a run, by actors of its own alongside writers, and the scenarios that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from lakelock.occ.retention import COMMITS, HOUR_MS, HOURS, VERSIONS
from lakelock.settings import ArchiveSettings, CleanSettings, UpkeepSettings
from tests.api import Committed
from tests.simulator.engine import Engine
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.operations import LookBack, Operation, Reap, State, Upsert
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import BUSIEST, HOT, ActorPlan, Scenario, Tending

_OWN = 8 * BUSIEST
"""The first number of the operations of actors that join files."""
_TENDED = 9 * BUSIEST
"""The same for the actors of scenarios with cleaners."""
_CALM = frozenset({FaultKind.SLOW, FaultKind.CRASH, FaultKind.CRASH_AFTER, FaultKind.DUPLICATE})
"""Trouble in which no claim gets lost, and nobody alive is presumed dead."""


@dataclass(frozen=True)
class Optimize(Operation):
    """Join the small files of each partition, in some order of their rows or in none.

    It takes as many commits as it needs, and an error leaves those that were made.
    """

    in_order: bool = False

    @property
    def tells(self) -> bool:
        return False

    @property
    def repeats(self) -> bool:
        return True

    def run(self, engine: Engine) -> Committed | None:
        done = engine.optimize(self.tag, ("id",) if self.in_order else ())
        return done.commits[0] if done.commits else None

    def apply(self, state: State) -> None:
        """Nothing happens to the rows."""


@dataclass(frozen=True)
class Compact(Optimize):
    """Write each file group with log files anew, in a commit of its own."""

    def run(self, engine: Engine) -> Committed | None:
        done = engine.compact(self.tag)
        return done.commits[0] if done.commits else None


@dataclass(frozen=True)
class Restore(Operation):
    """Restore the table as of a few commits ago. The commit says of which time, so the checker knows the expected state."""

    back: int = 1

    @property
    def undoes(self) -> bool:
        return True

    def run(self, engine: Engine) -> Committed | None:
        return engine.restore(self.back, self.tag)


@dataclass(frozen=True)
class Upkeep(Reap):
    """One run of everything that upkeep does."""

    def run(self, engine: Engine) -> Committed | None:
        engine.coordinator.upkeep()
        return None


@dataclass(frozen=True)
class Clean(Reap):
    """Delete the files that the settings do not keep."""

    def run(self, engine: Engine) -> Committed | None:
        engine.coordinator.clean()
        return None


@dataclass(frozen=True)
class Archive(Reap):
    """Move the oldest instants to the history."""

    def run(self, engine: Engine) -> Committed | None:
        engine.coordinator.archive()
        return None


@dataclass(frozen=True)
class Save(Reap):
    """Take a savepoint of the newest commit, or of one a few commits ago."""

    def run(self, engine: Engine) -> Committed | None:
        commits = engine.coordinator.table.timeline().commits[-1 - self.id % 4 :]
        if commits:
            engine.coordinator.savepoint(self.tag, commits[0].requested)
        return None


@dataclass(frozen=True)
class Release(Reap):
    """Delete the oldest savepoint."""

    def run(self, engine: Engine) -> Committed | None:
        saved = engine.coordinator.savepoints()
        if saved:
            engine.coordinator.delete_savepoint(saved[0].name)
        return None


def tended(scenario: Scenario, random: Random) -> Scenario:
    """Cleaners, archivers and savepoints alongside writers whose work is spread over minutes, and readers of earlier states.

    An archiver waits longer than any request is in flight: in every other scenario that is not long.
    """
    weather, min_age_s = scenario.weather, 90.0
    if random.random() < 0.5:
        rates = {kind: 10 ** random.uniform(-3.0, -1.7) for kind in FaultKind if random.random() < 0.5}
        weather = Weather(rates, latency_s=0.01, longest_pause_s=3.0, longest_late_s=1.0, crashes_at_most=6)
        min_age_s = 8.0
    think_s = min_age_s / 8
    keep = random.choice([2, 3, 5])
    tending = Tending(
        CleanSettings(
            policy=random.choice([COMMITS, COMMITS, VERSIONS, HOURS]),
            keep_commits=random.choice([1, 2, 4]),
            keep_versions=random.choice([1, 2]),
            keep_hours=random.choice([0.0, think_s, 8 * think_s]) * 1000 / HOUR_MS,
            readers_s=random.choice([0.0, 0.5, think_s]),
        ),
        ArchiveSettings(
            min_commits=keep, max_commits=keep + random.randint(0, 2), min_age_s=min_age_s, merge_files=random.choice([2, 3])
        ),
        UpkeepSettings(every_commits=random.choice([1, 3, 1_000])),
    )
    chores = random.choice([(Upkeep,), (Clean, Archive), (Clean, Clean, Archive, Archive, Reap)])
    cleaners = [
        _chores(f"cleaner-{number}", 100 * number, random.randint(8, 30), chores, think_s / 2, random)
        for number in range(random.randint(1, 2))
    ]
    if random.random() < 0.5:
        cleaners.append(_chores("saver", 300, random.randint(2, 8), (Save, Save, Release), think_s, random))
    historian = ActorPlan(
        "historian", tuple(LookBack(_TENDED + 400 + one, random.randrange(6)) for one in range(15)), think_s=think_s
    )
    busy = tuple(
        ActorPlan(f"busy-{actor}", tuple(_hot(_TENDED + 500 + 30 * actor + one, random) for one in range(20)), think_s=think_s)
        for actor in range(random.randint(1, 2))
    )
    slowly = tuple(replace(plan, think_s=max(plan.think_s, random.choice([1, 2]) * think_s)) for plan in scenario.actors)
    actors = (*slowly, *busy, *cleaners, historian)
    if random.random() < 0.4:
        joins = tuple(Optimize(_TENDED + 600 + one) for one in range(random.randint(2, 6)))
        actors = (*actors, ActorPlan("optimizer", joins, think_s=2 * think_s))
    if random.random() < 0.3:
        undoing = tuple(Restore(_TENDED + 700 + one, random.randint(1, 3)) for one in range(random.randint(1, 3)))
        actors = (*actors, ActorPlan("undoer", undoing, think_s=4 * think_s))
    return replace(scenario, actors=actors, weather=weather, tending=tending)


def _chores(name: str, first: int, count: int, kinds: Sequence[type[Operation]], think_s: float, random: Random) -> ActorPlan:
    return ActorPlan(name, tuple(random.choice(kinds)(_TENDED + first + one) for one in range(count)), think_s=think_s)


def kept_up(scenario: Scenario, random: Random) -> Scenario:
    """One or two actors join files all the time while others write them; in every other scenario nobody loses a claim."""
    optimizers = tuple(
        ActorPlan(
            f"optimizer-{number}",
            tuple(Optimize(_OWN + 100 * number + one, random.random() < 0.3) for one in range(random.randint(4, 16))),
            think_s=random.choice([0.02, 0.2]),
        )
        for number in range(random.randint(1, 2))
    )
    writers = tuple(
        ActorPlan(f"busy-{actor}", tuple(_hot(_OWN + 500 + 20 * actor + one, random) for one in range(8)), think_s=0.05)
        for actor in range(random.randint(0, 2))
    )
    scenario = replace(scenario, actors=(*scenario.actors, *optimizers, *writers))
    if random.random() < 0.4:
        undoing = tuple(Restore(_OWN + 400 + one, random.randint(1, 5)) for one in range(random.randint(1, 4)))
        scenario = replace(scenario, actors=(*scenario.actors, ActorPlan("undoer", undoing, think_s=0.5)))
    if random.random() < 0.5:
        rates = {kind: 10 ** random.uniform(-3.0, -2.0) for kind in sorted(_CALM) if random.random() < 0.5}
        weather = Weather(rates, latency_s=random.choice([0.002, 0.01, 0.03]), longest_pause_s=1.0, crashes_at_most=2)
        scenario = replace(scenario, weather=weather, early=True, lease_s=30.0)
    return scenario


_COMPACTS = 11 * BUSIEST
"""The first number of the operations of actors that compact."""


def compacted(scenario: Scenario, random: Random) -> Scenario:
    """The table is merge-on-read, writers append log files to few file groups, and one or two actors compact these.

    In some, upkeep that follows a commit does so, too.
    """
    compactors = tuple(
        ActorPlan(
            f"compactor-{number}",
            tuple(Compact(_COMPACTS + 100 * number + one) for one in range(random.randint(4, 16))),
            think_s=random.choice([0.02, 0.2]),
        )
        for number in range(random.randint(1, 2))
    )
    writers = tuple(
        ActorPlan(f"busy-{actor}", tuple(_hot(_COMPACTS + 500 + 20 * actor + one, random) for one in range(8)), think_s=0.05)
        for actor in range(random.randint(0, 2))
    )
    tending = scenario.tending
    if random.random() < 0.3:
        upkeep = UpkeepSettings(every_commits=random.choice([1, 3]), compact_logs=1)
        tending = replace(tending, upkeep=upkeep)
    actors = (*scenario.actors, *compactors, *writers)
    if scenario.foreign == "none" and random.random() < 0.3:
        undoing = tuple(Restore(_COMPACTS + 700 + one, random.randint(1, 4)) for one in range(random.randint(1, 3)))
        actors = (*actors, ActorPlan("undoer", undoing, think_s=0.5))
    return replace(scenario, actors=actors, merge_on_read=True, files="json", tending=tending)


def keeps_every_claim(scenario: Scenario) -> bool:
    """Whether a write can rely on its claims: it then never loses its work to a table service. A log file needs no claim."""
    return (
        not scenario.merge_on_read and scenario.early and scenario.foreign == "none" and scenario.weather.rates.keys() <= _CALM
    )


def _hot(number: int, random: Random) -> Operation:
    places = random.sample((*HOT, ("0", "u0"), ("0", "u1")), random.randint(1, 2))
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,)) for place in places))
