"""What reading a merge-on-read table costs after upserts that went to log files, and how many bytes such upserts write.

`python -m benchmarks.merge_on_read [--rows 2000000] [--groups 2] [--json]`: each upsert writes every tenth row. CPU seconds of
reading all rows without Spark, with the log files and without (`read_optimized`), and after a compaction; ratios travel between
machines. The upserts are of the same rows each time, of other rows each time, so that ten have written every row again, of
random rows, and once more of the same rows without positions, as by engines that do not write them. Last many small groups,
and beside each the bytes of an upsert of 100 rows over all groups.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.hand_made import HandMade

from benchmarks.measuring import alternating, arguments, rows, show
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.storage.location import StorageLocation
from lakelock.table.layout import FileGroupId
from lakelock.table.log_writing import LogChanges
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema

SHARE, ROUNDS, MANY_GROUPS = 10, 5, 20
UPSERTS = (1, 5, 10)


def at(second: int, ms: int = 0) -> str:
    return f"202606010{second // 60:03d}{second % 60:02d}{ms:03d}"


def group(number: int) -> FileGroupId:
    return FileGroupId("", f"a{number:07x}-0000-4000-8000-000000000000-0")


def upsert(made: HandMade, second: int, parts: list[pa.Table]) -> float:
    """One commit of a log file in each file group; its bytes."""
    logs = {group(number): LogChanges(made.keyed(part)) for number, part in enumerate(parts)}
    made.commit(at(second), at(second, 500), logs=logs)
    return sum(file.stat().st_size for file in made.path.glob(f".*_{at(second)}.log.*"))


def chosen_rows(kind: str, number: int, count: int) -> pa.Array:
    """The places of the rows that the upsert of this number writes in a group of so many."""
    if kind == "random":
        return pa.array(np.sort(np.random.default_rng(number).choice(count, count // SHARE, replace=False)))
    return pa.array(np.arange(number % SHARE if kind == "other" else 0, count, SHARE))


def measured(count: int, groups: int, folder: Path, kind: str, *, positions: bool = True) -> dict[str, float]:
    first = rows(np.arange(count))
    properties, schema = TableProperties.new("bench", ["id"], []), TableSchema.from_arrow(first.schema)
    made = HandMade(folder, properties, schema, positions=positions).create()
    parts = [first.slice(number * count // groups, count // groups) for number in range(groups)]
    made.commit(at(1), at(1, 500), bases=dict(zip(map(group, range(groups)), parts, strict=True)))
    found: dict[str, float] = {"base_bytes": sum(file.stat().st_size for file in folder.glob("*.parquet"))}
    for number in range(1, max(UPSERTS) + 1):
        places = chosen_rows(kind, number, count // groups)
        found["upsert_bytes"] = upsert(made, number + 1, [part.take(places) for part in parts])
        if number in UPSERTS:
            found |= read(folder, str(number))
    found["upsert_of_100_rows_bytes"] = upsert(made, 30, [part.slice(7, 100 // groups) for part in parts])
    with Coordinator.open(StorageLocation.of(str(folder))) as coordinator:
        ArrowEngine(coordinator).optimize()
    return found | read(folder, "compacted")


def read(path: Path, after: str) -> dict[str, float]:
    with Coordinator.open(StorageLocation.of(str(path))) as coordinator:
        engine = ArrowEngine(coordinator)
        variants = {"bases": lambda: engine.read(query_type="read_optimized"), "merged": engine.read}
        costs = alternating(variants, repeat=ROUNDS, warm_up=1)
    cpu_s = {name: cost.cpu_s for name, cost in costs.items()}
    return {f"{name}_cpu_s_{after}": found for name, found in cpu_s.items()} | {
        f"ratio_{after}": cpu_s["merged"] / cpu_s["bases"]
    }


def main() -> None:
    given = arguments(__doc__, rows=2_000_000, groups=2)
    cases = (
        ("the same rows each time", given.groups, "same", True),
        ("other rows each time", given.groups, "other", True),
        ("random rows each time", given.groups, "random", True),
        ("the same rows without positions", given.groups, "same", False),
        (f"the same rows of {MANY_GROUPS} groups", MANY_GROUPS, "same", True),
    )
    with tempfile.TemporaryDirectory(prefix="lakelock-mor-") as folder:
        for name, groups, kind, positions in cases:
            found = measured(given.rows, groups, Path(folder) / name, kind, positions=positions)
            show({"upserts": name, **found}, given.json)


if __name__ == "__main__":
    main()
