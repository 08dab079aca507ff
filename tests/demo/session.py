"""A small Spark session for one writer among many on a small machine, and its end.

Starting and warming up a JVM takes longer than a small write. If the environment names a running one, by PySpark's own
`PYSPARK_GATEWAY_PORT` and `PYSPARK_GATEWAY_SECRET`, the writers share it: each is a driver of its own in that JVM, with its own
session, locks, heartbeats and claims, and can be killed without the JVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED_JVM = "PYSPARK_GATEWAY_PORT"
_CONF = {
    "spark.driver.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Short jobs: a quick start and little memory matter more than peak speed.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.worker.reuse": "true",
}


def start_session(name: str, work: Path, confs: Mapping[str, str]) -> SparkSession:
    """Start Spark here, with one core, 768 MB and these confs, or a session in the JVM that the environment names."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SHARED_JVM in os.environ:
        session = session_in_the_shared_jvm()
        for key, value in _CONF.items():
            if key.startswith("spark.sql."):
                session.conf.set(key, value)
        return session
    builder = SparkSession.builder.master("local[1]").appName(name)
    for key, value in {
        **_CONF,
        **confs,
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "spark"),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def end_session(session: SparkSession) -> None:
    """Stop Spark; a shared JVM keeps running for the others."""
    if SHARED_JVM not in os.environ:
        session.stop()


def session_in_the_shared_jvm() -> SparkSession:
    """A session of its own in the JVM that the environment names; this process becomes a driver in it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    shared = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=shared, conf=SparkConf(_jvm=jvm, _jconf=shared.getConf()))
    return SparkSession(context).newSession()
