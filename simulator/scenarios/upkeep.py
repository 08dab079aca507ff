"""Upkeep in a run: joining small files while others write, and the scenarios that have it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from lakelock.occ.committed import Committed
from lakelock.simulator.engine import Engine
from lakelock.simulator.faults import FaultKind, Weather
from lakelock.simulator.operations import Operation, State, Upsert
from lakelock.simulator.rows import Row
from lakelock.simulator.scenarios.scenario import BUSIEST, HOT, ActorPlan, Scenario

_OWN = 8 * BUSIEST
"""The first number of the operations of actors that join files."""
_CALM = frozenset({FaultKind.SLOW, FaultKind.CRASH, FaultKind.CRASH_AFTER, FaultKind.DUPLICATE})
"""Trouble in which no claim gets lost, and nobody alive is presumed dead."""


@dataclass(frozen=True)
class Optimize(Operation):
    """Join the small files of each partition, in one commit; in some order of their rows or in none."""

    in_order: bool = False

    def run(self, engine: Engine) -> Committed | None:
        done = engine.optimize(self.tag, ("id",) if self.in_order else ())
        return done.commits[0] if done.commits else None

    def apply(self, state: State) -> None:
        """Nothing happens to the rows."""


@dataclass(frozen=True)
class Restore(Operation):
    """Restore the table as of a few commits ago. The commit says of which time, so the checker knows the expected state."""

    back: int = 1

    @property
    def undoes(self) -> bool:
        return True

    def run(self, engine: Engine) -> Committed | None:
        return engine.restore(self.back, self.tag)


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


def keeps_every_claim(scenario: Scenario) -> bool:
    """Whether a write can rely on its claims: it then never loses its work to a table service."""
    return scenario.early and scenario.foreign == "none" and scenario.weather.rates.keys() <= _CALM


def _hot(number: int, random: Random) -> Operation:
    places = random.sample((*HOT, ("0", "u0"), ("0", "u1")), random.randint(1, 2))
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,)) for place in places))
