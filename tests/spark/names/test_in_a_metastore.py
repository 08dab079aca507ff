"""Tables named in a real Hive metastore: what writers tell it, as Hive's own client reads it back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.api import TableSchema
from tests.integration.catalogs.catalog_world import SCHEMA, NamedTable, orders
from tests.servers.locks.hive_metastore import hive_metastore_server
from tests.servers.locks.metastore_proxy import metastore_proxy
from tests.spark.sparks import since_spark_4

from lakelock.catalogs import TableName, open_catalog
from lakelock.catalogs.base import Described, described
from lakelock.catalogs.syncing import sync
from lakelock.errors import CatalogError, InputError, TableError
from lakelock.spark_plugin import LakeTable, register
from lakelock.table.properties import read_properties
from lakelock.testing.service import Service

pytestmark = [pytest.mark.spark, pytest.mark.in_ci, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with hive_metastore_server(tmp_path_factory.mktemp("metastore")) as running:
        yield running


@dataclass(frozen=True)
class Told:
    """What the metastore holds of a table."""

    columns: dict[str, str]
    keys: dict[str, str]
    parameters: dict[str, str]
    serde: dict[str, str]
    facts: dict[str, str]
    partitions: dict[tuple[str, ...], str]
    columns_of_partitions: set[int]


@pytest.fixture
def hive(spark: SparkSession, metastore: Service) -> Iterator[Any]:
    """Hive's own client, in Spark's JVM."""
    jvm: Any = spark._jvm
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    conf.set("hive.metastore.uris", f"thrift://127.0.0.1:{metastore.port}")
    client = jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
    yield client
    client.close()


def told(hive: Any, database: str, table: str) -> Told:
    found = hive.getTable(database, table)
    storage = found.getSd()
    partitions = list(hive.listPartitions(database, table, -1)) if list(found.getPartitionKeys()) else []
    return Told(
        columns={str(c.getName()): str(c.getType()) for c in storage.getCols()},
        keys={str(c.getName()): str(c.getType()) for c in found.getPartitionKeys()},
        parameters=dict(found.getParameters()),
        serde=dict(storage.getSerdeInfo().getParameters()),
        facts={
            "type": found.getTableType(),
            "location": storage.getLocation(),
            "input": storage.getInputFormat(),
            "output": storage.getOutputFormat(),
            "serde": storage.getSerdeInfo().getSerializationLib(),
        },
        partitions={tuple(p.getValues()): p.getSd().getLocation() for p in partitions},
        columns_of_partitions={len(p.getSd().getCols()) for p in partitions},
    )


def named(metastore: Service, path: Path, name: str, **more: Any) -> NamedTable:
    options = {
        "catalog.type": "hive_metastore",
        "catalog.uris": f"thrift://127.0.0.1:{metastore.port}",
        "catalog.table": name,
    }
    return NamedTable.new(path, options, **more)


def test_a_commit_makes_the_entry_that_hudis_own_sync_makes(
    spark: SparkSession, metastore: Service, hive: Any, tmp_path: Path
) -> None:
    table = named(metastore, tmp_path / "orders", "sales.orders")
    with table.writer().coordinator as coordinator:
        done = table.writer().insert(orders((1, "berlin"), (2, "paris")))
        schema = coordinator.schema()
    found = told(hive, "sales", "orders")
    assert table.alerts == []
    assert found.keys == {"shop": "string"}
    meta = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")
    assert found.columns == {
        **dict.fromkeys(meta, "string"),
        "order_id": "bigint",
        "price": "decimal(10,2)",
        "at": "timestamp",
        "tags": "array<string>",
        "attrs": "struct<colour:string,size:int>",
        "notes": "map<string,double>",
    }
    assert found.facts == {
        "type": "EXTERNAL_TABLE",
        "location": f"file:{table.path}",
        "input": "org.apache.hudi.hadoop.HoodieParquetInputFormat",
        "output": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "serde": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    }
    assert found.serde == {"serialization.format": "1", "path": f"file:{table.path}", "hoodie.query.as.ro.table": "false"}
    assert found.partitions == {(shop,): f"file:{table.path}/shop={shop}" for shop in ("berlin", "paris")}
    assert found.parameters["EXTERNAL"] == "TRUE"
    assert found.parameters["last_commit_time_sync"] == done.instant
    assert found.parameters["last_commit_completion_time_sync"] == done.completion
    assert found.parameters["spark.sql.sources.provider"] == "hudi"
    assert found.parameters["spark.sql.sources.schema.numPartCols"] == "1"
    assert found.parameters["spark.sql.sources.schema.partCol.0"] == "shop"
    spark_columns = columns_for_spark(found)
    assert spark_columns.fieldNames() == [*meta, *(name for name in schema.names if name != "shop"), "shop"]
    with LakeTable.for_path(spark, table.path) as opened:
        assert {field.name: field for field in spark_columns} == {
            field.name: field for field in opened.read(include_meta=True).schema
        }


def columns_for_spark(found: Told) -> StructType:
    parts = range(int(found.parameters["spark.sql.sources.schema.numParts"]))
    return StructType.fromJson(json.loads("".join(found.parameters[f"spark.sql.sources.schema.part.{n}"] for n in parts)))


def test_each_commit_brings_its_partitions_and_takes_away_those_that_are_gone(
    metastore: Service, hive: Any, tmp_path: Path
) -> None:
    table = named(metastore, tmp_path / "orders", "sales.moving")
    engine = table.writer()
    first = engine.insert(orders((1, "berlin")))
    engine.insert(orders((2, "a/b=c %"), (3, "paris")))
    assert set(told(hive, "sales", "moving").partitions) == {("berlin",), ("a/b=c %",), ("paris",)}
    last = engine.restore(first.instant)
    found = told(hive, "sales", "moving")
    assert set(found.partitions) == {("berlin",)}
    assert found.parameters["last_commit_time_sync"] == last.instant
    assert table.alerts == []


def test_new_columns_reach_the_table_and_its_older_partitions_and_what_others_noted_stays(
    metastore: Service, hive: Any, tmp_path: Path
) -> None:
    table = named(metastore, tmp_path / "orders", "sales.growing")
    table.writer().insert(orders((1, "berlin")))
    before = told(hive, "sales", "growing")
    entry = hive.getTable("sales", "growing")
    entry.putToParameters("comment", "the orders")
    entry.setOwner("somebody")
    for column in (*entry.getSd().getCols(), *entry.getPartitionKeys()):
        column.setComment(f"about {column.getName()}")
    hive.alter_table("sales", "growing", entry)
    table.writer(**{"write.merge_schema": "true"}).insert(orders((2, "paris"), discount=pa.float64()))
    found = told(hive, "sales", "growing")
    assert found.columns == {**before.columns, "discount": "double"}
    assert found.columns_of_partitions == {len(found.columns)}
    assert "discount" in columns_for_spark(found).fieldNames()
    entry = hive.getTable("sales", "growing")
    assert found.parameters["comment"] == "the orders" and entry.getOwner() == "somebody"
    comments = {column.getName(): column.getComment() for column in (*entry.getSd().getCols(), *entry.getPartitionKeys())}
    assert comments == {"discount": "", **{name: f"about {name}" for name in (*before.columns, *before.keys)}}


def test_a_commit_stands_while_the_metastore_is_down_and_the_next_one_of_any_writer_tells_it_all(
    metastore: Service, hive: Any, tmp_path: Path
) -> None:
    table = named(metastore, tmp_path / "orders", "sales.patient")
    table.writer().insert(orders((1, "berlin")))
    metastore.stop()
    try:
        engine = table.writer()
        engine.insert(orders((2, "paris")))
        assert engine.read().num_rows == 2
        (alert,) = table.alerts
        assert "the catalog was not told of sales.patient: could not connect to a metastore" in alert
        assert "lakelock register" in alert
        with pytest.raises(CatalogError, match="could not connect"):
            engine.coordinator.register()
    finally:
        metastore.start()
    done = table.writer().insert(orders((3, "rome")))
    hive.reconnect()
    found = told(hive, "sales", "patient")
    assert set(found.partitions) == {("berlin",), ("paris",), ("rome",)}
    assert found.parameters["last_commit_time_sync"] == done.instant


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_call_that_gets_lost_is_made_again_and_does_nothing_twice(
    metastore: Service, hive: Any, tmp_path: Path, what: str
) -> None:
    for call in (
        "get_table_req", "get_database", "create_database", "create_table", "get_partition_names", "add_partitions_req",
        "drop_partition", "alter_table_with_environment_context",
    ):  # fmt: skip
        database = f"{what}_of_{call}"
        table = named(metastore, tmp_path / call, f"{database}.orders")
        with metastore_proxy(metastore.port, metastore.host) as proxy:
            setattr(proxy, f"lose_{what}", [call])
            uri = f"thrift://127.0.0.1:{proxy.port}"
            engine = table.writer(**{"catalog.uris": uri, "hive_metastore.failure_delay_s": "0.01"})
            first = engine.insert(orders((1, "berlin")))
            engine.insert(orders((2, "paris")))
            assert set(told(hive, database, "orders").partitions) == {("berlin",), ("paris",)}
            last = engine.restore(first.instant)
            assert getattr(proxy, f"lose_{what}") == []
        found = told(hive, database, "orders")
        assert set(found.partitions) == {("berlin",)}
        assert found.parameters["last_commit_time_sync"] == last.instant
        assert table.alerts == []


def test_a_writer_that_is_overtaken_while_it_tells_its_commit_tells_the_later_one_too(
    metastore: Service, hive: Any, tmp_path: Path
) -> None:
    """The other's words may have come first and been overwritten by those of the one who was overtaken."""
    table = named(metastore, tmp_path / "orders", "sales.raced")
    silent = NamedTable(table.path, {}).writer()
    silent.insert(orders((1, "berlin")))
    opened = table.writer().coordinator.table
    properties = read_properties(opened.storage)
    others = [orders((3, "rome")), orders((2, "paris"))]

    def look() -> Described:
        snapshot, timeline = opened.shown_now()
        seen = described(f"file:{table.path}", properties, TableSchema(SCHEMA), snapshot.partitions, timeline)
        if others:
            silent.insert(others.pop())
        return seen

    with closing(open_catalog(opened.settings, opened.runtime, "somebody")) as catalog:
        synced = sync(catalog, TableName("sales", "raced"), look)
    assert synced.added == 3 and others == []
    assert set(told(hive, "sales", "raced").partitions) == {("berlin",), ("paris",), ("rome",)}


