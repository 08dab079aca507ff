"""What a one-row insert costs as a table's history grows: default settings, one process, no Spark.

`python -m benchmarks.growth [--commits 10000] [--distant-commits 3000] [--partitions 12] [--delay-ms 30] [--columns 3000]
[--json]`. Rows are inserted one by one into a table on this disk, and into one each of whose storage requests takes
`--delay-ms` longer, as on an object store. The median of commits 20 to 120 is compared with that of the last hundred. Commits
that run upkeep or write a checkpoint are among them; what these cost is in the mean. With `pip install deltalake`, delta-rs
makes the same commits beside it. Target: at the end a commit takes at most 1.3 times as long. Then one row is inserted,
updated, read and fed from tables of some and of many columns. Target: at most twice as long for each column.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from statistics import mean, median
from typing import TypeVar

import pyarrow as pa
from tests.faulty_storage import BATCH, Wrapped

from benchmarks.measuring import arguments, scratch, show, timed, verdict
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.settings import Settings
from lakelock.storage import Listed, Storage
from lakelock.storage.location import StorageLocation
from lakelock.storage.memory import MemoryStorage
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema

T = TypeVar("T")

TARGET = 1.3
AROUND = 21
FIRST, LAST = slice(20, 120), 100
FEW_COLUMNS, COLUMNS_TARGET = 500, 2.0
DELTA_UP_TO = 1_000
"""More commits take delta-rs many minutes."""
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("value", pa.string())])


class Distant(Wrapped):
    """Storage each of whose requests takes `delay_s` longer; a listing is a request for each thousand names."""

    def __init__(self, inner: Storage, delay_s: float) -> None:
        super().__init__(inner)
        self._delay_s = delay_s

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        time.sleep(self._delay_s * weight)
        return request()

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        # The inner one is read no further than the caller goes.
        time.sleep(self._delay_s)
        for number, item in enumerate(self.inner.list(prefix, start_after=start_after)):
            if number and number % BATCH == 0:
                time.sleep(self._delay_s)
            yield item


def row(number: int, partitions: int) -> pa.Table:
    return pa.table({"id": [number], "part": pa.array([number % partitions], pa.int32()), "value": ["x"]}, schema=SCHEMA)


@contextmanager
def opened(location: StorageLocation, storage: Storage) -> Iterator[ArrowEngine]:
    with Coordinator.open(location, Settings(), application="growth", storage=storage) as coordinator:
        yield ArrowEngine(coordinator)


def lakelock(folder: str, name: str, commits: int, partitions: int, delay_s: float = 0.0) -> dict[str, object]:
    """So many commits; the figures are called `name`."""
    location = StorageLocation.of(folder)
    schema = TableSchema.from_arrow(SCHEMA).to_avro_json("growth")
    storage = Distant(MemoryStorage(name=name), delay_s) if delay_s else location.open()
    create_table(storage, TableProperties.new("growth", ["id"], ["part"], create_schema=schema), SystemRuntime())
    with opened(location, storage) as engine:
        times = [1000 * timed(partial(engine.insert, row(number, partitions))) for number in range(commits)]
    first, last = times[FIRST], times[-LAST:]
    ratio = median(last) / median(first)
    return {
        f"{name}_commits": commits,
        f"{name}_ms_of_commits_{FIRST.start}_to_{FIRST.stop}": median(first),
        f"{name}_ms_of_the_last_{LAST}": median(last),
        f"{name}_mean_ms_of_the_last_{LAST}_with_upkeep": mean(last),
        f"{name}_ratio": ratio,
        f"{name}_target": f"at most {TARGET}: {verdict(ratio, TARGET)}",
    }


def delta(folder: str, marks: list[int], partitions: int) -> dict[str, object]:
    """The same commits by delta-rs: with the table kept open, and opened for each commit as a new job does."""
    try:
        from deltalake import DeltaTable, write_deltalake  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return {"delta": "not installed"}
    write_deltalake(folder, row(0, partitions), partition_by=["part"])
    kept, numbers, found = DeltaTable(folder), count(1), {}

    def append(target: object) -> None:
        write_deltalake(target, row(next(numbers), partitions), mode="append")

    for mark in marks:
        while kept.version() < mark - AROUND // 2:
            append(kept)
        for name, target in (("", kept), ("_reopened", folder)):
            found[f"delta_commit_ms_at_{mark}{name}"] = 1000 * median(timed(partial(append, target)) for _ in range(AROUND))
            kept.update_incremental()
    return dict(found)


def wide(folder: str, columns: int) -> dict[str, float]:
    """Seconds of each operation on a table with so many columns."""
    schema = pa.schema([("id", pa.int64()), *((f"c{number}", pa.float64()) for number in range(columns))])
    location, create_schema = StorageLocation.of(folder), TableSchema.from_arrow(schema).to_avro_json("wide")
    create_table(location.open(), TableProperties.new("wide", ["id"], create_schema=create_schema), SystemRuntime())

    def rows(*ids: int) -> pa.Table:
        return pa.table([list(ids), *([1.0] * len(ids) for _ in range(columns))], schema=schema)

    with opened(location, location.open()) as engine:
        return {
            "insert": timed(lambda: engine.insert(rows(1, 2))),
            "upsert": timed(lambda: engine.upsert(rows(2))),
            "read": timed(engine.read),
            "changes": timed(engine.changes),
        }


def by_columns(folder: str, columns: int) -> dict[str, object]:
    """What a column costs in a table of many, compared with one of few."""
    wide(f"{folder}/first", FEW_COLUMNS)  # imports, and what is made once
    few, many = wide(f"{folder}/few", FEW_COLUMNS), wide(f"{folder}/many", columns)
    found: dict[str, object] = {f"{name}_s_of_{columns}_columns": seconds for name, seconds in many.items()}
    ratio = max(many[name] / few[name] for name in few) / (columns / FEW_COLUMNS)
    return found | {"ratio_by_column": ratio, "target_by_column": f"at most {COLUMNS_TARGET}: {verdict(ratio, COLUMNS_TARGET)}"}


def main() -> None:
    given = arguments(__doc__, commits=10_000, distant_commits=3_000, partitions=12, delay_ms=30, columns=3000)
    marks = [10**power for power in range(1, 10) if 10**power <= min(given.commits, DELTA_UP_TO)]
    with scratch() as folder:
        show(lakelock(f"{folder}/near", "disk", given.commits, given.partitions), given.json)
        show(lakelock(f"{folder}/far", "distant", given.distant_commits, given.partitions, given.delay_ms / 1000), given.json)
        show(by_columns(f"{folder}/columns", given.columns), given.json)
        show(delta(f"{folder}/delta", marks, given.partitions), given.json)


if __name__ == "__main__":
    main()
