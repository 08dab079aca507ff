"""What a late conflict costs a write over many file groups, and how much work writers get done beside one hot group.

`python -m benchmarks.contention [--groups 20] [--rows 50000] [--processes 8] [--seconds 60] [--json]`, on Arrow tables, without
Spark. First an upsert over all groups is rejected because of one of them: it runs again as a whole, or does only that group
again. Wasted are the groups that it writes more than once. `wasted_cpu` is all CPU time beyond that of an undisturbed upsert,
in units of one group: it includes the copies of the other groups and the withdrawal of the first attempt.

Then each process upserts rows of its own into one hot group and into 19 groups of its own, for so many seconds. Commits that
come later do not count. The ways differ in one thing each: `redone` or `run_again`; `reserved`, where a writer that has lost
twice has a turn; `claimed`, with early detection, as lakelock does by default. `cpu_gain` compares the CPU time of a commit,
which other programs disturb less. Targets: a collision wastes one group at most, redos bring three times the commits, and no
job is lost.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import partial
from statistics import median

import pyarrow as pa

from benchmarks.measuring import arguments, scratch, show, verdict
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.errors import LakelockError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.settings import ConcurrencySettings, Settings
from lakelock.storage.location import StorageLocation
from lakelock.table.properties import TableProperties
from lakelock.table.rewriting import Kernels
from lakelock.table.schema import TableSchema

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.int32()), ("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
ROUNDS = 3
EVERY = 20
"""An upsert changes one row in so many of each group."""
MOST_WASTED, LEAST_GAIN = 1.0, 3.0


def rows(part: int, numbers: range, value: int = 0) -> pa.Table:
    count = len(numbers)
    columns = [
        [f"{part}-{number:09}" for number in numbers], [part] * count, [value] * count,
        [number / 7 for number in numbers], [f"text {number % 1000}" for number in numbers],
    ]  # fmt: skip
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def make_table(folder: str, groups: int, count: int) -> None:
    """A file group of `count` rows in each partition."""
    location = StorageLocation.of(folder)
    create_schema = TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    properties = TableProperties.new("t", record_keys=("id",), partition_fields=("part",), create_schema=create_schema)
    create_table(location.open(), properties, SystemRuntime())
    engine = opened(folder, Settings())
    for part in range(groups):
        engine.insert(rows(part, range(count)))


@dataclass(frozen=True)
class Way:
    """How writers get out of each other's way."""

    redo: bool
    early: bool = False
    reserves: bool = False


def settings(way: Way) -> Settings:
    defaults = Settings()
    return replace(
        defaults,
        concurrency=ConcurrencySettings(early_conflict_detection=way.early),
        retry=replace(
            defaults.retry,
            attempts=1_000,
            redo_attempts=1_000 if way.redo else 0,
            reserve_after=defaults.retry.reserve_after if way.reserves else 0,
            first_wait_s=0.05,
            longest_wait_s=1.0,
        ),
    )


def opened(folder: str, chosen: Settings, kernels: Kernels | None = None) -> ArrowEngine:
    coordinator = Coordinator.open(StorageLocation.of(folder), chosen, application="benchmark")
    return ArrowEngine(coordinator, kernels or Kernels())