def test_a_metastore_that_falls_silent_holds_a_commit_up_no_longer_than_the_setting_says(
    metastore: Service, tmp_path: Path
) -> None:
    table = named(metastore, tmp_path / "orders", "sales.silent")
    engine = table.writer(**{"catalog.timeout_s": "1"})
    metastore.pause()
    try:
        began_s = monotonic()
        engine.insert(orders((1, "berlin")))
        took_s = monotonic() - began_s
    finally:
        metastore.resume()
    (alert,) = table.alerts
    assert "gave no answer" in alert or "could not connect" in alert
    assert took_s < 20, "without the bound it is hive_metastore.socket_timeout_s, several times"


def test_a_name_that_another_table_has_is_left_alone(metastore: Service, hive: Any, tmp_path: Path) -> None:
    first = named(metastore, tmp_path / "orders", "sales.taken")
    first.writer().insert(orders((1, "berlin")))
    second = named(metastore, tmp_path / "others", "sales.taken")
    engine = second.writer()
    engine.insert(orders((2, "paris")))
    assert f"sales.taken is another table in the catalog: file:{first.path}" in second.alerts[0]
    with pytest.raises(InputError, match="another table"):
        engine.coordinator.register()
    found = told(hive, "sales", "taken")
    assert found.facts["location"] == f"file:{first.path}" and set(found.partitions) == {("berlin",)}


