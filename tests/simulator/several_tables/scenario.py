"""From a seed to a history of several tables: who does what to which of them, under which locks and in which weather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.api import layout
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.locks import LockKind
from tests.simulator.operations import Collect, DeleteKeys, Insert, Look, Operation, Reap, Transfer, Upsert
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import ACCOUNTS, HOT, ActorPlan, Scenario
from tests.simulator.several_tables.operations import Cut, Leg, Move

HOT_REQUESTS = (
    f"put-if-absent {layout.OUTCOMES}/",
    f"get {layout.OUTCOMES}/",
    f"put-if-absent {layout.DECISIONS}/",
    f"put-if-absent {layout.TIMELINE}/",
    f"list {layout.TIMELINE}",
    f"list {layout.DECISIONS}",
)
BALANCE = 100
_FREQUENT = {FaultKind.PAUSE: -1.3, FaultKind.PAUSE_AFTER: -1.3, FaultKind.LATE: -1.5, FaultKind.LOST_REPLY: -1.5}
"""The highest rates, as powers of ten."""

Task = tuple[int, Operation] | Move | Cut
"""What an actor does: something to one table, by its number, or to all."""


@dataclass(frozen=True)
class Plan:
    """One actor, which does one thing after the other, in a new process after each crash."""

    name: str
    tasks: tuple[Task, ...]
    think_s: float
    skew_ms: int = 0


@dataclass(frozen=True)
class SeveralTables:
    """Everything that a run depends on besides the code.

    `base`: what the tables have in common. `opening` comes before all else, in good weather.
    """

    base: Scenario
    tables: int
    opening: Plan
    plans: tuple[Plan, ...]

    @property
    def moves(self) -> dict[int, Move]:
        return {task.id: task for plan in self.plans for task in plan.tasks if isinstance(task, Move)}

    @property
    def reads_only(self) -> bool:
        """Whether some transaction reads a table that it does not write: then a cut may come before one that it saw."""
        return any(move.reads for move in self.moves.values())

    def of_table(self, number: int) -> Scenario:
        """What the checks of one table have to know: each operation that touches it."""
        tasks = [task for plan in (self.opening, *self.plans) for task in plan.tasks]
        mine = [task[1] for task in tasks if isinstance(task, tuple) and task[0] == number]
        legs = [leg for move in self.moves.values() for leg in move.legs if leg.table == number]
        return replace(self.base, actors=(ActorPlan("all", (*mine, *legs)),))


def several_of(seed: int) -> SeveralTables:
    """The scenario of a seed, the same on every machine."""
    random = Random(f"several/{seed}")
    weather = _weather(random)
    lock = random.choice([LockKind.STORAGE, LockKind.GENEROUS, LockKind.GENEROUS, LockKind.FORGETFUL])
    base = Scenario(
        seed, (), lock=lock, weather=weather, lease_s=random.choice([3.0, 3.0, 30.0]), collect_above=random.choice([2, 4, 64])
    )
    tables = 3 if random.random() < 0.3 else 2
    maker = _Maker(random, tables)
    think_s = 10 ** random.uniform(-2.5, 0.0)
    opening = Plan("opening", tuple((table, maker.opening()) for table in range(tables)), 0.01)
    movers = [tuple(maker.move() for _ in range(random.randint(3, 7))) for _ in range(random.randint(2, 3))]
    writers = [tuple(maker.single() for _ in range(random.randint(2, 6))) for _ in range(random.randint(0, 2))]
    plans = [Plan(f"mover-{number}", tasks, think_s) for number, tasks in enumerate(movers)]
    plans += [Plan(f"writer-{number}", tasks, think_s) for number, tasks in enumerate(writers)]
    plans.append(Plan("reader", tuple(Cut(maker.next()) for _ in range(random.randint(4, 12))), 2 * think_s))
    if random.random() < 0.7:
        plans.append(Plan("keeper", tuple(maker.chore() for _ in range(random.randint(2, 8))), random.choice([0.3, 1.0])))
    if random.random() < 0.4:
        plans = [replace(plan, skew_ms=random.choice([0, 40, -40, 5_000, -5_000])) for plan in plans]
    return SeveralTables(base, tables, opening, tuple(plans))


def _weather(random: Random) -> Weather:
    rates = {kind: 10 ** random.uniform(-3.0, _FREQUENT.get(kind, -1.8)) for kind in FaultKind if random.random() < 0.4}
    return Weather(
        rates,
        latency_s=10 ** random.uniform(-3.0, -1.5),
        longest_pause_s=random.choice([1.0, 8.0, 16.0]),
        longest_late_s=random.choice([0.2, 6.0, 12.0]),
        crashes_at_most=random.choice([1, 3, 6]),
        hot=random.choice([(), *((one,) for one in HOT_REQUESTS), HOT_REQUESTS[:2], HOT_REQUESTS[2:4]]),
    )


class _Maker:
    """Makes operations with consecutive numbers."""

    def __init__(self, random: Random, tables: int) -> None:
        self._random, self._tables, self._number = random, tables, 0
        self._only_reads = random.random() < 0.4
        self._accounts = random.choice([ACCOUNTS[:1], ACCOUNTS[:2], ACCOUNTS])
        """Those that transactions over several tables use: the fewer, the more of them meet."""

    def next(self) -> int:
        self._number += 1
        return self._number

    def opening(self) -> Operation:
        number = self.next()
        return Insert(number, tuple(Row(*place, BALANCE, (number,)) for place in ACCOUNTS))

    def move(self) -> Move:
        """Between two or three tables; in some histories it may leave out one of them and read it."""
        random, number = self._random, self.next()
        chosen = random.sample(range(self._tables), random.randint(2, self._tables))
        amount = random.randint(1, 9)
        if self._only_reads and random.random() < 0.5:
            (written, *read) = chosen
            legs: Sequence[Leg] = [Leg(number, written, random.choice(self._accounts), 0)]
            return Move(number, tuple(legs), tuple((table, random.choice(self._accounts)) for table in read))
        changes = [-amount, amount, *(0 for _ in chosen[2:])]
        legs = [
            Leg(number, table, random.choice(self._accounts), change) for table, change in zip(chosen, changes, strict=True)
        ]
        return Move(number, tuple(legs))

    def single(self) -> Task:
        """Something that changes no sum of the accounts of a table."""
        random, number, table = self._random, self.next(), self._random.randrange(self._tables)
        kind = random.randrange(6)
        if kind == 0:
            return table, Insert(number, (Row(random.choice("012"), f"c{number}", 1, (number,)),))
        if kind == 1:
            return table, DeleteKeys(number, *_hot_key(random))
        if kind == 2:
            return table, Look(number)
        if kind == 3:
            return table, Upsert(number, (Row(*random.choice(HOT), random.randrange(100), (number,)),))
        source, target = random.sample(ACCOUNTS, 2)
        return table, Transfer(number, source, target, random.randint(1, 9))

    def chore(self) -> Task:
        kind = self._random.choice([Reap, Collect])
        return self._random.randrange(self._tables), kind(self.next())


def _hot_key(random: Random) -> tuple[str, tuple[str, ...]]:
    part, key = random.choice(HOT)
    return part, (key,)