def cpu_s(action: Callable[[], object]) -> float:
    """CPU time of all threads of this process."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


class Meanwhile(Kernels):
    """Does something once, before the file of this number is written, and counts the files."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._number, self._act = number, act
        self.written, self.took_s = 0, 0.0

    def new_file(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        self.written += 1
        if self.written == self._number:
            self.took_s = cpu_s(self._act)
        return super().new_file(*args, **kwargs)  # type: ignore[arg-type]


def one_collision(folder: str, groups: int, count: int) -> dict[str, object]:
    """CPU seconds of an upsert over all groups, and the files that it writes: undisturbed, redone, and run again."""
    changes = [rows(part, range(0, count, EVERY), 1) for part in range(groups)]
    batch, other = pa.concat_tables(changes), rows(0, range(1, count, EVERY), 2)

    def upsert(*, redo: bool, collides: bool) -> tuple[float, int]:
        act = partial(opened(folder, Settings()).upsert, other) if collides else int
        kernels = Meanwhile(groups // 2, act)
        engine = opened(folder, settings(Way(redo=redo, reserves=True)), kernels)
        return cpu_s(lambda: engine.upsert(batch)) - kernels.took_s, kernels.written

    ways = {"undisturbed": (True, False), "redone": (True, True), "run_again": (False, True)}
    # The first round warms up.
    rounds = [
        {name: upsert(redo=redo, collides=collides) for name, (redo, collides) in ways.items()} for _ in range(ROUNDS + 1)
    ]
    used_s = {name: median(each[name][0] for each in rounds[1:]) for name in ways}
    written = {name: max(each[name][1] for each in rounds) for name in ways}
    found: dict[str, object] = {f"cpu_s_{name}": value for name, value in used_s.items()}
    for name in ("redone", "run_again"):
        found[f"wasted_groups_{name}"] = written[name] - written["undisturbed"]
        found[f"wasted_cpu_{name}"] = (used_s[name] - used_s["undisturbed"]) / (used_s["undisturbed"] / groups)
    return found


WAYS = {
    "redone": Way(redo=True),
    "run_again": Way(redo=False),
    "redone_reserved": Way(redo=True, reserves=True),
    "run_again_reserved": Way(redo=False, reserves=True),
    "claimed": Way(redo=True, reserves=True, early=True),
}


@dataclass(frozen=True)
class Done:
    """Upserts committed in time, too late and never; the CPU time of all of them, and the attempts of those committed."""

    commits: int
    late: int
    lost: int
    cpu_s: float
    attempts: int

    def __add__(self, other: Done) -> Done:
        return Done(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Job:
    """What one process does: upserts into the hot group 0 and into groups of its own, until the time is over."""

    folder: str
    number: int
    processes: int
    groups: int
    count: int
    seconds: int
    way: Way

    def run(self) -> Done:
        engine = opened(self.folder, settings(self.way))
        own = [part for part in range(1, self.groups) if part % self.processes == self.number]
        mine = range(self.number * EVERY, self.count, self.processes * EVERY)
        commits = late = lost = attempts = 0
        began_cpu_s, until_s = time.process_time(), time.monotonic() + self.seconds
        while time.monotonic() < until_s:
            parts = [rows(part, mine, commits) for part in (0, *own)]
            try:
                attempts += engine.upsert(pa.concat_tables(parts)).attempts
            except LakelockError:
                lost += 1
            else:
                in_time = time.monotonic() < until_s
                commits, late = commits + in_time, late + (not in_time)
        return Done(commits, late, lost, time.process_time() - began_cpu_s, attempts)


def hot_group(folder: str, groups: int, count: int, processes: int, seconds: int) -> dict[str, object]:
    """What all processes together get done, way after way."""
    found: dict[str, object] = {}
    for name, way in WAYS.items():
        jobs = [Job(folder, number, processes, groups, count, seconds, way) for number in range(processes)]
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            done = sum(pool.map(Job.run, jobs, chunksize=1), Done(0, 0, 0, 0.0, 0))
        committed = max(1, done.commits + done.late)
        found |= {f"commits_{name}": done.commits, f"lost_{name}": done.lost}
        found[f"cpu_s_a_commit_{name}"] = done.cpu_s / committed
        found[f"attempts_a_commit_{name}"] = done.attempts / committed
    return found


def gains(found: dict[str, object], among: str = "") -> dict[str, object]:
    """How many times the commits, and the CPU time of a commit, redos bring."""
    more = int(str(found[f"commits_redone{among}"])) / max(1, int(str(found[f"commits_run_again{among}"])))
    cpu = float(str(found[f"cpu_s_a_commit_run_again{among}"])) / float(str(found[f"cpu_s_a_commit_redone{among}"]))
    return {f"gain{among}": more, f"cpu_gain{among}": cpu}


def main() -> None:
    chosen = arguments(__doc__, groups=20, rows=50_000, processes=8, seconds=60)
    with scratch() as folder:
        make_table(f"{folder}/t", chosen.groups, chosen.rows)
        found = one_collision(f"{folder}/t", chosen.groups, chosen.rows)
    if chosen.seconds:
        wide = 1 + (chosen.groups - 1) * chosen.processes
        with scratch() as folder:
            make_table(f"{folder}/t", wide, chosen.rows)
            found |= hot_group(f"{folder}/t", wide, chosen.rows, chosen.processes, chosen.seconds)
        found |= {**gains(found), **gains(found, "_reserved")}
        found["gain_target"] = verdict(-float(str(found["gain"])), -LEAST_GAIN)
    wasted = float(str(found["wasted_groups_redone"]))
    found["wasted_target"] = verdict(wasted, MOST_WASTED)
    show(found, chosen.json)


if __name__ == "__main__":
    main()
