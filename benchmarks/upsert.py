"""Wall time of LakeTable.upsert beside the usual way in plain Spark: full outer join, write everything anew.

`python -m benchmarks.upsert [--rows 2000000] [--repeat 3] [--json]`: a tenth as many rows as the table has, nine of ten
known and one new, over all 16 file groups. The target is 2 s where the join takes 7, a ratio of at most 2/7, when both
write the same columns, Hudi's five included. A join that drops those five, and with them the table, is shown as well.
"""

from __future__ import annotations

from itertools import count

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measuring import alternating, arguments, scratch, show, spark_session, verdict, write_rows
from lakelock.spark_plugin import LakeTable
from lakelock.table.schema import META_COLUMNS, RECORD_KEY

TARGET = 2 / 7
FILE_GROUPS = 16


def make_table(spark: SparkSession, folder: str, table_rows: int, groups: int) -> LakeTable:
    """A table of so many rows in so many file groups of equal size; keys are spread over all of them."""
    ids = np.random.default_rng(1).permutation(table_rows)
    df = spark.read.parquet(write_rows(f"{folder}/source", ids, files=min(4, groups)))
    with LakeTable.create(
        spark, f"{folder}/table", schema=df, key="id", options={"write.target_file_rows": -(-table_rows // groups)}
    ) as table:
        made = table.insert(df.coalesce(1) if groups == 1 else df)
    assert made.files == groups, f"{made.files} file groups instead of {groups}"
    return LakeTable.for_path(spark, f"{folder}/table", options={"write.target_file_rows": 2 * table_rows})


def joined(stored: DataFrame, changes: DataFrame, instant: str) -> DataFrame:
    """Every row in its newest version; with Hudi's five columns where `stored` has them."""
    columns = [name for name in stored.columns if name not in META_COLUMNS]
    old, new = stored.alias("old"), changes.alias("new")
    changed = F.col("new.id").isNotNull()
    stamps: list[Column] = []
    if RECORD_KEY in stored.columns:
        number = F.concat_ws("_", F.lit(instant), F.spark_partition_id(), F.monotonically_increasing_id())
        fresh = [F.lit(instant), number, F.col("new.id"), F.lit(""), F.lit(f"group-0_0-0-0_{instant}.parquet")]
        stamps = [
            F.when(changed, value).otherwise(F.col(f"old.{name}")).alias(name)
            for name, value in zip(META_COLUMNS, fresh, strict=True)
        ]
    merged = [F.when(changed, F.col(f"new.{name}")).otherwise(F.col(f"old.{name}")).alias(name) for name in columns]
    return old.join(new, F.col("old.id") == F.col("new.id"), "full_outer").select(*stamps, *merged)


def compare(spark: SparkSession, folder: str, table_rows: int, repeat: int) -> dict[str, object]:
    table = make_table(spark, folder, table_rows, FILE_GROUPS)
    numbers = count()
    known, new = table_rows * 9 // 100, table_rows // 100
    snapshot, snapshot_with_meta = table.read(), table.read(include_meta=True)

    def changes(number: int) -> DataFrame:
        chosen = np.random.default_rng(number).choice(table_rows, known, replace=False)
        ids = np.concatenate([chosen, table_rows + number * new + np.arange(new)])
        return spark.read.parquet(write_rows(f"{folder}/changes-{number}", ids, 2, seed=100 + number))

    frames = [changes(number) for number in range(repeat + 2)]
    rounds = iter(frames)
    files: list[int] = []

    def upsert() -> None:
        done = table.upsert(next(rounds))
        files.append(done.files)
        assert (done.rows_inserted, done.rows_updated) == (new, known), done

    def join(stored: DataFrame) -> None:
        joined(stored, frames[0], "20260102000000000").write.parquet(f"{folder}/joined-{next(numbers)}")

    variants = {"upsert": upsert, "join": lambda: join(snapshot_with_meta), "join_without_meta": lambda: join(snapshot)}
    found = alternating(variants, repeat, warm_up=2)
    table.close()
    ratio = found["upsert"].wall_s / found["join"].wall_s
    costs = {f"{name}_{unit}": getattr(cost, unit) for name, cost in found.items() for unit in ("wall_s", "cpu_s")}
    return {
        **costs,
        "files_written": max(files),
        "ratio": ratio,
        "ratio_of_cpu": found["upsert"].cpu_s / found["join"].cpu_s,
        "ratio_to_join_without_meta": found["upsert"].wall_s / found["join_without_meta"].wall_s,
        "target": f"ratio <= {TARGET:.2f}: {verdict(ratio, TARGET)}",
    }


def main() -> None:
    given = arguments(__doc__, rows=2_000_000, repeat=3)
    with scratch() as folder, spark_session(folder) as spark:
        show(compare(spark, folder, given.rows, given.repeat), given.json)


if __name__ == "__main__":
    main()
