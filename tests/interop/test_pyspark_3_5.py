"""lakelock on PySpark 3.5, in the environment of Java Hudi: what works, alone and beside Hudi's bundle, and what it refuses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.interop.shared import ASKED, CHANGED_IN_SPARK, HIVE_STYLE, LOCKS, QUICK
from tests.servers.fetched.java_hudi import JavaHudi, java_hudi, lakelock_for
from tests.servers.jvm import ALL_SHORT_LIVED

from lakelock.testing.service import Service

ROOT = Path(__file__).parents[2]
WITHIN_S = 1200
PASSED_ON = ("PATH", "HOME", "JAVA_HOME", "CI", "FULL", "LAKELOCK_SAMPLE")
MERGES = "tests/spark/writing/test_merges.py"
CORE = {
    "writes": ("tests/spark/writing/test_writes.py",),
    "predicates": ("tests/spark/reading/test_predicates.py",),
    "merges": (
        f"{MERGES}::test_the_first_clause_of_its_kind_whose_condition_holds_applies",
        f"{MERGES}::test_a_merge_does_what_a_loop_over_the_rows_would_do",
    ),
}
"""The core; `tox -e py311-spark35` runs all of tests/spark."""
LEAST = {"writes": 20, "predicates": 30, "merges": 2}

IMPORT = """
import pyspark
try:
    {statement}
except ImportError as error:
    print(type(error).__name__, error)
else:
    print("imported")
"""
# Java Hudi makes the table and reads it; lakelock writes it in between. One session, one lock.
TOGETHER = """
import sys
from pyspark.sql import SparkSession
from lakelock.spark_plugin import LakeTable

jars, path, properties = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
    .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
    .getOrCreate()
)
options = dict(line.strip().split("=", 1) for line in open(properties))
def rows(*values):
    return spark.createDataFrame(values, "id string, v long, region string")
def by_hudi():
    return sorted(tuple(row) for row in spark.read.format("hudi").load(path).select("id", "v", "region").collect())
def by_java(*values):
    rows(*values).write.format("hudi").options(**options).mode("append").save(path)

by_java(("a", 1, "eu"), ("b", 2, "us"))
with LakeTable.for_path(spark, path, config=properties) as table:
    table.upsert(rows(("a", 10, "eu"), ("c", 3, "us")))
    table.delete("id = 'b'")
    assert by_hudi() == [("a", 10, "eu"), ("c", 3, "us")], by_hudi()
    by_java(("c", 30, "us"), ("d", 4, "us"))
    table.update("id = 'd'", {"v": "v + 1"})
    mine = sorted(tuple(row) for row in table.read().select("id", "v", "region").collect())
    assert by_hudi() == mine == [("a", 10, "eu"), ("c", 30, "us"), ("d", 5, "us")], (by_hudi(), mine)
    table.columns.add({"place": "struct<zip: string, floor: int>"})
    table.update({"place": "named_struct('zip', region, 'floor', 1)"}, "id <> 'd'")
    table.columns.rename({"v": "amount", "place.zip": "code"})
    table.columns.drop("place.floor")
    columns = "id string, amount long, region string, place struct<code: string>"
    new = spark.createDataFrame([("c", 31, "us", ("x",)), ("e", 6, "eu", None)], columns)
    new.write.format("hudi").options(**options).mode("append").save(path)
    theirs = spark.read.format("hudi").load(path).select("id", "amount", "place")
    for frame in (theirs, table.read().select("id", "amount", "place")):
        found = [(row.id, row.amount, row.place and row.place.asDict()) for row in frame.orderBy("id").collect()]
        assert found == [("a", 10, {"code": "eu"}), ("c", 31, {"code": "x"}), ("d", 5, None), ("e", 6, None)], found
print("both agree")
"""


@pytest.fixture(scope="module")
def hudi() -> JavaHudi:
    return java_hudi()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    return lakelock_for(tmp_path)


def run(hudi: JavaHudi, installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of that environment, with lakelock as `--py-files` would bring it."""
    python = str(hudi.python)
    env = {
        "PYTHONPATH": str(installed), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python,
        **ALL_SHORT_LIVED,
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
    }  # fmt: skip
    command = [python, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def test_lake_table_is_imported_with_pyspark_3_5(hudi: JavaHudi, installed: Path) -> None:
    said = run(hudi, installed, "-c", IMPORT.format(statement="from lakelock.spark_plugin import LakeTable, WriteResult"))
    assert said.stdout == "imported\n", said


@pytest.mark.parametrize("name", ["register", "LakelockDataSource"])
def test_there_is_no_data_source_with_pyspark_3_5_and_that_is_said_with_what_to_do(
    hudi: JavaHudi, installed: Path, name: str
) -> None:
    said = run(hudi, installed, "-c", IMPORT.format(statement=f"from lakelock.spark_plugin import {name}")).stdout
    assert said.startswith('UnsupportedSpark format("lakelock") needs PySpark 4.0 or newer; PySpark 3.5.')
    assert "LakeTable.for_path(spark, path) works here" in said and "table.insert(df)" in said


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("part", CORE)
def test_the_core_tests_of_the_plugin_pass_on_pyspark_3_5(hudi: JavaHudi, installed: Path, part: str) -> None:
    done = run(hudi, installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE[part])
    assert done.returncode == 0, done.stdout[-6000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) >= LEAST[part]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_IN_SPARK)
def test_lakelock_and_java_hudi_write_one_table_in_one_session_of_spark_3_5(
    hudi: JavaHudi, installed: Path, zookeeper: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("together")
    named = {"hoodie.table.name": "t", "hoodie.table.timeline.timezone": "UTC"}
    options = {**ASKED, **QUICK, **HIVE_STYLE.options(), **named, **LOCKS["zookeeper"](zookeeper, "together")}
    properties = folder / "hudi.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    done = run(hudi, installed, "-c", TOGETHER, ",".join(map(str, hudi.jars)), str(folder / "t"), str(properties))
    assert done.stdout.endswith("both agree\n"), done.stderr[-6000:]
