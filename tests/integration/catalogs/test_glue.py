"""Tables named in AWS Glue's data catalog, as moto answers."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from tests.api import Coordinator, StorageLocation
from tests.golden_tables import unpack
from tests.integration.catalogs.catalog_world import NamedTable, orders
from tests.servers.stores.s3 import s3_server

import lakelock
from lakelock.errors import CatalogError, InputError, TableError
from lakelock.settings import Settings

REGION = "us-east-1"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as running:
        yield running


@pytest.fixture
def glue(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of its own, as a person has one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return boto3.client("glue", region_name=REGION, endpoint_url=endpoint)


def named(endpoint: str, path: Path, name: str, **more: Any) -> NamedTable:
    options = {"catalog.type": "glue", "catalog.table": name, "catalog.region": REGION, "catalog.endpoint_url": endpoint}
    return NamedTable.new(path, options, **more)


def shops(glue: Any, database: str, table: str) -> set[str]:
    found = glue.get_partitions(DatabaseName=database, TableName=table)["Partitions"]
    return {each["Values"][0] for each in found}


def test_a_commit_makes_the_entry_and_each_later_one_brings_it_up_to_date(glue: Any, endpoint: str, tmp_path: Path) -> None:
    table = named(endpoint, tmp_path / "orders", "sales.orders")
    engine = table.writer()
    first = engine.insert(orders((1, "berlin"), (2, "paris")))
    found = glue.get_table(DatabaseName="sales", Name="orders")["Table"]
    storage = found["StorageDescriptor"]
    assert table.alerts == []
    assert found["TableType"] == "EXTERNAL_TABLE" and found["PartitionKeys"] == [{"Name": "shop", "Type": "string"}]
    assert storage["Location"] == storage["SerdeInfo"]["Parameters"]["path"] == f"file:{table.path}"
    assert {"Name": "price", "Type": "decimal(10,2)"} in storage["Columns"]
    assert found["Parameters"]["last_commit_time_sync"] == first.instant
    assert found["Parameters"]["spark.sql.sources.provider"] == "hudi"
    assert shops(glue, "sales", "orders") == {"berlin", "paris"}
    last = engine.insert(orders((3, "rome")))
    assert shops(glue, "sales", "orders") == {"berlin", "paris", "rome"}
    engine.restore(first.instant)
    assert shops(glue, "sales", "orders") == {"berlin", "paris"}
    parameters = glue.get_table(DatabaseName="sales", Name="orders")["Table"]["Parameters"]
    assert parameters["last_commit_time_sync"] > last.instant


def test_more_partitions_than_one_request_takes_are_added_and_dropped(glue: Any, endpoint: str, tmp_path: Path) -> None:
    table = named(endpoint, tmp_path / "orders", "sales.many")
    engine = table.writer()
    first = engine.insert(orders((0, "berlin")))
    many = {f"shop {number}" for number in range(130)}
    engine.insert(orders(*((number, shop) for number, shop in enumerate(sorted(many)))))
    assert engine.coordinator.register().added == 0
    pages = glue.get_paginator("get_partitions").paginate(DatabaseName="sales", TableName="many")
    assert {each["Values"][0] for page in pages for each in page["Partitions"]} == many | {"berlin"}
    engine.restore(first.instant)
    assert shops(glue, "sales", "many") == {"berlin"}


def test_what_others_noted_about_the_table_stays(glue: Any, endpoint: str, tmp_path: Path) -> None:
    table = named(endpoint, tmp_path / "orders", "sales.noted")
    table.writer().insert(orders((1, "berlin")))
    found = glue.get_table(DatabaseName="sales", Name="noted")["Table"]
    known = {name: found[name] for name in ("Name", "StorageDescriptor", "PartitionKeys", "TableType")}
    for column in (*known["StorageDescriptor"]["Columns"], *known["PartitionKeys"]):
        column["Comment"] = f"about {column['Name']}"
    noted = {**known, "Description": "the orders", "Parameters": {**found["Parameters"], "team": "sales"}}
    glue.update_table(DatabaseName="sales", TableInput=noted)
    table.writer(**{"write.merge_schema": "true"}).insert(orders((2, "paris"), discount=pa.float64()))
    found = glue.get_table(DatabaseName="sales", Name="noted")["Table"]
    assert found["Description"] == "the orders" and found["Parameters"]["team"] == "sales"
    columns = found["StorageDescriptor"]["Columns"]
    assert columns[-1] == {"Name": "discount", "Type": "double"} and columns[:-1] == known["StorageDescriptor"]["Columns"]
    assert found["PartitionKeys"] == known["PartitionKeys"]


@pytest.mark.parametrize("end", ["", "/"])
def test_an_entry_that_spells_the_path_in_another_way_keeps_it(glue: Any, endpoint: str, tmp_path: Path, end: str) -> None:
    name = f"spelled{len(end)}"
    table = named(endpoint, tmp_path / "orders", f"sales.{name}")
    table.writer().insert(orders((1, "berlin")))
    found = glue.get_table(DatabaseName="sales", Name=name)["Table"]
    known = {name: found[name] for name in ("Name", "StorageDescriptor", "PartitionKeys", "TableType", "Parameters")}
    spelled = f"file://{table.path}{end}"
    glue.update_table(
        DatabaseName="sales", TableInput={**known, "StorageDescriptor": {**found["StorageDescriptor"], "Location": spelled}}
    )
    table.writer().insert(orders((2, "paris")))
    storage = glue.get_table(DatabaseName="sales", Name=name)["Table"]["StorageDescriptor"]
    assert storage["Location"] == storage["SerdeInfo"]["Parameters"]["path"] == spelled and table.alerts == []
    added = glue.get_partition(DatabaseName="sales", TableName=name, PartitionValues=["paris"])["Partition"]
    assert added["StorageDescriptor"]["Location"] == f"file://{table.path}/shop=paris"  # to S3 `//` is another folder


def test_a_commit_stands_while_glue_does_not_answer(endpoint: str, glue: Any, tmp_path: Path) -> None:
    table = named(endpoint, tmp_path / "orders", "sales.patient")
    away = table.writer(**{"catalog.endpoint_url": "http://127.0.0.1:9", "catalog.timeout_s": "1"})
    away.insert(orders((1, "berlin")))
    assert away.read().num_rows == 1
    (alert,) = table.alerts
    assert "the catalog was not told of sales.patient: Glue gave no answer to get_table" in alert
    with pytest.raises(CatalogError, match="gave no answer"):
        away.coordinator.register()
    table.writer().insert(orders((2, "paris")))
    assert shops(glue, "sales", "patient") == {"berlin", "paris"}


def test_a_merge_on_read_table_is_refused_before_the_catalog_is_asked(tmp_path: Path) -> None:
    options = {"catalog.type": "glue", "catalog.region": REGION, "catalog.endpoint_url": "http://127.0.0.1:9"}
    for name in ("java12_mor_events", "java12_version_6_mor"):
        location, settings = StorageLocation.of(unpack(name, tmp_path)), Settings.resolve(options).settings
        refusing = pytest.raises(TableError, match="is a merge-on-read table")
        with Coordinator.open(location, settings) as coordinator, refusing as refused:
            coordinator.register("sales.mor")
        assert "meta_sync" in refused.value.hint


@pytest.mark.parametrize("anew", [{"partition_by": "country"}, {"hive_style": False}])
def test_a_table_that_is_made_anew_at_its_place_has_its_new_folders(
    glue: Any, endpoint: str, tmp_path: Path, anew: Mapping[str, Any]
) -> None:
    name, path = f"anew_{next(iter(anew))}", tmp_path / "orders"
    settings = {"catalog.type": "glue", "catalog.table": f"sales.{name}", "catalog.region": REGION}
    settings |= {"catalog.endpoint_url": endpoint}
    made = partial(lakelock.create, path, schema="id long, shop string, country string", key="id", settings=settings)
    made(partition_by="shop").insert([{"id": 1, "shop": "x", "country": "y"}, {"id": 2, "shop": "y", "country": "y"}])
    shutil.rmtree(path)
    table = made(**{"partition_by": "shop", **anew})
    table.insert([{"id": 1, "shop": "x", "country": "x"}, {"id": 2, "shop": "y", "country": "y"}])
    found = glue.get_partitions(DatabaseName="sales", TableName=name)["Partitions"]
    folder = "{}" if "hive_style" in anew else "country={}"
    assert {each["Values"][0]: each["StorageDescriptor"]["Location"] for each in found} == {
        value: f"file:{path}/{folder.format(value)}" for value in ("x", "y")
    }


def test_partitions_get_the_new_type_of_a_column_that_was_widened(glue: Any, endpoint: str, tmp_path: Path) -> None:
    table = named(endpoint, tmp_path / "orders", "sales.widened")
    engine = table.writer(**{"write.merge_schema": "true"})
    engine.insert(orders(*((number, f"shop {number}") for number in range(130)), n=pa.int32()))
    engine.insert(orders((200, "berlin"), n=pa.int64()))
    pages = glue.get_paginator("get_partitions").paginate(DatabaseName="sales", TableName="widened")
    partitions = [each for page in pages for each in page["Partitions"]]
    assert len(partitions) == 131 and table.alerts == []
    for each in partitions:
        storage = each["StorageDescriptor"]
        assert {"Name": "n", "Type": "bigint"} in storage["Columns"]
        assert storage["Location"] == f"file:{table.path}/shop={each['Values'][0]}"


@pytest.mark.usefixtures("glue")
def test_a_catalog_that_stays_silent_is_waited_for_no_longer_than_the_timeout(endpoint: str, tmp_path: Path) -> None:
    table = named(endpoint, tmp_path / "orders", "sales.silent")
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        engine = table.writer(**{"catalog.endpoint_url": url, "catalog.timeout_s": "4"})
        began_s = time.monotonic()
        with pytest.raises(CatalogError, match="gave no answer to get_table"):
            engine.coordinator.register()
        assert 2 < time.monotonic() - began_s < 6


def test_a_name_that_another_table_has_is_left_alone(endpoint: str, glue: Any, tmp_path: Path) -> None:
    named(endpoint, tmp_path / "orders", "sales.taken").writer().insert(orders((1, "berlin")))
    with pytest.raises(InputError, match="another table"):
        named(endpoint, tmp_path / "others", "sales.taken").writer().coordinator.register()
    assert shops(glue, "sales", "taken") == {"berlin"}
