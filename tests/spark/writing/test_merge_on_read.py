"""Writes of merge-on-read tables by Spark: each sees the rows of log files, and replaces them."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.api import DataFile, LocalStorage, TableIO, TableSchema, read_snapshot, read_timeline
from tests.behaviour.foreign import Peer
from tests.sizes import but
from tests.spark.sparks import since_spark_4

from lakelock.errors import ConflictError, InputError
from lakelock.spark_plugin import LakeTable, snapshot, sql
from lakelock.table.log_files import LogFile

COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64()), ("region", pa.string())])
Rows = dict[str, int]
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def table_with_logs(spark: SparkSession, path: Path) -> tuple[LakeTable, Peer]:
    """Two partitions, of which one has a log file that changes a, deletes b and brings n."""
    table = LakeTable.create(
        spark, path, schema="id string, v bigint, region string", key="id", partition_by="region",
        table_type="MERGE_ON_READ",
    )  # fmt: skip
    table.insert(spark.createDataFrame([(key, 0, "us" if key > "w" else "eu") for key in "abcxyz"], table.schema))
    peer = Peer(LocalStorage(str(path)))
    file = in_eu(peer)
    rows = pa.table([["a", "n"], [1, 1], ["eu", "eu"]], schema=COLUMNS)
    peer.append(file.group, rows, ["b"], columns=TableSchema(COLUMNS))
    assert shown(table.read()) == {"a": 1, "c": 0, "n": 1, "x": 0, "y": 0, "z": 0}
    return table, peer


def in_eu(peer: Peer) -> DataFile:
    (file,) = read_snapshot(TableIO(peer.storage), read_timeline(peer.storage)).in_partition("region=eu")
    return file


def shown(frame: DataFrame) -> Rows:
    found = [(row["id"], row["v"]) for row in frame.collect()]
    assert len(dict(found)) == len(found)
    return dict(found)


def given(table: LakeTable, **values: int) -> DataFrame:
    spark = table.read().sparkSession
    return spark.createDataFrame([(key, v, "us" if key > "w" else "eu") for key, v in values.items()], table.schema)


REST = {"x": 0, "y": 0, "z": 0}
WRITES: dict[str, tuple[Callable[[LakeTable], object], Rows]] = {
    "upsert": (lambda t: t.upsert(given(t, a=2, b=2, n=2, m=2)), {"a": 2, "b": 2, "c": 0, "n": 2, "m": 2, **REST}),
    "delete": (lambda t: t.delete("v = 1 AND id = 'n'"), {"a": 1, "c": 0, **REST}),
    "delete by keys": (lambda t: t.delete(given(t, a=0, b=0)), {"c": 0, "n": 1, **REST}),
    "update": (lambda t: t.update({"v": "v + 10"}, "v = 1 OR id = 'x'"), {"a": 11, "c": 0, "n": 11, **REST, "x": 10}),
    "merge": (
        lambda t: (
            t.merge(given(t, a=5, b=5, x=5), "target.id = source.id AND target.region = source.region")
            .when_matched_update({"v": "target.v + source.v"})
            .when_not_matched_insert_all()
            .execute()
        ),
        {"a": 6, "b": 5, "c": 0, "n": 1, **REST, "x": 5},
    ),
    "merge by a condition": (
        lambda t: t.merge(given(t, a=1, x=1), "target.v = source.v").when_matched_delete("source.id = 'a'").execute(),
        {"c": 0, **REST},
    ),
    "insert": (lambda t: t.insert(given(t, i=3)), {"a": 1, "c": 0, "n": 1, "i": 3, **REST}),
    "overwrite": (lambda t: t.overwrite_partitions(given(t, o=3)), {"o": 3, **REST}),
    "optimize": (lambda t: (t.insert(given(t, i=3)), t.optimize().execute()), {"a": 1, "c": 0, "n": 1, "i": 3, **REST}),
    "sorted": (
        lambda t: (t.insert(given(t, i=3)), t.optimize(sort_by="id").execute()),
        {"a": 1, "c": 0, "n": 1, "i": 3, **REST},
    ),
}


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("write", but(WRITES, ["upsert", "delete", "update", "merge"], WRITES))
def test_writes_see_the_rows_of_log_files(spark: SparkSession, tmp_path: Path, write: str) -> None:
    call, expected = WRITES[write]
    table, peer = table_with_logs(spark, tmp_path / "t")
    call(table)
    assert shown(table.read()) == expected
    assert {commit.action for commit in read_timeline(peer.storage).commits} <= {"deltacommit", "replacecommit"}


def test_a_transaction_reads_what_log_files_say(spark: SparkSession, tmp_path: Path) -> None:
    table, peer = table_with_logs(spark, tmp_path / "t")
    with pytest.raises(ConflictError), table.transaction() as tx:
        assert shown(tx.read("v = 1")) == {"a": 1, "n": 1}
        peer.append(in_eu(peer).group, pa.table([["c"], [1], ["eu"]], schema=COLUMNS))
        tx.upsert(given(table, x=9))
    assert shown(table.read())["c"] == 1


@since_spark_4
def test_hudis_option_makes_such_a_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = spark.createDataFrame([("a", 1, "eu")], "id string, v bigint, region string")
    options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    options["hoodie.datasource.write.operation"] = "insert"
    frame.write.format("lakelock").options(**options).mode("append").save(path)
    assert [commit.action for commit in read_timeline(LocalStorage(path)).commits] == ["deltacommit"]
    assert shown(LakeTable.for_path(spark, path).read()) == {"a": 1}


def test_changes_of_log_files_are_told(spark: SparkSession, tmp_path: Path) -> None:
    table, peer = table_with_logs(spark, tmp_path / "t")
    first, second = (commit for commit in read_timeline(peer.storage).commits)
    assert shown(table.changes(first.requested)) == {"a": 1, "n": 1}
    feed = table.changes(first.requested, feed="commits").collect()
    assert sorted((row["_change_type"], row["id"], row["v"]) for row in feed) == [
        ("delete", "b", 0), ("insert", "n", 1), ("update_postimage", "a", 1), ("update_preimage", "a", 0),
    ]  # fmt: skip
    mine = table.upsert(given(table, a=2, x=2))
    assert shown(table.changes(second.requested)) == {"a": 2, "x": 2}
    assert shown(table.changes(first.requested, until=second.requested)) == {"a": 1, "n": 1}
    table.optimize().execute()
    assert table.changes(mine.instant, feed="net").count() == 0


def test_earlier_states_are_kept_and_restored(spark: SparkSession, tmp_path: Path) -> None:
    table, _ = table_with_logs(spark, tmp_path / "t")
    saved, before = table.upkeep.savepoint("s"), shown(table.read())
    table.delete("v = 1")
    table.upsert(given(table, x=5))
    assert shown(table.read(as_of=saved.instant)) == before
    table.restore("s")
    assert shown(table.read()) == before


def test_compaction_by_statement_and_by_deltas_name(spark: SparkSession, tmp_path: Path) -> None:
    table, peer = table_with_logs(spark, tmp_path / "t")
    found = [row.asDict() for row in sql(spark, f"CALL run_compaction(path => '{tmp_path / 't'}')").collect()]
    assert found and shown(table.read(query_type="read_optimized")) == shown(table.read())
    peer.append(in_eu(peer).group, pa.table([["c"], [7], ["eu"]], schema=COLUMNS))
    assert table.optimize(small_file_bytes=1).executeCompaction().compacted == 1
    assert shown(table.read(query_type="read_optimized"))["c"] == 7
    with pytest.raises(InputError, match="plans no compaction"):
        sql(spark, f"CALL run_compaction(op => 'schedule', path => '{tmp_path / 't'}')")


@since_spark_4
def test_a_stream_reads_and_another_writes(spark: SparkSession, tmp_path: Path) -> None:
    table, _ = table_with_logs(spark, tmp_path / "t")
    other = LakeTable.create(
        spark, str(tmp_path / "o"), schema="id string, v bigint, region string", key="id", table_type="MERGE_ON_READ"
    )

    def copied() -> Rows:
        stream = spark.readStream.format("lakelock").load(str(tmp_path / "t")).writeStream.format("lakelock")
        options = {"checkpointLocation": str(tmp_path / "c"), "hoodie.datasource.write.operation": "insert"}
        query = stream.options(**options).trigger(availableNow=True).start(str(tmp_path / "o"))
        assert query.awaitTermination(60)
        return shown(other.read())

    assert copied() == shown(table.read())
    table.insert(given(table, s=3))
    table.optimize(small_file_bytes=1).execute()
    assert copied() == shown(table.read())
    table.update({"v": "7"}, "id = 's'")
    with pytest.raises(Exception, match="change_feed"):
        copied()


def test_several_tables_are_read_at_one_moment(spark: SparkSession, tmp_path: Path) -> None:
    table, _ = table_with_logs(spark, tmp_path / "t")
    other, _ = table_with_logs(spark, tmp_path / "o")
    shot, before = snapshot(table, other), shown(table.read())
    table.delete("v = 1")
    assert shown(shot[table].read()) == shown(shot[other].read()) == before


SMALL: dict[str, Callable[[LakeTable, DataFrame], object]] = {
    "upsert": lambda t, two: t.upsert(two),
    "update": lambda t, two: t.update({"v": "v + 1"}, "id IN ('k1', 'k2')"),
    "merge": lambda t, two: (
        t.merge(two, "target.id = source.id AND target.region = source.region")
        .when_matched_update({"v": "target.v + source.v"})
        .execute()
    ),
    "delete": lambda t, two: t.delete("id IN ('k1', 'k2')"),
    "delete by keys": lambda t, two: t.delete(two),
}


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("write", but(SMALL, ["update"], SMALL))
def test_small_changes_are_appended(spark: SparkSession, tmp_path: Path, write: str) -> None:
    path = str(tmp_path / "t")
    table = LakeTable.create(
        spark, path, schema="id string, v bigint, region string", key="id", partition_by="region", table_type="MERGE_ON_READ"
    )
    table.insert(spark.createDataFrame([(f"k{number}", 0, "eu") for number in range(50)], table.schema).coalesce(1))
    SMALL[write](table, spark.createDataFrame([("k1", 1, "eu"), ("k2", 1, "eu")], table.schema))
    found = shown(table.read())
    assert {key: found.get(key) for key in ("k0", "k1", "k2")} == {
        "k0": 0,
        **dict.fromkeys(("k1", "k2"), None if "delete" in write else 1),
    }
    assert len([file for file in Path(path).rglob(".*") if LogFile.parse(file.name)]) == 1
    SMALL[write](table, spark.createDataFrame([("k2", 2, "eu")], table.schema))
    assert len(shown(table.read())) == (48 if "delete" in write else 50)


def test_writers_of_different_rows_of_one_file_group_do_not_collide(spark: SparkSession, tmp_path: Path) -> None:
    table = LakeTable.create(spark, tmp_path / "t", schema="id string, v bigint", key="id", table_type="MERGE_ON_READ")
    table.insert(spark.range(100).selectExpr("concat('k', id) as id", "id as v"))

    def rows(key: str, v: int) -> DataFrame:
        return spark.createDataFrame([(key, v)], table.schema)

    apart: list[tuple[Callable[[Any], object], Callable[[], object]]] = [
        (lambda tx: tx.upsert(rows("k1", 500)), lambda: table.upsert(rows("k2", 600))),
        (lambda tx: tx.delete("v = 3"), lambda: table.delete("id = 'k4'")),
        (lambda tx: tx.update({"v": "v + 1000"}, "v = 5"), lambda: table.delete(rows("k6", 0))),
        (lambda tx: tx.update({"v": "v + 1000"}, "v = 7"), lambda: table.update({"v": "v + 2000"}, "v > 7 and v < 90")),
    ]
    for mine, other in apart:
        with table.transaction() as tx:
            mine(tx)
            other()
    found = shown(table.read())
    assert [found[key] for key in ("k1", "k2", "k5", "k7")] == [500, 600, 1005, 1007]
    assert found.keys().isdisjoint({"k3", "k4", "k6"}) and found["k89"] == 2089

    collides: list[tuple[Callable[[Any], object], Callable[[], object]]] = [
        (lambda tx: tx.upsert(rows("k1", 501)), lambda: table.upsert(rows("k1", 601))),
        (lambda tx: tx.delete("v = 601"), lambda: table.delete(rows("k1", 0))),
        (lambda tx: tx.update({"v": "v + 1000"}, "v = 1005"), lambda: table.upsert(rows("k2", 1005))),
        (lambda tx: tx.upsert(rows("k2", 700)), lambda: table.update({"v": "v + 1"})),
    ]
    for mine, other in collides:
        with pytest.raises(ConflictError), table.transaction() as tx:
            mine(tx)
            other()
    found = shown(table.read())
    assert found["k2"] == 1006 and "k1" not in found
