"""Small writes from one Spark session with Spark's default settings: inserts, upserts, deletes and merges of one or two rows.

`python -m benchmarks.small_writes [--rows 100000] [--repeat 20] [--json]`: a table of so many rows on a local disk. The first
line says what the session sets. Times are on the wall, medians of the second call on, with the first call beside them; CPU is
that of the driver, the JVM and the Python workers. The targets are those of a machine that does nothing else: 10 inserts and
8 upserts a second, 1 s for a merge, 3 s for the first.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from itertools import count

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measuring import Cost, arguments, measured, scratch, spark_session, verdict, write_rows
from lakelock.spark_plugin import LakeTable

SCHEMA = "id string, carrier string, flight int, fare double"
TARGETS_S = {"insert": 0.1, "upsert": 0.125, "merge": 1.0, "sql_merge": 1.0}
FIRST_S = 3.0


def made(spark: SparkSession, folder: str, rows: int) -> LakeTable:
    """A table of so many rows in one file, and a second version of each name in the session."""
    source = spark.read.parquet(write_rows(f"{folder}/source", np.arange(rows), 1)).select("id", "carrier", "flight", "fare")
    table = LakeTable.create(spark, f"{folder}/table", schema=source, key="id")
    table.insert(source)
    return table


def actions(spark: SparkSession, table: LakeTable, rows: int) -> dict[str, Callable[[], object]]:
    """Each call writes other rows: one that is there and one that is new."""
    numbers = count(rows)

    def frame(*ids: int) -> DataFrame:
        return spark.createDataFrame([(f"k{number}", "AA", number % 5000, 1.5) for number in ids], SCHEMA)

    def known() -> int:
        return next(numbers) * 7919 % rows

    def merge() -> None:
        source = frame(known(), next(numbers))
        table.merge(source, "id").when_matched_update_all().when_not_matched_insert_all().execute()

    def sql_merge() -> None:
        frame(known(), next(numbers)).createOrReplaceTempView("changes")
        table.sql(
            f"MERGE INTO lakelock.`{table.path}` t USING changes s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET t.fare = s.fare + t.fare WHEN NOT MATCHED THEN INSERT *"
        )

    return {
        "insert": lambda: table.insert(frame(next(numbers))),
        "upsert": lambda: table.upsert(frame(known(), next(numbers))),
        "delete": lambda: table.delete(frame(known()).select("id")),
        "merge": merge,
        "sql_merge": sql_merge,
        "sql_update": lambda: table.sql(f"UPDATE lakelock.`{table.path}` SET fare = fare + 1 WHERE id = 'k{known()}'"),
        "sql_delete": lambda: table.sql(f"DELETE FROM lakelock.`{table.path}` WHERE id = 'k{known()}'"),
    }


def measure(spark: SparkSession, folder: str, rows: int, repeat: int) -> dict[str, object]:
    found: dict[str, object] = {}
    with made(spark, folder, rows) as table:
        for name, action in actions(spark, table, rows).items():
            first, *later = [measured(action) for _ in range(repeat + 1)]
            found[name] = told(name, first, later)
    return found


def told(name: str, first: Cost, later: list[Cost]) -> dict[str, object]:
    wall_s = statistics.median(cost.wall_s for cost in later)
    values: dict[str, object] = {
        "first_s": round(first.wall_s, 3),
        "wall_s": round(wall_s, 3),
        "least_s": round(min(cost.wall_s for cost in later), 3),
        "cpu_s": round(statistics.median(cost.cpu_s for cost in later), 3),
    }
    if name in TARGETS_S:
        values["target"] = f"{TARGETS_S[name]:g} s: {verdict(wall_s, TARGETS_S[name])}"
    if name.endswith("merge"):
        values["first"] = f"{FIRST_S:g} s: {verdict(first.wall_s, FIRST_S)}"
    return values


def main() -> None:
    args = arguments(__doc__, rows=100_000, repeat=20)
    with scratch() as folder, spark_session(folder) as spark:
        shuffle = spark.conf.get("spark.sql.shuffle.partitions")
        print(f"local[2], spark.sql.shuffle.partitions {shuffle} and all else by default; lakelock's settings by default")
        found = measure(spark, folder, args.rows, args.repeat)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for name, values in found.items():
        print(f"{name:<11}", values)


if __name__ == "__main__":
    main()