def test_a_table_without_partitions_has_its_columns_and_its_newest_commit(
    metastore: Service, hive: Any, tmp_path: Path
) -> None:
    table = named(metastore, tmp_path / "orders", "sales.flat", partition_by=())
    done = table.writer().insert(orders((1, "berlin")))
    found = told(hive, "sales", "flat")
    assert found.keys == {} and found.partitions == {} and "shop" in found.columns
    assert found.parameters["last_commit_time_sync"] == done.instant
    assert "spark.sql.sources.schema.numPartCols" not in found.parameters


def test_a_table_is_registered_and_opened_by_its_name_in_spark(
    spark: SparkSession, metastore: Service, hive: Any, path: str
) -> None:
    rows = spark.createDataFrame([(1, "berlin"), (2, "paris")], "id long, shop string")
    options = {"catalog.type": "hive_metastore", "catalog.uris": f"thrift://127.0.0.1:{metastore.port}"}
    with LakeTable.create(spark, path, schema=rows, key="id", partition_by="shop", options=options) as table:
        table.insert(rows)
        assert str(table.register("shops.daily")).startswith("shops.daily registered as of")
        table.insert(rows.selectExpr("id + 2 as id", "'rome' as shop"))
    assert set(told(hive, "shops", "daily").partitions) == {("berlin",), ("paris",), ("rome",)}
    with LakeTable.for_name(spark, "shops.daily", options=options) as named_table:
        assert named_table.path == table.path and named_table.read().count() == 4
        named_table.insert(rows.selectExpr("id + 4 as id", "'oslo' as shop"))
    assert ("oslo",) in told(hive, "shops", "daily").partitions
    with pytest.raises(TableError, match="no table shops.nightly"):
        LakeTable.for_name(spark, "shops.nightly", options=options)


