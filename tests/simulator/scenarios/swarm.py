"""From a seed to a scenario.

Each seed switches most kinds of trouble off and turns the others up (swarm testing): bugs appear where one kind of trouble is
frequent and another, which would mask the bug, is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from random import Random

from tests.api import AppTransaction
from tests.simulator.faults import FaultKind, Weather
from tests.simulator.foreign import ForeignClustering, ForeignWrite
from tests.simulator.locks import LockKind
from tests.simulator.metadata import CompactMetadata, KeepMetadata
from tests.simulator.operations import (
    BreakLock,
    Collect,
    DeleteBelow,
    DeleteKeys,
    Insert,
    Look,
    Operation,
    Overwrite,
    Reap,
    Tally,
    Transfer,
    Upsert,
)
from tests.simulator.rows import Row
from tests.simulator.scenarios.careless import careless
from tests.simulator.scenarios.families import has_family, in_family, paged, stormy
from tests.simulator.scenarios.gathering import gathering
from tests.simulator.scenarios.late_families import by_column
from tests.simulator.scenarios.redoing import redoing
from tests.simulator.scenarios.reserving import reserving
from tests.simulator.scenarios.rowwise import rowwise
from tests.simulator.scenarios.scenario import ACCOUNTS, BUSIEST, HOT, ActorPlan, Foreign, Scenario, Tending
from tests.simulator.scenarios.stragglers import straggling
from tests.simulator.scenarios.upkeep import Archive, compacted, kept_up, tended

BY_COLUMN_ONE_IN, BY_COLUMN = 16, 9
"""One seed in this many has writers of single columns, in addition to what chance or a family gave it."""
KEPT_UP_ONE_IN, KEPT_UP = 16, 11
"""The same for actors that join small files."""
TENDED_ONE_IN, TENDED = 16, 4
"""The same for cleaners and archivers."""
OTHER_PROFILE_ONE_IN, OTHER_PROFILE = 31, 27
"""The same for writers with the rules of Delta or of Hive."""
REDOING_ONE_IN, REDOING = 17, (4, 11)
"""Two seeds in this many have writers that do only what collided again."""
COMPACTED_ONE_IN, COMPACTED = 29, 13
"""One seed in this many has log files and actors that compact them, and so have half of those whose foreign writer appends."""
CARELESS_ONE_IN, CARELESS = 37, 17
"""One seed in this many has a foreign writer without the lock."""
APPENDING = 1 / 3
"""The share of the seeds with a foreign writer that takes the lock in which it appends log files."""
ROWWISE_ONE_IN, ROWWISE = 29, (5, 12, 17)
"""Three seeds in this many have writers of different rows of one file group, to which they append log files."""
GATHERING_ONE_IN, GATHERING = 19, (2, 8, 15, 16)
"""Four seeds in this many have small inserts that wait for each other."""
METADATA_ONE_IN, METADATA = 31, 22
"""One seed in this many has Hudi's metadata table, which another engine compacts."""
INDEXED_ONE_IN, INDEXED = 5, 4
"""One in this many of those has a record index as well, and so have all whose table is merge-on-read."""
STATISTICS_ONE_IN, STATISTICS = 7, (4, 6)
"""Two in this many have statistics instead, and half of these a foreign writer with the lock."""
RESERVING_ONE_IN, RESERVING = 23, 6
"""One seed in this many consists of writers that lose until they have reserved."""


