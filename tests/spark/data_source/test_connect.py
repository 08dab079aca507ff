"""Spark Connect: `format("lakelock")` reads and writes through it, and `LakeTable` says that it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import LocalStorage, SystemRuntime, TableProperties, TableSchema, create_table

pytest.importorskip("grpc", reason="needs what Spark Connect needs: pip install 'pyspark[connect]'")

_CLIENT = """
import sys
from pyspark.sql import SparkSession
from lakelock.errors import InputError
from lakelock.spark_plugin import LakeTable

here, there = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
assert "connect" in type(spark).__module__
rows = spark.createDataFrame([("a", 1), ("b", 2)], "id string, v bigint")
for entry in (
    lambda: LakeTable.for_path(spark, here),
    lambda: LakeTable.for_name(spark, "db.name"),
    lambda: LakeTable.create(spark, there + "/new", schema=rows, key="id"),
    lambda: LakeTable.from_parquet(spark, there + "/new", folder=here),
):
    try:
        entry()
    except InputError as error:
        print(error.hint)

def show(path):
    print(sorted(tuple(row) for row in spark.read.format("lakelock").load(path).collect()))

rows.write.format("lakelock").mode("append").save(here)
show(here)
copied = spark.readStream.format("lakelock").load(here).writeStream.format("lakelock").trigger(availableNow=True)
copied.option("checkpointLocation", there + "/checkpoint").start(there + "/table").awaitTermination(120)
show(there + "/table")
spark.sql(f"CREATE TEMPORARY VIEW here USING lakelock OPTIONS (path '{here}')").collect()
rows.write.format("lakelock").mode("append").save(here)
try:
    spark.sql("INSERT OVERWRITE here SELECT id, max(v) FROM here GROUP BY id").collect()
except Exception as error:
    print("the overwrite reads the table that it replaces" in str(error))
rows.write.format("lakelock").mode("overwrite").save(here)
show(here)
spark.stop()
"""


@pytest.mark.in_ci
@pytest.mark.slow
def test_the_data_source_works_on_spark_connect_and_the_table_says_what_to_use(path: str, tmp_path: Path) -> None:
    there = tmp_path / "there"
    schema = TableSchema.from_arrow(pa.schema([("id", pa.string()), ("v", pa.int64())]))
    properties = TableProperties.new("t", ["id"], create_schema=schema.to_avro_json("t", null_first=False))
    for each in (path, str(there / "table")):
        create_table(LocalStorage(each), properties, SystemRuntime())
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, path, str(there)], cwd=tmp_path, env={**os.environ, **python}, capture_output=True,
        text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *hints, rows, copied, refused, replaced = done.stdout.splitlines()[-8:]
    assert len(hints) == 4 and all('df.write.format("lakelock")' in hint for hint in hints)
    assert rows == copied == replaced == "[('a', 1), ('b', 2)]"
    assert refused == "True"
    assert not (there / "new").exists()