@since_spark_4
def test_a_write_by_format_lakelock_tells_the_catalog_too(
    spark: SparkSession, metastore: Service, hive: Any, tmp_path: Path
) -> None:
    register(spark)
    rows = spark.range(1, 2, numPartitions=1).selectExpr("id", "'berlin' as shop")
    made = rows.write.format("lakelock").option("key", "id").partitionBy("shop")
    options = {"catalog.type": "hive_metastore", "catalog.uris": f"thrift://127.0.0.1:{metastore.port}"}
    made.options(**options, **{"catalog.table": "shops.sourced"}).mode("append").save(str(tmp_path / "orders"))
    assert set(told(hive, "shops", "sourced").partitions) == {("berlin",)}


def test_a_name_in_the_sessions_own_catalog_is_opened_whatever_its_format(spark: SparkSession, path: str) -> None:
    rows = spark.createDataFrame([(1,)], "id long")
    LakeTable.create(spark, path, schema=rows, key="id").insert(rows)
    spark.sql(f"CREATE TABLE named_in_session (id long) USING parquet LOCATION '{path}'")
    try:
        assert LakeTable.for_name(spark, "named_in_session").read().count() == 1
    finally:
        spark.sql("DROP TABLE named_in_session")
    with pytest.raises(TableError, match="no table nowhere.to_be_found"):
        LakeTable.for_name(spark, "nowhere.to_be_found")


def test_the_python_of_the_page_about_names_runs(spark: SparkSession, metastore: Service, hive: Any, tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "howto-names.md"
    (block,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    here = {"/tmp/names": str(tmp_path), "thrift://metastore:9083": f"thrift://127.0.0.1:{metastore.port}"}
    for written, meant in {**here, "sales.orders": "page.orders"}.items():
        block = block.replace(written, meant)
    exec(compile(block, page.name, "exec"), {})
    assert set(told(hive, "page", "orders").partitions) == {("berlin",), ("paris",)}
