"""Memory of Spark's Python workers in an upsert into one big file group.

`python -m benchmarks.big_group [--rows 2000000] [--json]`: a tenth as many rows as the group has, nine of ten known and
one new. The target for 2 M rows is that no worker reaches 700 MB.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.measuring import WorkerMemory, arguments, measured, scratch, show, spark_session, verdict, write_rows
from benchmarks.upsert import make_table

TARGET_MB = 700


def peaks(spark: SparkSession, folder: str, rows: int) -> dict[str, object]:
    table = make_table(spark, folder, rows, groups=1)
    known, new = rows * 9 // 100, rows // 100
    chosen = np.random.default_rng(7).choice(rows, known, replace=False)
    changes = spark.read.parquet(write_rows(f"{folder}/changes", np.concatenate([chosen, rows + np.arange(new)]), 2, seed=1))
    done = []
    with WorkerMemory() as memory:
        cost = measured(lambda: done.append(table.upsert(changes)))
    table.close()
    assert (done[0].files, done[0].rows_inserted, done[0].rows_updated) == (1, new, known), done
    return {
        "upsert_wall_s": cost.wall_s,
        "upsert_cpu_s": cost.cpu_s,
        "file_mb": done[0].size_bytes / 1e6,
        "worker_peak_mb": memory.peak_mb,
        "target": f"worker_peak_mb <= {TARGET_MB}: {verdict(memory.peak_mb, TARGET_MB)}",
    }


def main() -> None:
    given = arguments(__doc__, rows=2_000_000)
    # Workers that made the table keep their high-water mark, so those of the upsert must be new ones.
    fresh_workers = {"spark.python.worker.reuse": "false"}
    with scratch() as folder, spark_session(folder, **fresh_workers) as spark:
        show(peaks(spark, folder, given.rows), given.json)


if __name__ == "__main__":
    main()
