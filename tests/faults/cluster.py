"""A Spark cluster of two executors, each a process with a host name of its own, and writes on it for tests.

`python -m tests.faults.cluster FOLDER` starts a master and two workers, then reads one order a line as JSON, and answers each
with a line. It is Spark's `local-cluster[2,1,1024]` but for the hosts: there both executors are on one host, and Spark
never starts a speculative copy on a host that has the task already.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.faults.attempts import Trouble, troubled
from tests.faults.world import PERSISTENT

from lakelock.errors import LakelockError
from lakelock.spark_plugin import LakeTable, changing
from lakelock.spark_plugin.source_class import LakelockDataSource
from lakelock.spark_plugin.source_sink import BatchSink, TaskDone

HOSTS = ("127.0.0.1", "127.0.0.2")
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "4",
    # A copy of a task is started as soon as another task of the stage has ended and this one has run a moment longer.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
}


def start(folder: Path, more: Mapping[str, str] | None = None) -> SparkSession:
    """Master and workers in one JVM, as `local-cluster` has them; each executor is a process. `more`: Spark conf."""
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    gateway = launch_gateway()
    jvm = gateway.jvm
    conf = jvm.org.apache.spark.SparkConf()
    for key, value in {"spark.master.rest.enabled": "false", "spark.ui.enabled": "false"}.items():
        conf.set(key, value)
    master = jvm.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)._1()
    url = f"spark://{HOSTS[0]}:{master.address().port()}"
    masters = gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = url
    for number, host in enumerate(HOSTS):
        jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, 1024, masters, str(folder / f"worker-{number}"), jvm.scala.Option.apply(number), conf,
            jvm.scala.Option.empty(),
        )  # fmt: skip
    pyspark.SparkContext._ensure_initialized(gateway=gateway)
    builder = SparkSession.builder.master(url).appName("cluster")
    for key, value in {**CONF, **(more or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class TroubledSource(LakelockDataSource):
    """`format("lakelock")` with a trouble in one of the tasks that write."""

    @classmethod
    def name(cls) -> str:
        return "troubled"

    def writer(self, schema: object, overwrite: bool) -> TroubledSink:
        trouble = Trouble(**json.loads(self.options.pop("trouble")))
        sink = TroubledSink(self.options, schema, overwrite)  # type: ignore[arg-type]
        sink.trouble = trouble
        sink.begin()
        return sink


class TroubledSink(BatchSink):
    """A sink, one of whose tasks meets the trouble."""

    trouble: Trouble

    def write(self, iterator: object) -> TaskDone:
        received = list(iterator)  # type: ignore[call-overload]
        return self.trouble.around(lambda: BatchSink.write(self, iter(received)))  # type: ignore[return-value]


def rows(spark: SparkSession, first: int, count: int, partitions: int) -> DataFrame:
    """New rows in `partitions` tasks, each of which has rows of two months."""
    frame = spark.range(first, first + count, 1, partitions)
    month = (F.col("id") % 2 + 1).cast("string")
    return frame.select(F.concat(F.lit("n"), F.col("id")).alias("id"), F.col("id").alias("v"), month.alias("month"))


def perform(spark: SparkSession, order: dict) -> str:
    """One write with one trouble; the instant."""
    trouble, path = Trouble(**order["trouble"]), order["table"]
    if order["way"] == "insert":
        spark.dataSource.register(TroubledSource)
        write = rows(spark, 0, 8, 2).write.format("troubled").mode("append")
        for key, value in PERSISTENT.items():
            write = write.option(key, str(value))
        write.option("trouble", json.dumps(order["trouble"])).save(path)
        return ""
    original = changing.rewrite_stage
    changing.rewrite_stage = troubled(original, trouble)  # type: ignore[attr-defined, assignment]
    try:
        changed = spark.createDataFrame([("a", 10, "1"), ("c", 30, "2")], "id string, v bigint, month string")
        with LakeTable.for_path(spark, path, options=PERSISTENT) as table:
            return table.upsert(changed.union(rows(spark, 0, 8, 2))).instant
    finally:
        changing.rewrite_stage = original  # type: ignore[attr-defined]


def main() -> None:
    spark = start(Path(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            answer = {"outcome": "committed", "instant": perform(spark, json.loads(line))}
        except LakelockError as error:
            answer = {"outcome": error.code.value, "message": str(error)}
        except Exception as error:  # noqa: BLE001 -- the test shall see whatever it is
            answer = {"outcome": "failed", "message": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
