"""Spark's classes as a JVM has them in memory, in one file (JEP 350): `python -m tests.spark.class_archive` makes it.

A JVM that maps it does half the work of one that loads and verifies some ten thousand classes from jars: 6 s of CPU instead
of 11 for a session and its first query. Making it takes 30 s. A JVM of another release, or with other jars, ignores it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers.jvm import SHORT_LIVED

ARCHIVE = Path(sys.prefix, "spark-classes.jsa")
WITHIN_S = 300
# What most tests do, so that the classes for it are loaded. The JVM writes them down when it ends.
WARM_UP = """
import sys
from pyspark.sql import SparkSession
from lakelock.spark_plugin import LakeTable

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.createDataFrame([("a", 1, "eu"), ("b", 2, "us")], "id string, v long, region string")
with LakeTable.create(spark, sys.argv[1], schema=rows, key="id", partition_by="region") as table:
    table.insert(rows)
    table.upsert(rows.where("id = 'b'"))
    table.delete("id = 'b'")
    table.read().where("region = 'eu'").groupBy("v").count().orderBy("v").collect()
jvm = spark.sparkContext._gateway.proc
spark.stop()
jvm.stdin.close()
jvm.wait()
"""


def jvm_options() -> str:
    """Those of short-lived JVMs, and the archive where there is one; a JVM that it does not fit says nothing."""
    sharing = [f'"-XX:SharedArchiveFile={ARCHIVE}"', "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if ARCHIVE.exists() else []
    return " ".join([*SHORT_LIVED, *sharing])


def make() -> None:
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        made = Path(folder, ARCHIVE.name)
        options = f"{' '.join(SHORT_LIVED)} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        spark = {"PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{options}' pyspark-shell", "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-c", WARM_UP, str(Path(folder, "table"))]
        subprocess.run(command, env={**os.environ, **spark}, cwd=folder, capture_output=True, timeout=WITHIN_S, check=True)
        made.rename(ARCHIVE)


if __name__ == "__main__":
    make()
