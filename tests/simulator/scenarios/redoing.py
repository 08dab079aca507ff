"""Writers over many file groups that collide late in some of them, and do only these again (ADR 19)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulator.operations import DeleteBelow, DeleteKeys, Insert, Operation, Upsert
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import BUSIEST, HOT, ActorPlan, Scenario

_OWN = 10 * BUSIEST
"""The first number of their operations."""
_SHARED = ("w0", "w1", "w2")
"""Keys that each of them writes in every partition, so that they lie in several file groups."""


def redoing(scenario: Scenario, random: Random) -> Scenario:
    """Everybody redoes, and wide writers come on top, mostly without claims, which would find most conflicts before files are
    written. Beside stragglers nobody deletes by a condition: what it finds may be a stray row.
    """
    wide = tuple(_wide(f"wide-{number}", _OWN + 100 * number, random) for number in range(random.randint(2, 3)))
    if scenario.stragglers:
        wide = tuple(replace(plan, operations=_without_conditions(plan.operations)) for plan in wide)
    return replace(
        scenario,
        actors=(*scenario.actors, *wide),
        early=random.random() < 0.3,
        redo_attempts=random.choice([1, 2, 6]),
    )


def _wide(name: str, first: int, random: Random) -> ActorPlan:
    operations = tuple(_operation(first + number, random) for number in range(random.randint(3, 7)))
    return ActorPlan(name, operations, think_s=random.choice([0.01, 0.1]))


def _without_conditions(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    return tuple(operation for operation in operations if not isinstance(operation, DeleteBelow))


def _operation(number: int, random: Random) -> Operation:
    def row(part: str, key: str) -> Row:
        return Row(part, key, random.randrange(100), (number,))

    kind = random.random()
    if kind < 0.6:
        places = [*random.sample(HOT, random.randint(1, 3)), *((part, random.choice(_SHARED)) for part in "012")]
        return Upsert(number, tuple(row(*place) for place in places))
    if kind < 0.75:
        return Insert(number, tuple(row(part, f"i{number}") for part in "012"))
    if kind < 0.9:
        part = random.choice("012")
        return DeleteKeys(number, part, (*_SHARED, f"h{part}"))
    return DeleteBelow(number, random.choice([20, 50]))
