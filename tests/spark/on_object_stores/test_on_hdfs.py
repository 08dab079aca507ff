"""A table on HDFS: lakelock writes by the name node's web interface, Spark's own client reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.api import ArrowEngine, Coordinator, StorageLocation
from tests.integration.hdfs.secured import secured_cluster
from tests.servers.stores.hdfs import Hdfs, hdfs_server
from tests.spark.on_object_stores.driver import Driver
from tests.spark.on_object_stores.remote import DATA_SOURCE, EVERY_WRITE, SMALL, Remote
from tests.spark.sparks import HAS_DATA_SOURCES, since_spark_4

from lakelock.errors import SettingsError, TableError
from lakelock.spark_plugin import LakeTable

FIRST = [["a", 1, "1"], ["b", 2, "1"], ["c", 3, "2"]]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def driver(spark: SparkSession, hdfs: Hdfs) -> Iterator[Driver]:
    """A session that knows the cluster as `hdfs-site.xml` would tell it."""
    spark.conf.set("dfs.namenode.http-address", f"0.0.0.0:{hdfs.web_port}")
    yield Driver(spark)
    spark.conf.unset("dfs.namenode.http-address")


@pytest.fixture
def table(driver: Driver, hdfs: Hdfs, request: pytest.FixtureRequest) -> str:
    """A table with three rows in two partitions."""
    path = f"{hdfs.root}/lake/{request.node.name}"
    assert driver.create(path=path) == path
    assert driver.write(path=path, how="insert", rows=FIRST) == [3, 0, 0]
    return path


@pytest.mark.in_ci
@pytest.mark.sampled(promise=EVERY_WRITE)
def test_every_write_of_a_table_is_read_by_sparks_own_client(driver: Driver, table: str) -> None:
    assert driver.read(path=table) == FIRST
    assert driver.write(path=table, how="upsert", rows=[["a", 10, "1"], ["d", 4, "3"]]) == [1, 1, 0]
    assert driver.update(path=table, values={"v": "v + 1"}, where="id = 'b'") == 1
    assert driver.merge(path=table, rows=[["c", 30, "2"], ["e", 5, "2"]]) == [1, 1]
    assert driver.delete(path=table, where="id = 'd'") == 1
    now = [["a", 10, "1"], ["b", 3, "1"], ["c", 30, "2"], ["e", 5, "2"]]
    assert driver.read(path=table) == now
    assert driver.opened(path=table, where="month = '2'") < driver.opened(path=table, where="v >= 0")
    *_, (first, _) = driver.history(path=table)
    assert driver.read(path=table, as_of=first) == FIRST
    assert driver.upkeep(path=table) == []
    assert driver.read(path=table) == now


@pytest.mark.in_ci
@pytest.mark.sampled(promise=DATA_SOURCE)
@since_spark_4
def test_the_data_source_reads_appends_and_streams_with_the_session_s_settings(driver: Driver, table: str) -> None:
    driver.register()
    driver.save(path=table, rows=[["d", 4, "2"]])
    assert driver.load(path=table) == [*FIRST, ["d", 4, "2"]] == driver.read(path=table)
    driver.stream(path=table, source=f"{table}-stream", rows=[["e", 5, "3"], ["f", 6, "3"]])
    assert driver.load(path=table, partition="month=3") == [["e", 5, "3"], ["f", 6, "3"]]
    with pytest.raises(TableError, match="is a table already"):
        driver.save(path=table, rows=FIRST, mode="error")
    driver.save(path=f"{table}-new", rows=FIRST, mode="error", key="id", partition_by="month")
    assert driver.load(path=f"{table}-new") == FIRST


@pytest.mark.in_ci
def test_a_path_that_leaves_its_cluster_open_is_where_sparks_readers_look(
    spark: SparkSession, driver: Driver, hdfs: Hdfs, table: str
) -> None:
    path = table.removeprefix(hdfs.root)
    assert not LakeTable.exists(spark, path)
    spark.conf.set("fs.defaultFS", hdfs.root)
    try:
        for each in (path, f"hdfs://{path}"):
            assert driver.write(path=each, how="upsert", rows=FIRST[:1]) == [0, 1, 0]
            assert driver.read(path=each) == FIRST
            assert driver.table(each).sql(f"UPDATE lakelock.`{path}` SET v = v WHERE id = 'a'").rows_updated == 1
        if HAS_DATA_SOURCES:
            driver.register()
            driver.save(path=path, rows=[["d", 4, "2"]])
            assert driver.load(path=table) == driver.load(path=f"hdfs://{path}") == [*FIRST, ["d", 4, "2"]]
        assert not LakeTable.exists(spark, Path(path)), "a pathlib.Path is on this machine"
        with pytest.raises(SettingsError, match="is not absolute"):
            LakeTable.exists(spark, "lake")
    finally:
        spark.conf.unset("fs.defaultFS")
        if HAS_DATA_SOURCES:
            driver.register()  # what is registered knows the session as it is again


@pytest.mark.in_ci
def test_a_writer_without_spark_and_one_with_it_share_a_table(driver: Driver, hdfs: Hdfs, table: str) -> None:
    with Coordinator.open(StorageLocation.of(table, hdfs.options)) as beside:
        ArrowEngine(beside).upsert(ArrowEngine(beside).read().slice(0, 1))
        assert driver.write(path=table, how="upsert", rows=[["a", 2, "1"]]) == [0, 1, 0]
        assert ArrowEngine(beside).read().num_rows == 3


@pytest.mark.long
@pytest.mark.timeout(600)  # the first time on a machine includes an installation
def test_where_there_is_kerberos_executors_write_with_a_token_that_the_driver_s_jvm_got(tmp_path: Path) -> None:
    with secured_cluster(tmp_path) as secured:
        secured.realm.kinit(secured.users, "etl", tmp_path / "tickets")
        java = f"-Djava.security.krb5.conf={secured.realm.configuration}"
        environment = {"HADOOP_CONF_DIR": str(secured.hdfs.folder / "conf"), "KRB5CCNAME": f"FILE:{tmp_path}/tickets"}
        remote = Remote({"spark.driver.extraJavaOptions": java, **SMALL}, environment)  # its Python knows no Kerberos
        try:
            path, options = f"{secured.hdfs.root}/lake/t", {"storage.namenodes": secured.hdfs.web}
            assert remote.create(path=path, options=options) == path
            assert remote.write(path=path, how="insert", rows=FIRST, options=options) == [3, 0, 0]
            assert remote.write(path=path, how="upsert", rows=[["a", 10, "1"]], options=options) == [0, 1, 0]
            assert remote.read(path=path, options=options) == [["a", 10, "1"], *FIRST[1:]]
            assert remote.renewed_tokens() == 1, "the tables of an application share one token, which can be renewed"
        finally:
            remote.close()
