"""Spark writes tables whose columns another engine has made, or changes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.api import LocalStorage, SystemRuntime, TableIO, TableProperties, create_table, read_snapshot, read_timeline
from tests.behaviour.foreign import Peer
from tests.spark.sparks import register_without_confs, since_spark_4

from lakelock.spark_plugin import LakeTable

pytestmark = pytest.mark.in_ci
PLACE = pa.struct([pa.field("x", pa.int64(), False), pa.field("y", pa.list_(pa.field("element", pa.int64(), False)))])
STRICT = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("at", pa.timestamp("us", tz="UTC"), False),
        pa.field("place", PLACE),
        pa.field("counts", pa.map_(pa.string(), pa.field("value", pa.int64(), False)), False),
    ]
)
DDL = "id long, at timestamp, place struct<x: long, y: array<long>>, counts map<string, long>"


def peer_table(path: str) -> Peer:
    """A table of another engine, with a row."""
    Path(path).mkdir()
    storage = LocalStorage(path)
    create_table(storage, TableProperties.new("t", ["id"]), SystemRuntime())
    peer = Peer(storage)
    peer.insert(pa.Table.from_pylist([row(1, 1), row(2, 2)], schema=STRICT), "")
    return peer


def row(key: int, x: int | None) -> dict[str, object]:
    place = None if x is None else {"x": x, "y": [x]}
    return {"id": key, "at": 0, "place": place, "counts": [("k", key)]}


def test_a_table_with_columns_that_are_not_null_is_written_and_keeps_them(spark: SparkSession, path: str) -> None:
    peer_table(path)
    table = LakeTable.for_path(spark, path)
    new = spark.sql(
        "select id, timestamp_seconds(0) as at, if(id = 3, null, named_struct('x', id * 10, 'y', array(id))) as place, "
        "map('k', id) as counts from range(2, 5)"
    )
    table.upsert(new)
    table.insert(spark.createDataFrame([], DDL).unionByName(new.withColumn("id", new.id + 10)))
    table.delete("id = 1")
    found = {r.id: None if r.place is None else r.place.x for r in table.read().collect()}
    assert found == {2: 20, 3: None, 4: 40, 12: 20, 13: None, 14: 40}
    storage = LocalStorage(path)
    for file in read_snapshot(TableIO(storage), read_timeline(storage)).files:
        columns = pq.read_schema(Path(path) / file.key)
        assert pa.schema([columns.field(name) for name in STRICT.names]).equals(STRICT, check_metadata=False)


@since_spark_4
def test_a_read_of_the_data_source_may_leave_out_columns_that_are_not_null(spark: SparkSession, path: str) -> None:
    register_without_confs(spark)
    peer_table(path)
    read = spark.read.format("lakelock")
    assert sorted(row.id for row in read.schema("id long").load(path).collect()) == [1, 2]
    with pytest.raises(AnalysisException, match=r"(?s)asks for ID, which the table does not have.*did you mean 'id'"):
        read.schema("ID long").load(path).collect()


def test_a_column_that_another_engine_adds_under_a_transaction_keeps_its_values(spark: SparkSession, path: str) -> None:
    peer = peer_table(path)
    table = LakeTable.for_path(spark, path)
    noted = STRICT.append(pa.field("note", pa.string()))
    with table.transaction() as tx:
        tx.insert(tx.read("id = 1").selectExpr("id + 10 as id", "at", "place", "counts"))
        peer.insert(pa.Table.from_pylist([{**row(3, 3), "note": "noted"}], schema=noted), "")
    table.upsert(table.read().where("id = 3").selectExpr("id + 1 as id", "at", "place", "counts", "note"))
    table.delete("id = 4")
    assert sorted((r.id, r.note) for r in table.read().collect()) == [(1, None), (2, None), (3, "noted"), (11, None)]
