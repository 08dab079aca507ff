"""Kinds of scenarios: where to look for a planted bug that shows only under one kind of trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from tests.simulator.locks import LockKind
from tests.simulator.scenarios import swarm
from tests.simulator.scenarios.families import FAMILIES, ONE_IN, has_family
from tests.simulator.scenarios.scenario import Scenario
from tests.simulator.scenarios.swarm import scenario_of
from tests.simulator.world import checkpoints_every


@dataclass(frozen=True)
class Kind:
    """Scenarios that have something in common; `name` completes "seeds ...", as in "seeds with a foreign writer"."""

    name: str
    includes: Callable[[Scenario], bool]
    seeds: Callable[[int], bool] = lambda _: True
    """Whether a seed may have such a scenario: a scenario takes a millisecond to make, and few seeds are of a rare kind."""

    def scenarios(self) -> Iterator[Scenario]:
        """All of them, in the order of their seeds."""
        return filter(self.includes, map(scenario_of, filter(self.seeds, count())))

    def __and__(self, other: Kind) -> Kind:
        return Kind(
            f"{self.name} and {other.name}",
            lambda scenario: self.includes(scenario) and other.includes(scenario),
            lambda seed: self.seeds(seed) and other.seeds(seed),
        )


def family(name: str) -> Kind:
    """The scenarios of this family (`simulator/scenarios/families.py`)."""
    (wanted,) = (family for family in FAMILIES if family.__name__ == name)
    return Kind(
        f"of the family `{name}`",
        lambda _: True,
        lambda seed: has_family(seed) and FAMILIES[seed // ONE_IN % len(FAMILIES)] is wanted,
    )


DELTA = Kind("with Delta's rules", lambda scenario: scenario.profile == "delta" and scenario.is_serializable)
ANY = Kind("", lambda _: True)
PAGED = Kind("with small pages", lambda scenario: scenario.page_keys < Scenario.page_keys)
FOREIGN = Kind("with a foreign writer", lambda scenario: scenario.foreign in ("lazy", "eager"))
APPENDING = Kind("with log files", lambda scenario: scenario.merge_on_read)
COMPACTED = Kind("with compactors", lambda scenario: any(a.name.startswith("compactor-") for a in scenario.actors))
ROWWISE = Kind(
    "with writers of rows",
    lambda scenario: any(actor.name.startswith("rowwise") for actor in scenario.actors),
    lambda seed: seed % swarm.ROWWISE_ONE_IN in swarm.ROWWISE,
)
CARELESS = Kind(
    "with a foreign writer without the lock",
    lambda scenario: scenario.foreign == "careless",
    lambda seed: seed % swarm.CARELESS_ONE_IN == swarm.CARELESS,
)
SILENT_LOCK = Kind("with a silent lock", lambda scenario: scenario.lock is LockKind.SILENT)
WITHOUT_INDEX = Kind("without a file index", lambda scenario: checkpoints_every(scenario.seed) == 0)
REDOING = Kind("with redos", lambda scenario: scenario.redo_attempts > 0)
GATHERING = Kind(
    "with inserts on offer", lambda scenario: scenario.groups, lambda seed: seed % swarm.GATHERING_ONE_IN in swarm.GATHERING
)
RESERVING = Kind(
    "with reservations",
    lambda scenario: scenario.keeps_turns,
    lambda seed: seed % swarm.RESERVING_ONE_IN == swarm.RESERVING,
)
STRAGGLERS = Kind("with stragglers", lambda scenario: scenario.stragglers)
OPTIMIZED = Kind("with optimizers", lambda scenario: any(actor.name.startswith("optimizer") for actor in scenario.actors))
CLEANED = Kind("with cleaners", lambda scenario: any(actor.name.startswith("cleaner") for actor in scenario.actors))
RESTORED = Kind("with restores", lambda scenario: any(actor.name == "undoer" for actor in scenario.actors))
INDEXED = Kind(
    "with a record index",
    lambda scenario: scenario.record_index,
    lambda seed: seed % swarm.METADATA_ONE_IN == swarm.METADATA,
)
STATISTICS = Kind(
    "with statistics",
    lambda scenario: scenario.statistics,
    lambda seed: seed % swarm.METADATA_ONE_IN == swarm.METADATA,
)
METADATA = Kind(
    "with a metadata table",
    lambda scenario: scenario.metadata,
    lambda seed: seed % swarm.METADATA_ONE_IN == swarm.METADATA,
)
SKEWED = Kind("with a clock that is an hour fast", lambda scenario: any(a.skew_ms > 60_000 for a in scenario.actors))