def scenario_of(seed: int, *, parquet: bool = False) -> Scenario:
    """The scenario of a seed, the same on every machine. Its base files are Parquet with `parquet` and in one seed of 128."""
    scenario = _scenario_of(seed)
    if seed % BY_COLUMN_ONE_IN == BY_COLUMN and scenario.foreign == "none":
        scenario = by_column(scenario, Random(f"columns/{seed}"))
    if seed % KEPT_UP_ONE_IN == KEPT_UP and scenario.foreign == "none":
        scenario = kept_up(scenario, Random(f"upkeep/{seed}"))
    if seed % TENDED_ONE_IN == TENDED and scenario.foreign == "none":
        scenario = tended(scenario, Random(f"tended/{seed}"))
    if seed % OTHER_PROFILE_ONE_IN == OTHER_PROFILE and scenario.foreign == "none" and scenario.profile == "strict":
        scenario = with_other_profile(scenario, Random(f"profile/{seed}"))
    if seed % REDOING_ONE_IN in REDOING and scenario.foreign == "none":
        scenario = redoing(scenario, Random(f"redo/{seed}"))
    if seed % RESERVING_ONE_IN == RESERVING and scenario.foreign == "none":
        scenario = reserving(scenario, Random(f"reserving/{seed}"))
    if seed % GATHERING_ONE_IN in GATHERING and _may_gather(scenario):
        scenario = gathering(scenario, Random(f"gathering/{seed}"))
    if seed % CARELESS_ONE_IN == CARELESS and scenario.foreign == "none":
        scenario = careless(scenario, Random(f"careless/{seed}"))
    scenario = _with_log_files(scenario)
    if seed % METADATA_ONE_IN == METADATA and scenario.foreign != "careless":
        scenario = with_metadata_upkeep(
            with_metadata_table(scenario, Random(f"metadata/{seed}")), Random(f"metadata upkeep/{seed}")
        )
        in_lines = scenario.files == "json" and not parquet
        indexed = scenario.merge_on_read or seed // METADATA_ONE_IN % INDEXED_ONE_IN == INDEXED
        if in_lines and _may_have_statistics(seed):
            scenario = with_statistics(scenario, Random(f"statistics/{seed}"))
        elif in_lines and indexed:
            scenario = replace(scenario, record_index=True)
    return replace(scenario, files="parquet") if parquet and not scenario.merge_on_read else scenario


def _may_have_statistics(seed: int) -> bool:
    return seed % METADATA_ONE_IN == METADATA and seed // METADATA_ONE_IN % STATISTICS_ONE_IN in STATISTICS


def _with_log_files(scenario: Scenario) -> Scenario:
    """In some scenarios the table is merge-on-read."""
    seed = scenario.seed
    if scenario.foreign in ("lazy", "eager") and Random(f"logs/{seed}").random() < APPENDING:
        scenario = appending(scenario)
    if seed % ROWWISE_ONE_IN in ROWWISE and not has_family(seed) and scenario.profile == "strict" and _is_plain(scenario):
        return rowwise(scenario, Random(f"rowwise/{seed}"))
    return compacted(scenario, Random(f"compacted/{seed}")) if _may_compact(scenario) else scenario


def _may_compact(scenario: Scenario) -> bool:
    if scenario.merge_on_read:
        return Random(f"compacts/{scenario.seed}").random() < 0.5
    return scenario.seed % COMPACTED_ONE_IN == COMPACTED and scenario.foreign == "none" and not scenario.groups


def appending(scenario: Scenario) -> Scenario:
    """The table is merge-on-read, and the foreign writer puts what it changes into log files."""
    actors = []
    for plan in scenario.actors:
        made = (replace(each, appends=True) if isinstance(each, ForeignWrite) else each for each in plan.operations)
        actors.append(replace(plan, operations=tuple(made)))
    return replace(scenario, actors=tuple(actors), merge_on_read=True, files="json")


def _may_gather(scenario: Scenario) -> bool:
    """Whether the weather of the scenario may become another one."""
    return scenario.foreign == "none" and scenario.tending == Tending() and scenario.page_keys == Scenario.page_keys


def _is_plain(scenario: Scenario) -> bool:
    return _may_gather(scenario) and not (scenario.groups or scenario.redo_attempts or scenario.keeps_turns)


