"""One writer as a process of its own: `python -m tests.spark.writer_process '<json>'`.

It starts a JVM, unless `PYSPARK_GATEWAY_PORT` names one that runs: then it is a driver in that one.

Prints one line of JSON last: what became of the operation. Steps at which it dies or stops come in by `LAKELOCK_CRASH_AT`
and `LAKELOCK_STOP_AT`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.crashing import arm
from tests.demo.session import SHARED_JVM, session_in_the_shared_jvm
from tests.spark.preloaded_daemon import __name__ as PRELOADED_DAEMON
from tests.spark.sparks import register_without_confs

from lakelock.errors import LakelockError
from lakelock.spark_plugin import LakeTable

COLUMNS = "id string, v bigint, month string"
ATTEMPTS = 20
GATE_LIMIT_S = 120


def session() -> SparkSession:
    """A session in a JVM of its own, or in the one that runs."""
    if SHARED_JVM in os.environ:
        return session_in_the_shared_jvm()
    made = (
        SparkSession.builder.master("local[2]")
        .appName("writer")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", PRELOADED_DAEMON)
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made


def run(spark: SparkSession, order: dict) -> dict:
    table = LakeTable.for_path(spark, order["table"], options=order["options"], application=order["name"])
    if order.get("grants_everybody"):
        _grant_everybody(table)
    result = perform(table, spark, order["operation"], order["argument"])
    return {"outcome": "committed", "instant": result.instant, "attempts": result.attempts}


def perform(table: LakeTable, spark: SparkSession, operation: str, argument):
    """One write, named and with plain values, so that a test and a process can do the same."""
    if operation == "save":
        return save(spark, argument)
    if operation == "delete_where":
        return table.delete(argument)
    if operation == "update":
        return table.update(*argument)
    if operation == "merge":
        same = "target.id = source.id and target.month = source.month"
        return table.merge(frame(spark, argument), same).when_matched_update_all().when_not_matched_insert_all().execute()
    if operation == "count_up":
        order = {"from": argument["id"], "to": argument["id"], "month": argument["month"]}
        for _ in range(argument["times"]):
            result = _until_committed(lambda: perform(table, spark, "transfer", order))
        return result
    if operation == "transfer":
        with table.transaction() as tx:
            total = tx.read(f"id = '{argument['from']}'").agg(F.sum("v")).collect()[0][0]
            tx.upsert(frame(spark, [[argument["to"], total + 1, argument["month"]]]))
        return tx.result
    return getattr(table, operation)(frame(spark, argument))


def save(spark: SparkSession, order: dict):
    """Append through `format("lakelock")`, in a task that says that it runs and waits until it may go on."""
    register_without_confs(spark)
    rows = frame(spark, order["rows"]).coalesce(1).mapInArrow(gate(order["gate"]), COLUMNS)
    rows.write.format("lakelock").mode("append").options(**order["options"]).save(order["path"])


def gate(folder: str):
    """For `mapInArrow`: makes the file `reached`, and passes the rows on once there is a file `open`."""

    def wait(batches):
        (Path(folder) / "reached").touch()
        until_s = time.monotonic() + GATE_LIMIT_S
        while not (Path(folder) / "open").exists() and time.monotonic() < until_s:
            time.sleep(0.05)
        yield from batches

    return wait


def _until_committed(write):
    """Run a transaction again as long as others are in its way, as its user would."""
    for _ in range(ATTEMPTS):
        try:
            return write()
        except LakelockError as error:
            if not error.retryable:
                raise
            last = error
    raise last


def frame(spark: SparkSession, rows: list[list]) -> DataFrame:
    return spark.createDataFrame([tuple(row) for row in rows], COLUMNS)


def _grant_everybody(table: LakeTable) -> None:
    """A broken lock service: whoever asks is told that it holds the lock."""
    from contextlib import contextmanager

    from lakelock.occ.open_table import OpenTable

    @contextmanager
    def locked(self, instant: str = "", operation: str = ""):
        yield None

    OpenTable.locked = locked  # type: ignore[method-assign]


def answer_of(order: dict) -> dict[str, object]:
    """What became of the operation."""
    spark = session()
    try:
        return run(spark, order)
    except LakelockError as error:
        conflict = error.details.get("conflict")
        return {"outcome": error.code.value, "message": str(error), "conflict": conflict and asdict(conflict)}


def main() -> None:
    arm()
    print(json.dumps(answer_of(json.loads(sys.argv[1])), default=str), flush=True)


if __name__ == "__main__":
    main()
