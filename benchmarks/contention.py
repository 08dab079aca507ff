"""What a late conflict costs a write over many file groups, and how much work writers get done beside one hot group.

`python -m benchmarks.contention [--groups 20] [--rows 50000] [--processes 8] [--seconds 60] [--json]`, on Arrow tables, without
Spark. First an upsert over all groups is rejected because of one of them: it runs again as a whole, or does only that group
again. What is `wasted` is the CPU time beyond that of an undisturbed upsert, in units of one group, copies included. Then each
process upserts rows of its own into one hot group and into 19 groups of its own, for so many seconds, with and without redos,
and with claims instead. `gain_in_cpu` compares the CPU time of a commit, which other programs disturb less. Whoever runs again
as a whole does it as often as it loses, so the gain cannot be more than the `attempts_a_commit_run_again`. Reservations bound
these to three (`retry.reserve_after`); `unreserved` is without. Targets: a collision wastes little more than one group, three
times the commits, no job lost.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from lakelock.table.rewriting.kernels import ArrowKernels
from lakelock.table.schema import TableSchema

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.int32()), ("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
ROUNDS = 3
EVERY = 20
"""An upsert changes one row in so many of each group."""
MOST_WASTED, LEAST_GAIN = 2.0, 3.0


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


def settings(*, redo: bool, early: bool = False, reserves: bool = True) -> Settings:
    defaults = Settings()
    return replace(
        defaults,
        concurrency=ConcurrencySettings(early_conflict_detection=early),
        retry=replace(
            defaults.retry,
            attempts=1_000,
            redo_attempts=1_000 if redo else 0,
            reserve_after=defaults.retry.reserve_after if reserves else 0,
            first_wait_s=0.05,
            longest_wait_s=1.0,
        ),
    )


def opened(folder: str, chosen: Settings, kernels: ArrowKernels | None = None) -> ArrowEngine:
    coordinator = Coordinator.open(StorageLocation.of(folder), chosen, application="benchmark")
    return ArrowEngine(coordinator, kernels or ArrowKernels())


def cpu_s(action: Callable[[], object]) -> float:
    """CPU time of all threads of this process."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


class Meanwhile(ArrowKernels):
    """Does something once, before the file of this number is written."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._left, self._act = number, act
        self.took_s = 0.0

    def new_file(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        self._left -= 1
        if self._left == 0:
            self.took_s = cpu_s(self._act)
        return super().new_file(*args, **kwargs)  # type: ignore[arg-type]


def one_collision(folder: str, groups: int, count: int) -> dict[str, object]:
    """CPU seconds of an upsert over all groups: undisturbed, rejected and redone, rejected and run again."""
    changes = [rows(part, range(0, count, EVERY), 1) for part in range(groups)]
    batch, other = pa.concat_tables(changes), rows(0, range(1, count, EVERY), 2)

    def upsert(*, redo: bool, collides: bool) -> float:
        act = partial(opened(folder, Settings()).upsert, other) if collides else int
        kernels = Meanwhile(groups // 2, act)
        engine = opened(folder, settings(redo=redo), kernels)
        return cpu_s(lambda: engine.upsert(batch)) - kernels.took_s

    undisturbed, redone, again = (
        median(upsert(redo=redo, collides=collides) for _ in range(ROUNDS))
        for redo, collides in ((True, False), (True, True), (False, True))
    )
    group_s = undisturbed / groups
    return {
        "undisturbed_cpu_s": undisturbed,
        "redone_cpu_s": redone,
        "run_again_cpu_s": again,
        "wasted_groups_redone": (redone - undisturbed) / group_s,
        "wasted_groups_run_again": (again - undisturbed) / group_s,
    }


@dataclass(frozen=True)
class Job:
    """What one process does: upserts into the hot group 0 and into groups of its own, until the time is over."""

    folder: str
    number: int
    processes: int
    groups: int
    count: int
    seconds: int
    redo: bool
    early: bool
    reserves: bool = True

    def run(self) -> tuple[int, int, float, int]:
        """How many upserts were committed, how many were lost, the CPU time of all of them, and the attempts of the former."""
        engine = opened(self.folder, settings(redo=self.redo, early=self.early, reserves=self.reserves))
        own = [part for part in range(1, self.groups) if part % self.processes == self.number]
        mine = range(self.number * EVERY, self.count, self.processes * EVERY)
        committed, lost, attempts, began_cpu_s = 0, 0, 0, time.process_time()
        until_s = time.monotonic() + self.seconds
        while time.monotonic() < until_s:
            parts = [rows(part, mine, committed) for part in (0, *own)]
            try:
                attempts += engine.upsert(pa.concat_tables(parts)).attempts
                committed += 1
            except LakelockError:
                lost += 1
        return committed, lost, time.process_time() - began_cpu_s, attempts


def hot_group(folder: str, groups: int, count: int, processes: int, seconds: int) -> dict[str, object]:
    """Commits of all processes together, by the way in which they get out of each other's way. The ways take turns."""
    ways = {
        "redone": (True, False, True),
        "run_again": (False, False, True),
        "claimed": (True, True, True),
        "redone_unreserved": (True, False, False),
        "run_again_unreserved": (False, False, False),
    }
    totals: dict[str, list[float]] = {name: [0, 0, 0.0, 0] for name in ways}
    for _ in range(ROUNDS):
        for name, how in ways.items():
            each_s = max(1, seconds // ROUNDS)
            jobs = [Job(folder, number, processes, groups, count, each_s, *how) for number in range(processes)]
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                done = pool.map(Job.run, jobs, chunksize=1)
            totals[name] = [so_far + sum(more) for so_far, more in zip(totals[name], zip(*done, strict=True), strict=True)]
    found: dict[str, object] = {}
    for name, (committed, lost, used_s, attempts) in totals.items():
        found |= {f"commits_{name}": int(committed), f"lost_{name}": int(lost)}
        found[f"cpu_s_a_commit_{name}"] = used_s / max(1, committed)
        found[f"attempts_a_commit_{name}"] = attempts / max(1, committed)
    return found


def gains(found: dict[str, object], among: str = "") -> dict[str, object]:
    """How many times the commits, and the CPU time of a commit, redos bring."""
    more = int(str(found[f"commits_redone{among}"])) / max(1, int(str(found[f"commits_run_again{among}"])))
    cpu = float(str(found[f"cpu_s_a_commit_run_again{among}"])) / float(str(found[f"cpu_s_a_commit_redone{among}"]))
    return {f"gain{among}": more, f"gain_in_cpu{among}": cpu}


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
        found |= {**gains(found), **gains(found, "_unreserved")}
        found["gain_target"] = verdict(-float(str(found["gain"])), -LEAST_GAIN)
    wasted = float(str(found["wasted_groups_redone"]))
    found["wasted_target"] = verdict(wasted, MOST_WASTED)
    show(found, chosen.json)


if __name__ == "__main__":
    main()
