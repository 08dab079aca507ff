"""Writers of different rows of one file group, and of the same ones, which append log files or write the base file anew."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulator.operations import DeleteBelow, DeleteKeys, Insert, Operation, Tally, Transfer, Upsert
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import BUSIEST, ActorPlan, Scenario
from tests.simulator.scenarios.upkeep import Optimize

_PLACES = tuple(("0", f"r{number}") for number in range(10))
_OWN = 8 * BUSIEST
"""Numbers of these operations."""


def rowwise(scenario: Scenario, random: Random) -> Scenario:
    """The table is merge-on-read. Ten rows are in one file group: each change of up to three of them is a log file."""
    opening = Insert(_OWN, tuple(Row(*place, random.randrange(60, 100), (_OWN,)) for place in _PLACES))
    weights = [random.choice([0.0, 1.0, 3.0]) for _ in _MAKERS]
    weights[0] += 0.5
    actors, slow = [], random.random() < 1 / 3
    if slow:  # whose log files complete before the instant of a base file that does not know them
        many = tuple(_upsert_many(_OWN + 700 + number, random) for number in range(random.randint(4, 9)))
        actors.append(ActorPlan("rowwise-base", many, think_s=random.choice([0.01, 0.05])))
    for writer in range(random.randint(2, 4)):
        first = _OWN + 100 * (writer + 1)
        made = [random.choices(_MAKERS, weights)[0](first + number, random) for number in range(random.randint(4, 9))]
        operations = (opening, *made) if writer == 0 else tuple(made)
        skew_ms = -5_000 if slow else random.choice([0, 0, 0, 40, -40, 5_000, -5_000])
        actors.append(ActorPlan(f"rowwise-{writer}", operations, skew_ms=skew_ms, think_s=random.choice([0.01, 0.05, 0.3])))
    if random.random() < 1 / 2:
        joins = tuple(Optimize(_OWN + 900 + number) for number in range(random.randint(1, 4)))
        actors.append(ActorPlan("optimizer", joins, think_s=random.choice([0.1, 0.4])))
    others = tuple(actor for actor in scenario.actors if actor.name == "keeper")
    weather = replace(scenario.weather, latency_s=random.choice([0.002, 0.01, 0.03]))
    return replace(
        scenario, actors=(*actors, *others), weather=weather, merge_on_read=True, files="json", stragglers=False,
        redo_attempts=random.choice([0, 2]),
    )  # fmt: skip


def _upsert(number: int, random: Random) -> Operation:
    places = random.sample(_PLACES, random.choice([1, 1, 2, 3]))
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,)) for place in places))


def _insert(number: int, random: Random) -> Operation:
    return Insert(number, (Row("0", f"c{number}", random.randrange(100), (number,)),))


def _upsert_many(number: int, random: Random) -> Operation:
    places = random.sample(_PLACES, random.randint(4, 7))
    return Upsert(number, tuple(Row(*place, random.randrange(100), (number,)) for place in places))


def _transfer(number: int, random: Random) -> Operation:
    source, target = random.sample(_PLACES, 2)
    return Transfer(number, source, target, random.randint(1, 9))


def _delete_keys(number: int, random: Random) -> Operation:
    return DeleteKeys(number, "0", tuple(key for _, key in random.sample(_PLACES, random.choice([1, 1, 5]))))


def _delete_below(number: int, random: Random) -> Operation:
    return DeleteBelow(number, random.choice([5, 15, 40]))


def _tally(number: int, random: Random) -> Operation:
    return Tally(number, "0")


_MAKERS = (_upsert, _upsert, _insert, _transfer, _delete_keys, _delete_below, _tally, _upsert_many)
