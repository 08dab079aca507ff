"""How long a read takes from `table.read()` to the plan of a query that asks for one partition, at 1,000 to 100,000 files.

`python -m benchmarks.planning [--partitions 100] [--most 100000] [--json]`, for hive-style folders and for plain ones. The
files are hard links, committed as any others. Requests of lakelock are counted, and the files that Spark lists.
`by_names` is the way for a Spark with unknown classes, which asks the file system. Targets: 2 s at 10,000 files, 15 s at
100,000, and Spark lists nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from tests.faulty_storage import CountingStorage

from benchmarks.measuring import Cost, arguments, measured, scratch, show, spark_session, timed, verdict
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import Settings
from lakelock.spark_plugin import LakeTable, reading
from lakelock.storage.location import StorageLocation
from lakelock.table import layout
from lakelock.table.commit_metadata import WriteStat

TARGETS_S = {10_000: 2.0, 100_000: 15.0}
BY_NAMES_UP_TO = 10_000
ROUNDS = 3


def make_table(spark: SparkSession, folder: str, partitions: int, *, hive_style: bool) -> None:
    """A table with one file in each partition."""
    schema = spark.createDataFrame([], "id long, month int, v string").schema
    LakeTable.create(spark, folder, schema=schema, key="id", partition_by="month", hive_style=hive_style).close()
    numbers = list(range(partitions))
    rows = pa.table({"id": numbers, "month": pa.array(numbers, pa.int32()), "v": ["x"] * partitions})
    with opened(folder) as coordinator:
        ArrowEngine(coordinator).insert(rows)


def opened(folder: str, storage: CountingStorage | None = None) -> Coordinator:
    return Coordinator.open(StorageLocation.of(folder), Settings(), application="benchmark", storage=storage)


def grow(folder: str, files: int) -> None:
    """Commit links to the first file of each partition, until the table has so many files."""
    with opened(folder) as coordinator:
        present = coordinator.snapshot().files
        originals = list({file.partition: file for file in reversed(present)}.values())
        with coordinator.begin("INSERT") as tx:
            stats = []
            for number in range(len(present), files):
                original = originals[number % len(originals)]
                link = original._replace(file_id=f"link{number:08}-0", instant=tx.instant)
                marker = layout.marker(tx.instant, link.partition, link.name, "CREATE")
                coordinator.table.storage.put_if_absent(marker, b"", durable=False)
                os.link(f"{folder}/{original.key}", f"{folder}/{link.key}")
                stat = WriteStat(link.file_id, link.key, partition_path=link.partition, num_writes=1, num_inserts=1)
                stats.append(replace(stat, file_size_bytes=link.size_bytes, total_write_bytes=link.size_bytes))
            tx.commit(stats)


def planned(read: Callable[[], DataFrame]) -> Cost:
    """What it takes to come to the physical plan."""
    return measured(lambda: read().where("month = 7")._jdf.queryExecution().executedPlan().toString())


def measure(spark: SparkSession, folder: str, files: int) -> dict[str, object]:
    metrics = spark._jvm.org.apache.spark.metrics.source  # type: ignore[union-attr]
    listed = metrics.HiveCatalogMetrics.METRIC_FILES_DISCOVERED()
    storage = CountingStorage(StorageLocation.of(folder).open())
    with LakeTable(spark, opened(folder, storage), f"file:{folder}") as table:
        snapshot = table._coordinator.snapshot().files
        assert len(snapshot) == files, len(snapshot)
        storage.reset()
        before = listed.getCount()
        costs = [planned(table.read) for _ in range(ROUNDS)]
        plan_s = median(cost.wall_s for cost in costs)
        found: dict[str, object] = {"plan_s": plan_s, "plan_cpu_s": median(cost.cpu_s for cost in costs)}
        found["spark_listed_files"] = listed.getCount() - before
        found["lakelock_requests"] = ", ".join(f"{n // ROUNDS} {op}" for op, n in storage.requests.items())
        found["of_which_snapshot_s"] = timed(lambda: table._coordinator.snapshot())
        found["with_where_argument_s"] = planned(lambda: table.read("month = 7")).wall_s
        if files <= BY_NAMES_UP_TO:
            columns = table.schema
            found["by_names_s"] = planned(lambda: reading.read_files_by_name(spark, f"file:{folder}", snapshot, columns)).wall_s
    if files in TARGETS_S:
        found["target"] = f"plan_s <= {TARGETS_S[files]}: {verdict(plan_s, TARGETS_S[files])}"
    return found


def main() -> None:
    given = arguments(__doc__, partitions=100, most=100_000)
    found: dict[str, object] = {}
    with scratch() as folder, spark_session(folder) as spark:
        for style in ("hive", "plain"):
            table = f"{folder}/{style}"
            make_table(spark, table, given.partitions, hive_style=style == "hive")
            for files in (count for count in (1_000, 10_000, 100_000) if given.partitions < count <= given.most):
                grow(table, files)
                found |= {f"{style}_{files}_{name}": value for name, value in measure(spark, table, files).items()}
                print(f"{style}, {files:,} files: {found[style + '_' + str(files) + '_plan_s']:.2f} s", file=sys.stderr)
    show(found, given.json)


if __name__ == "__main__":
    main()
