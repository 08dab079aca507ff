"""What reading a merge-on-read table costs after upserts that went to log files, and how many bytes such upserts write.

`python -m benchmarks.merge_on_read [--rows 2000000] [--json]`: a table of 20 file groups, each upsert of every tenth row. CPU
seconds of reading all rows without Spark, with the log files and without (`read_optimized`); their ratio travels between
machines. Once the upserts are of the same rows, once of other rows each time, so that ten have written every row again.
Beside it the bytes of an upsert of 100 rows over all file groups.
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

GROUPS, SHARE, ROUNDS = 20, 10, 5
UPSERTS = (1, 5, 10)


def at(second: int, ms: int = 0) -> str:
    return f"202606010{second // 60:03d}{second % 60:02d}{ms:03d}"


def group(number: int) -> FileGroupId:
    return FileGroupId("", f"{number:08x}-0000-4000-8000-000000000000-0")


def upsert(made: HandMade, second: int, parts: list[pa.Table]) -> int:
    """One commit of a log file in each file group; its bytes."""
    logs = {group(number): LogChanges(made.keyed(part)) for number, part in enumerate(parts)}
    made.commit(at(second), at(second, 500), logs=logs)
    return sum(file.stat().st_size for file in made.path.glob(f".*_{at(second)}.log.*"))


def measured(count: int, folder: Path, *, same_rows: bool) -> dict[str, float]:
    first = rows(np.arange(count))
    made = HandMade(folder, TableProperties.new("bench", ["id"], []), TableSchema.from_arrow(first.schema)).create()
    parts = [first.slice(number * count // GROUPS, count // GROUPS) for number in range(GROUPS)]
    made.commit(at(1), at(1, 500), bases=dict(zip(map(group, range(GROUPS)), parts, strict=True)))
    found: dict[str, float] = {"base_bytes": sum(file.stat().st_size for file in folder.glob("*.parquet"))}
    for number in range(1, max(UPSERTS) + 1):
        chosen = pa.array(np.arange(0 if same_rows else number % SHARE, count // GROUPS, SHARE))
        found["upsert_bytes"] = upsert(made, number + 1, [part.take(chosen) for part in parts])
        if number in UPSERTS:
            found |= read(folder, number)
    found["upsert_of_100_rows_bytes"] = upsert(made, 30, [part.slice(7, 100 // GROUPS) for part in parts])
    return found


def read(path: Path, number: int) -> dict[str, float]:
    with Coordinator.open(StorageLocation.of(str(path))) as coordinator:
        engine = ArrowEngine(coordinator)
        variants = {"bases": lambda: engine.read(query_type="read_optimized"), "merged": engine.read}
        costs = alternating(variants, repeat=ROUNDS, warm_up=1)
    cpu_s = {name: cost.cpu_s for name, cost in costs.items()}
    return {f"{name}_cpu_s_{number}": found for name, found in cpu_s.items()} | {
        f"ratio_{number}": cpu_s["merged"] / cpu_s["bases"]
    }


def main() -> None:
    given = arguments(__doc__, rows=2_000_000)
    with tempfile.TemporaryDirectory(prefix="lakelock-mor-") as folder:
        for name, same_rows in (("the same rows each time", True), ("other rows each time", False)):
            show({"upserts": name, **measured(given.rows, Path(folder) / name, same_rows=same_rows)}, given.json)


if __name__ == "__main__":
    main()