def with_metadata_table(scenario: Scenario, random: Random) -> Scenario:
    """The table has Hudi's metadata table. In half of the scenarios another engine compacts it, by a clock of its own: what it
    does is safe while the lock holds.
    """
    if random.random() < 0.5:
        return replace(scenario, metadata=True)
    compactions = tuple(CompactMetadata(_COMPACTIONS + number) for number in range(random.randint(2, 8)))
    skew_ms = random.choice([0, 0, 40, -40, 5_000, -5_000])
    compactor = ActorPlan("compactor", compactions, skew_ms=skew_ms, think_s=random.choice([0.05, 0.3, 1.0]))
    actors = [
        replace(actor, operations=tuple(each for each in actor.operations if not isinstance(each, BreakLock)))
        for actor in scenario.actors
    ]
    rates = {kind: rate for kind, rate in scenario.weather.rates.items() if kind not in _OUTLIVES_A_LOCK}
    weather = replace(scenario.weather, rates=rates)
    return replace(scenario, metadata=True, actors=(*actors, compactor), weather=weather, lock=LockKind.STORAGE)


def with_metadata_upkeep(scenario: Scenario, random: Random) -> Scenario:
    """In most scenarios with a metadata table one or two actors keep it short, and in some of these files of it go at once."""
    if random.random() < 0.3:
        return scenario
    keepers = tuple(
        ActorPlan(
            f"keeper-{number}",
            tuple(
                KeepMetadata(_COMPACTIONS + 100 * (number + 1) + one, random.choice([1, 1, 2, 4]))
                for one in range(random.randint(4, 16))
            ),
            skew_ms=random.choice([0, 0, 40, -40]),
            think_s=random.choice([0.05, 0.3, 1.0]),
        )
        for number in range(random.randint(1, 2))
    )
    tending = scenario.tending
    if random.random() < 0.7:
        tending = replace(tending, clean=replace(tending.clean, readers_s=0.0))
    archives = tuple(Archive(_COMPACTIONS + 400 + one) for one in range(random.choice([0, 4, 12])))
    if archives:
        quick = replace(tending.archive, min_commits=2, max_commits=random.randint(2, 4), min_age_s=tending.archive.min_age_s)
        tending = replace(tending, archive=quick)
        keepers = (*keepers, ActorPlan("archiver", archives, think_s=0.5))
    return replace(scenario, actors=(*scenario.actors, *keepers), tending=tending)


def with_statistics(scenario: Scenario, random: Random) -> Scenario:
    """The metadata table has statistics. Beside a foreign writer that spares the living there are more, and more inserts
    into the same partition, so that many commit in another order than they began.
    """
    if scenario.foreign != "lazy":
        return replace(scenario, statistics=True)
    numbers, plans = iter(range(_STATISTICS, _STATISTICS + BUSIEST)), dict[str, list[Operation]]()
    for _ in range(random.randint(3, 6)):
        for name in ("foreign-1", "foreign-2", "inserter"):
            row = Row("0", f"s{(number := next(numbers))}", random.randrange(100), (number,))
            theirs = ForeignWrite(number, (row,), appends=scenario.merge_on_read)
            plans.setdefault(name, []).append(Insert(number, (row,)) if name == "inserter" else theirs)
    actors = (ActorPlan(name, tuple(each), think_s=random.choice([0.05, 0.3])) for name, each in plans.items())
    return replace(scenario, statistics=True, actors=(*scenario.actors, *actors))


_COMPACTIONS, _STATISTICS = 7 * BUSIEST, 9 * BUSIEST


def with_other_profile(scenario: Scenario, random: Random) -> Scenario:
    """All writers have the profile delta, more often at its stronger level, or the profile hive."""
    if random.random() < 1 / 4:
        return replace(scenario, profile="hive")
    return replace(scenario, profile="delta", isolation=random.choice(["Serializable", "Serializable", "WriteSerializable"]))


