"""A Spark driver with Hadoop's client of an object store, as a process: `python -m tests.spark.on_object_stores.driver CONF`.

Spark takes jars only when its JVM starts, and all other tests of a process share a JVM without these. Reads commands from
stdin, one JSON object a line: the name of a function here (`do`) and its arguments. Answers each with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.crashing import arm

from lakelock.errors import LakelockError
from lakelock.spark_plugin import LakeTable
from lakelock.spark_plugin.hadoop import TOKENS

COLUMNS = "id string, v long, month string"


class Driver:
    """What a test may ask for. Rows are lists of id, v and month."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def frame(self, rows: list[list[object]]) -> DataFrame:
        return self.spark.createDataFrame([tuple(row) for row in rows], COLUMNS)

    def table(self, path: str, options: dict[str, object] | None = None) -> LakeTable:
        return LakeTable.for_path(self.spark, path, options=options)

    def create(self, path: str, options: dict[str, object] | None = None) -> str:
        frame = self.frame([])
        return LakeTable.create(self.spark, path, schema=frame, key="id", partition_by="month", options=options).path

    def write(self, path: str, how: str, rows: list[list[object]], options: dict[str, object] | None = None) -> list[int]:
        done = getattr(self.table(path, options), how)(self.frame(rows))
        return [done.rows_inserted, done.rows_updated, done.rows_deleted]

    def delete(self, path: str, where: str) -> int:
        return self.table(path).delete(where).rows_deleted

    def update(self, path: str, values: dict[str, str], where: str) -> int:
        return self.table(path).update(where, values).rows_updated

    def merge(self, path: str, rows: list[list[object]]) -> list[int]:
        same = "target.id = source.id and target.month = source.month"
        merged = (
            self.table(path).merge(self.frame(rows), same).when_matched_update_all().when_not_matched_insert_all().execute()
        )
        return [merged.rows_inserted, merged.rows_updated]

    def move(self, path: str, old: str, new: list[object]) -> str:
        """A transaction that reads a row, deletes it and inserts another one with what was read."""
        with self.table(path).transaction() as tx:
            (row,) = tx.read(f"id = '{old}'").collect()
            tx.delete(f"id = '{old}'")
            tx.insert(self.frame([[new[0], row.v, new[1]]]))
        return str(tx.result.operation)

    def read(self, path: str, where: str | None = None, as_of: str | None = None, options: Any = None) -> list[list[object]]:
        return sorted(list(row) for row in self.table(path, options).read(where, as_of=as_of).collect())

    def opened(self, path: str, where: str) -> int:
        """How many files a read with this condition opens."""
        return len(self.table(path).read(where).inputFiles())

    def changes(self, path: str, since: str) -> list[list[object]]:
        return sorted([row.id, row.v] for row in self.table(path).changes(since).collect())

    def history(self, path: str) -> list[list[str]]:
        return [[row.instant, row.operation] for row in self.table(path).history().collect()]

    def upkeep(self, path: str) -> list[str]:
        table = self.table(path)
        table.optimize().execute()
        return [str(problem) for problem in table.upkeep().problems]

    def register(self) -> None:
        from lakelock.spark_plugin import register

        register(self.spark)

    def save(self, path: str, rows: list[list[object]], mode: str = "append", **options: str) -> None:
        self.frame(rows).coalesce(1).write.format("lakelock").options(**options).mode(mode).save(path)

    def load(self, path: str, **options: str) -> list[list[object]]:
        return sorted(list(row) for row in self.spark.read.format("lakelock").options(**options).load(path).collect())

    def stream(self, path: str, source: str, rows: list[list[object]]) -> None:
        """Stream files of rows into the table, with the checkpoint of the stream on S3, too."""
        for number, row in enumerate(rows):
            self.frame([row]).write.mode("overwrite").parquet(f"{source}/in/{number}")
        frame = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(f"{source}/in/*")
        writer = frame.writeStream.format("lakelock").option("checkpointLocation", f"{source}/checkpoint")
        writer.trigger(availableNow=True).start(path).awaitTermination(200)

    def renewed_tokens(self) -> int:
        """Renew what `LakeTable` got from a cluster with Kerberos; how many tokens there are."""
        TOKENS.renew()
        return len(TOKENS)

    def hadoop(self, name: str) -> str | None:
        """A setting of the application's Hadoop configuration."""
        configuration: Any = self.spark.sparkContext._jsc.hadoopConfiguration()
        found = configuration.get(name)
        return None if found is None else str(found)


def answer_of(do: Callable[..., object], arguments: dict[str, Any]) -> dict[str, object]:
    try:
        return {"value": do(**arguments)}
    except LakelockError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:  # noqa: BLE001 whatever it is, the test hears of it
        return {"error": type(error).__name__, "message": str(error)[:3000]}


def session(conf: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("on-object-store")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> None:
    arm()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else writes to stdout must not look like an answer
    driver = Driver(session(json.loads(sys.argv[1])))
    answers.write(json.dumps({"value": "ready"}) + "\n")
    for line in sys.stdin:
        order = json.loads(line)
        answers.write(json.dumps(answer_of(getattr(driver, order.pop("do")), order), default=str) + "\n")
    driver.spark.stop()


if __name__ == "__main__":
    main()
