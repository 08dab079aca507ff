"""Where Spark has no file system for a table's path that is said before any work, with the jars and settings it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.api import StorageLocation
from tests.servers import S3_OPTIONS, s3_server
from tests.servers.stores.azure import azure_server
from tests.servers.stores.gcs import gcs_server
from tests.sizes import in_ci
from tests.spark.sparks import register_without_confs, since_spark_4

from lakelock.errors import SettingsError
from lakelock.spark_plugin import LakeTable

COLUMNS = "id long, v long"


def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 10)], COLUMNS)


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, object]]:
    """Settings under which lakelock itself reaches an S3."""
    pytest.importorskip("moto")
    with s3_server() as endpoint:
        yield {f"storage.{key}": value for key, value in {**S3_OPTIONS, "endpoint": endpoint}.items()}


def hadoop(spark: SparkSession) -> str:
    return str(spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion())  # type: ignore[union-attr]


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_table_on_s3_is_not_made_where_spark_could_not_read_it(
    spark: SparkSession, options: dict[str, object], scheme: str
) -> None:
    with pytest.raises(SettingsError, match=r"Spark cannot read s3a: paths, so it cannot read the table s3://lake/t") as caught:
        LakeTable.create(spark, f"{scheme}://lake/t", schema=rows(spark), key="id", options=options)
    assert "S3AFileSystem not found" in caught.value.message
    assert f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop(spark)};" in caught.value.hint
    assert "spark.hadoop.fs.s3a.access.key" in caught.value.hint
    storage = StorageLocation.of("s3://lake/t", {k.removeprefix("storage."): str(v) for k, v in options.items()}).open()
    assert list(storage.list("")) == []
    with pytest.raises(SettingsError, match="S3AFileSystem not found"):
        LakeTable.for_path(spark, f"{scheme}://lake/t", options=options)


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("gs://lake/t", ["cannot read gs: paths", "spark.jars.packages=", "spark.hadoop.fs.gs.auth."]),
        (
            "abfss://c@account.dfs.core.windows.net/t",
            ["cannot read abfss: paths", "org.apache.hadoop:hadoop-azure:"],
        ),
        ("az://lake/t", ["has no az: paths", "abfss://CONTAINER@ACCOUNT.dfs.", "org.apache.hadoop:hadoop-azure:"]),
        ("azure://lake/t", ["has no azure: paths, so it cannot read the table az://lake/t", "abfss://CONTAINER@ACCOUNT.dfs."]),
    ],
)
def test_each_kind_of_storage_has_the_jars_that_it_needs_named(spark: SparkSession, path: str, needed: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        LakeTable.for_path(spark, path)
    assert all(part in str(caught.value) for part in needed)


@pytest.mark.parametrize(("scheme", "configured"), [("s3", "s3a"), ("s3a", "s3a"), ("s3", "s3"), ("gs", "gs")])
def test_a_file_system_that_the_session_has_is_enough(spark: SparkSession, scheme: str, configured: str) -> None:
    # Any class will do, for this is asked before any table is.
    from lakelock.spark_plugin.hadoop import spark_path

    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    key = f"fs.{configured}.impl"
    before = configuration.get(key)
    configuration.set(key, "org.apache.hadoop.fs.LocalFileSystem")
    try:
        assert spark_path(spark, f"{scheme}://lake/t/", f"{scheme}://lake/t") == f"{configured}://lake/t"
    finally:
        configuration.set(key, before) if before else configuration.unset(key)


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Settings under which lakelock reaches Azure's emulator."""
    with azure_server(tmp_path_factory.mktemp("azurite")) as found:
        yield {f"storage.{key}": value for key, value in found.items()}


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Settings under which lakelock reaches a server of Google's API."""
    with gcs_server(tmp_path_factory.mktemp("gcs")) as server:
        yield {f"storage.{key}": value for key, value in server.options.items()}


@since_spark_4
@pytest.mark.parametrize(
    ("settings", "uri"), [("options", "s3://lake/d"), *in_ci(("azure", "az://lake/d"), ("gcs", "gs://lake/d"))]
)
def test_the_data_source_needs_no_file_system_of_spark(
    spark: SparkSession, request: pytest.FixtureRequest, settings: str, uri: str
) -> None:
    options: dict[str, object] = request.getfixturevalue(settings)
    import pyarrow as pa
    from tests.api import SystemRuntime, TableProperties, TableSchema, create_table

    schema = TableSchema(pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    properties = TableProperties.new("d", ["id"], [], None, create_schema=schema.to_avro_json("d", null_first=False))
    storage = StorageLocation.of(uri, {k.removeprefix("storage."): str(v) for k, v in options.items()})
    create_table(storage.open(), properties, SystemRuntime())
    register_without_confs(spark)
    rows(spark).write.format("lakelock").options(**options).mode("append").save(uri)
    found = spark.read.format("lakelock").options(**options).load(uri)
    assert [tuple(row) for row in found.collect()] == [(1, 10)]