def _scenario_of(seed: int) -> Scenario:
    random = Random(f"scenario/{seed}")
    lock = random.choice([LockKind.STORAGE, LockKind.STORAGE, *LockKind])
    foreign: Foreign = "none"
    if random.random() < (1 / 2 if _may_have_statistics(seed) else 1 / 8) and not has_family(seed):
        foreign, lock = ("lazy" if random.random() < 0.5 else "eager"), LockKind.STORAGE
    weather = _weather(random, _OUTLIVES_A_LOCK if foreign != "none" else frozenset())
    actors = _actors(random, foreign)
    scenario = Scenario(
        seed=seed,
        actors=actors,
        files="parquet" if random.random() < 1 / 128 and foreign == "none" else "json",
        profile="hudi" if random.random() < 1 / 16 else "strict",
        lock=lock,
        weather=weather,
        foreign=foreign,
        collect_above=random.choice([2, 2, 4, 64]),
        early=random.random() < 0.7,
        lease_s=random.choice([3.0, 3.0, 30.0]),
    )
    if foreign != "none":
        scenario = replace(scenario, actors=clustered(actors, Random(f"clustering/{seed}")))
    if scenario.lock is LockKind.SILENT:
        scenario = replace(scenario, silent_from_s=_silent_from_s(Random(f"silence/{seed}")))
    if has_family(seed):
        return in_family(scenario)
    late = Random(f"stragglers/{seed}")
    if foreign == "none" and late.random() < 1 / 24:
        return straggling(scenario, late)
    paging = Random(f"pages/{seed}")
    if foreign == "none" and paging.random() < 1 / 8:
        return paged(scenario, paging)
    return stormy(scenario, random) if foreign == "none" and random.random() < 0.25 else scenario


def clustered(actors: tuple[ActorPlan, ...], random: Random) -> tuple[ActorPlan, ...]:
    """In half of the scenarios with a foreign writer, it sometimes clusters, while another actor counts rows."""
    if random.random() < 0.5:
        return actors
    made = []
    for plan in actors:
        operations = tuple(_clustering(each, random) for each in plan.operations)
        made.append(replace(plan, operations=operations))
    counts = tuple(Tally(BUSIEST + number, random.choice("012")) for number in range(random.randint(2, 6)))
    return (*made, ActorPlan("counter", counts, think_s=random.choice([0.05, 0.3])))


def _clustering(operation: Operation, random: Random) -> Operation:
    if not isinstance(operation, ForeignWrite) or random.random() < 0.4:
        return operation
    return ForeignClustering(operation.id, random.choice("012"), eager=operation.eager)


def _silent_from_s(random: Random) -> float:
    """One in three never answers at all, one in three falls silent permanently, and one answers now and then."""
    return max(0.0, random.uniform(-10.0, 10.0)) if random.random() < 2 / 3 else inf


_FREQUENT = {FaultKind.CRASH: -2.3, FaultKind.CRASH_AFTER: -2.3, FaultKind.PAUSE: -1.7, FaultKind.PAUSE_AFTER: -1.7}


_OUTLIVES_A_LOCK = frozenset({FaultKind.LATE, FaultKind.PAUSE, FaultKind.PAUSE_AFTER})
"""Next to a foreign writer safety holds only while the lock does, so nothing may happen that outlives a lease."""


def _weather(random: Random, without: frozenset[FaultKind]) -> Weather:
    rates = {}
    for kind in FaultKind:
        if random.random() < 0.4 and kind not in without:
            rates[kind] = 10 ** random.uniform(-3.0, _FREQUENT.get(kind, -1.3))
    if random.random() < 0.1:
        rates = {}
    return Weather(
        rates=rates,
        latency_s=10 ** random.uniform(-3.0, -1.5),
        longest_pause_s=random.choice([1.0, 4.0, 8.0]),
        longest_late_s=random.choice([0.2, 1.0, 6.0]),
        crashes_at_most=random.choice([1, 2, 4]),
    )


