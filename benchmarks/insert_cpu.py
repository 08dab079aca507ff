"""CPU time of LakeTable.insert beside Spark's own Parquet writer writing the same columns, Hudi's five included.

`python -m benchmarks.insert_cpu [--rows 2000000] [--repeat 3] [--json]`; the target is a ratio of at most 0.85.
CPU time is that of the whole process tree: JVM, Python workers, driver.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measuring import alternating, arguments, scratch, show, spark_session, verdict, write_rows
from lakelock.spark_plugin import LakeTable
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY

TARGET = 0.85
INSTANT = "20260101000000000"


def with_meta_columns(df: DataFrame) -> DataFrame:
    """What lakelock adds to each row, computed by Spark: instant, sequence number, key, partition path, file name."""
    task = F.spark_partition_id()
    position = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return df.select(
        F.lit(INSTANT).alias(COMMIT_TIME),
        F.concat_ws("_", F.lit(INSTANT), task, position).alias(COMMIT_SEQNO),
        F.col("id").alias(RECORD_KEY),
        F.lit("").alias(PARTITION_PATH),
        F.concat(F.lit("8a6dfd2c-9c2c-4a3e-a6d5-0dbb4a1e0a77-0_"), task, F.lit(f"-1-0_{INSTANT}.parquet")).alias(FILE_NAME),
        *df.columns,
    )


def compare(spark: SparkSession, folder: str, rows: int, repeat: int) -> dict[str, object]:
    source = write_rows(f"{folder}/source", np.random.default_rng(1).permutation(rows), files=4)
    df, numbers = spark.read.parquet(source), count()
    table = LakeTable.create(spark, f"{folder}/table", schema=df, key="id", order_by="ts")

    def native(codec: str, meta: bool) -> None:
        frame = with_meta_columns(df) if meta else df
        frame.write.option("compression", codec).parquet(f"{folder}/native-{next(numbers)}")

    variants: dict[str, Callable[[], object]] = {
        "insert": partial(table.insert, df),
        "native": partial(native, "snappy", True),
        "native_zstd": partial(native, "zstd", True),
        "native_without_meta": partial(native, "snappy", False),
    }
    found = alternating(variants, repeat, warm_up=1)
    table.close()
    ratio = found["insert"].cpu_s / found["native"].cpu_s
    costs = {f"{name}_{unit}": getattr(cost, unit) for name, cost in found.items() for unit in ("cpu_s", "wall_s")}
    return {
        **costs,
        "ratio": ratio,
        "ratio_to_zstd": found["insert"].cpu_s / found["native_zstd"].cpu_s,
        "ratio_to_rows_without_meta": found["insert"].cpu_s / found["native_without_meta"].cpu_s,
        "target": f"ratio <= {TARGET}: {verdict(ratio, TARGET)}",
    }


def main() -> None:
    given = arguments(__doc__, rows=2_000_000, repeat=3)
    with scratch() as folder, spark_session(folder) as spark:
        show(compare(spark, folder, given.rows, given.repeat), given.json)


if __name__ == "__main__":
    main()