class _Maker:
    """Makes operations with consecutive numbers, some kinds more often than others."""

    def __init__(self, random: Random) -> None:
        self._random, self._number = random, 0
        makers = [
            self.insert, self.insert_hot, self.upsert_hot, self.upsert_cold, self.transfer, self.transfer, self.tally,
            self.delete_keys, self.delete_below, self.overwrite, self.look, self.look,
        ]  # fmt: skip
        self._makers = makers
        self._weights = [random.choice([0.0, 0.3, 1.0, 3.0]) for _ in makers]
        if not any(self._weights):
            self._weights[4] = 1.0

    def next(self) -> int:
        self._number += 1
        return self._number

    def any(self) -> Operation:
        (make,) = self._random.choices(self._makers, self._weights)
        return make()

    def row(self, place: tuple[str, str], number: int, value: int | None = None) -> Row:
        return Row(*place, self._random.randrange(100) if value is None else value, (number,))

    def insert(self) -> Operation:
        number, part = self.next(), self._random.choice("012")
        return Insert(number, tuple(self.row((part, f"c{number}-{i}"), number) for i in range(self._random.randint(1, 2))))

    def insert_hot(self) -> Operation:
        number = self.next()
        return Insert(number, (self.row(self._random.choice(HOT), number),))

    def upsert_hot(self) -> Operation:
        number = self.next()
        places = self._random.sample(HOT, self._random.randint(1, 2))
        return Upsert(number, tuple(self.row(place, number) for place in places))

    def upsert_cold(self) -> Operation:
        number = self.next()
        return Upsert(number, (self.row((self._random.choice("012"), f"c{number}-0"), number),))

    def transfer(self) -> Operation:
        source, target = self._random.sample(ACCOUNTS, 2)
        return Transfer(self.next(), source, target, self._random.randint(1, 9))

    def tally(self) -> Operation:
        return Tally(self.next(), self._random.choice("012"))

    def delete_keys(self) -> Operation:
        part, key = self._random.choice(HOT)
        return DeleteKeys(self.next(), part, (key,))

    def delete_below(self) -> Operation:
        return DeleteBelow(self.next(), self._random.choice([10, 30, 90]))

    def overwrite(self) -> Operation:
        number, part = self.next(), self._random.choice("122")
        return Overwrite(number, (self.row((part, f"o{number}"), number), self.row((part, f"h{part}"), number)))

    def look(self) -> Operation:
        return Look(self.next())

    def batches(self, name: str, count: int) -> list[Operation]:
        made: list[Operation] = []
        for version in range(1, count + 1):
            number = self.next()
            hot = self._random.random() < 0.5
            place = HOT[0] if hot else ("2", f"s{number}")
            made.append(Upsert(number, (self.row(place, number),), AppTransaction(name, version)))
        return made

    def foreign(self, count: int, *, eager: bool) -> list[Operation]:
        made: list[Operation] = []
        for _ in range(count):
            number = self.next()
            place = self._random.choice([*HOT, ("0", f"f{number}")])
            made.append(ForeignWrite(number, (self.row(place, number),), self._random.random() < 0.6, eager=eager))
        return made

    def chores(self, count: int, *, breaks_locks: bool) -> list[Operation]:
        choices: list[Sequence[type[Operation]]] = [[Reap], [Collect], [Reap, Collect], [BreakLock]]
        kinds = self._random.choice(choices if breaks_locks else choices[:3])
        return [self._random.choice(kinds)(self.next()) for _ in range(count)]


def _actors(random: Random, foreign: Foreign) -> tuple[ActorPlan, ...]:
    maker = _Maker(random)
    plans: list[tuple[str, list[Operation]]] = []
    opening: list[Operation] = [Insert(maker.next(), tuple(Row(*place, 100, (1,)) for place in ACCOUNTS))]
    writers = random.randint(2, 4)
    plans += [(f"writer-{number}", [maker.any() for _ in range(random.randint(3, 8))]) for number in range(writers)]
    plans[0] = (plans[0][0], opening + plans[0][1])
    if random.random() < 0.35:
        batches = maker.batches("stream", random.randint(2, 4))
        plans.append(("stream", batches))
        if random.random() < 0.4:  # two runs of one query at once: a driver that was presumed dead
            plans.append(("stream-twin", list(batches)))
    if random.random() < 0.6:
        plans.append(("keeper", maker.chores(random.randint(2, 6), breaks_locks=foreign == "none")))
    if foreign != "none":
        plans.append(("foreign", maker.foreign(random.randint(2, 5), eager=foreign == "eager")))
    skewed = random.random() < 0.5
    think_s = 10 ** random.uniform(-2.5, 0.0)
    return tuple(
        ActorPlan(
            name,
            tuple(operations),
            skew_ms=random.choice([0, 40, -40, 5_000, -5_000, 3_600_000]) if skewed else 0,
            rate=random.uniform(0.995, 1.005) if skewed else 1.0,
            think_s=think_s,
        )
        for name, operations in plans
    )
