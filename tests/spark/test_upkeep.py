"""Joining small files with Spark: no row changes, partitions are chosen by condition, and a write makes it yield."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import Event, EventKind, LocalStorage
from tests.behaviour.foreign import Peer

from lakelock.errors import CorruptTableError, InputError
from lakelock.spark_plugin import LakeTable

COLUMNS = "id long, day date, n int, v string, at timestamp, tags array<string>"
META = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path"]


def rows(spark: SparkSession, first: int, count: int = 20) -> DataFrame:
    """Rows in four partitions; every seventh has no value."""
    return spark.range(first, first + count).select(
        "id",
        F.expr("date'2026-01-01' + cast(id % 2 as int)").alias("day"),
        F.when(F.col("id") % 4 < 2, F.lit(None)).otherwise(F.lit(7)).cast("int").alias("n"),
        F.when(F.col("id") % 7 > 0, F.format_string("v%03d", (F.col("id") * 37) % 1000)).alias("v"),
        F.expr("timestamp'2026-07-01 12:00:00' + make_interval(0, 0, 0, 0, 0, 0, id)").alias("at"),
        F.expr("array('x', cast(id as string))").alias("tags"),
    )


def stored(table: LakeTable) -> list[str]:
    return sorted(str(row) for row in table.read(include_meta=True).drop("_hoodie_file_name").collect())


def files_of(table: LakeTable) -> dict[str, int]:
    names = table.read(include_meta=True).groupBy("_hoodie_partition_path").agg(F.countDistinct("_hoodie_file_name"))
    return {row[0]: row[1] for row in names.collect()}


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark, 0), key="id", partition_by=["day", "n"])
    for first in range(0, 60, 20):
        made.insert(rows(spark, first))
    return made


def test_files_of_chosen_partitions_are_joined_and_no_row_changes(spark: SparkSession, table: LakeTable) -> None:
    before, as_of = stored(table), table.history(1).first()["instant"]
    files = files_of(table)
    assert set(files.values()) == {3}
    done = table.optimize("day = date'2026-01-02' and n is null").execute()
    assert (done.files_before, done.files_after) == (3, 1)
    assert repr(done).startswith("OPTIMIZE: 3 files became 1 (")
    done = table.optimize(F.col("day") == F.to_date(F.lit("2026-01-01"))).execute()
    assert (done.files_before, done.files_after) == (6, 2)
    assert sorted(files_of(table).values()) == [1, 1, 1, 3]
    assert stored(table) == before
    assert table.read(as_of=as_of).count() == 60
    with pytest.raises(InputError, match="cannot choose partitions"):
        table.optimize("v = 'v001'").execute()
    table.upsert(rows(spark, 10, 60))
    assert table.read().count() == 70


def test_an_optimize_does_nothing_before_it_is_told_to_and_warns_if_it_never_is(table: LakeTable) -> None:
    commits = table.history().count()
    builder = table.optimize()
    assert repr(builder).startswith("OPTIMIZE: nothing is done yet; next: call .execute()")
    with pytest.raises(AttributeError, match=r"was not executed has no 'files_before'; next: call \.execute\(\)"):
        builder.files_before  # noqa: B018
    with pytest.warns(RuntimeWarning, match="never executed, so no file was joined"):
        del builder
    for columns in ((), ("",), ("colour",)):
        with pytest.raises(InputError):
            table.optimize().executeZOrderBy(*columns)
    with pytest.raises(InputError, match="empty text"):
        table.optimize().where("")
    assert table.history().count() == commits
    first = "day = date'2026-01-01' and n = 7"
    assert table.optimize().where(first).executeCompaction().files_before == 3
    assert table.optimize().where("day = date'2026-01-01' and n is null").executeZOrderBy("v", "id").files_before == 3


def test_rows_are_sorted_so_that_each_new_file_has_its_range(spark: SparkSession, table: LakeTable) -> None:
    before = stored(table)
    size = max(file.stat().st_size for file in Path(table.path.removeprefix("file://")).rglob("*.parquet")) + 1
    done = table.optimize(sort_by="v", small_file_bytes=size, target_file_bytes=size).execute()
    assert (done.files_before, done.files_after) == (12, 8)
    assert stored(table) == before
    ranges = (
        table.read(include_meta=True)
        .groupBy("_hoodie_partition_path", "_hoodie_file_name")
        .agg(F.min("v").alias("least"), F.max("v").alias("greatest"))
        .orderBy("_hoodie_partition_path", "least")
        .collect()
    )
    for one, other in pairwise(ranges):
        assert one[0] != other[0] or one["greatest"] <= other["least"]


def test_an_upsert_during_an_optimize_commits_at_its_first_attempt(spark: SparkSession, path: str, table: LakeTable) -> None:
    results, writers = [], []

    def upsert() -> None:
        with LakeTable.for_path(spark, path) as other:
            results.append(other.upsert(rows(spark, 0).withColumn("v", F.lit("new"))))

    def listen(event: Event) -> None:
        if event.kind is EventKind.CLAIMED and event.operation == "CLUSTER" and not writers:
            writer = threading.Thread(target=upsert)
            writers.append(writer)
            writer.start()
            writer.join()

    with LakeTable.for_path(spark, path, listeners=[listen]) as upkeep:
        done = upkeep.optimize().execute()
    assert [result.attempts for result in results] == [1]
    assert (done.commits, done.yielded) == ([], 12)
    assert table.read().where("v = 'new'").count() == 20
    assert table.optimize().execute().files_before == 12


def test_a_restore_undoes_what_came_after_and_can_be_undone(spark: SparkSession, table: LakeTable) -> None:
    before, good = stored(table), table.history(1).first()["instant"]
    table.upsert(rows(spark, 10, 60).withColumn("v", F.lit("wrong")))
    table.delete("id % 3 = 0")
    bad = table.overwrite_partitions(rows(spark, 0, 1))
    wrong = stored(table)
    done = table.restore(good)
    assert stored(table) == before
    assert repr(done).startswith(f"RESTORE {done.instant}: restored (")
    assert table.history(1).first()["operation"] == "RESTORE"
    assert table.read(as_of=bad.instant).count() == len(wrong)
    table.restore(bad.instant)
    assert stored(table) == wrong
    with pytest.raises(InputError, match="it had no commit then"):
        table.restore("2020-01-01")


def test_vacuum_keeps_what_it_is_asked_to_keep_and_refuses_what_somebody_needs(spark: SparkSession, path: str) -> None:
    LakeTable.create(spark, path, schema=rows(spark, 0), key="id", partition_by=["day", "n"])
    table = LakeTable.for_path(spark, path, options={"clean.readers_s": "0", "upkeep.auto": "false"})
    for _ in range(3):
        table.upsert(rows(spark, 0))
    before, saved = stored(table), table.upkeep.savepoint("kept", as_of=table.history(2).collect()[1]["instant"])
    assert table.vacuum().files == 0
    with pytest.raises(InputError, match=f"the savepoint 'kept' of {saved.instant}") as refused:
        table.vacuum(keep_versions=1)
    assert "lakelock savepoint rm" in refused.value.hint
    assert table.read(as_of=saved.instant).count() == 20
    table.upkeep.delete_savepoint("kept")
    done = table.vacuum(keep_versions=1)
    assert done.files == 8 and stored(table) == before
    with pytest.raises(InputError, match="exclude each other"):
        table.vacuum(keep_versions=1, keep_hours=1)


def test_a_commit_that_another_engine_has_undone_is_named_by_reads_and_taken_out_by_a_repair(
    spark: SparkSession, path: str, table: LakeTable
) -> None:
    before, peer = stored(table), Peer(LocalStorage(table.path.removeprefix("file://")))
    done = table.upsert(rows(spark, 10, 60))
    peer.roll_back(done.instant)
    peer.complete(peer.begin(), [])  # the write for which it has rolled back whatever it found pending
    with pytest.raises(CorruptTableError, match=f"{done.instant}.* was undone by rollback") as caught:
        table.read()
    assert "lakelock repair" in caught.value.hint and "hoodie.clean.failed.writes.policy=LAZY" in caught.value.hint
    with pytest.raises(Exception, match="was undone by rollback"):
        spark.read.format("lakelock").load(path).collect()
    mended = table.upkeep.repair()
    assert [each.instant for each in mended.undone] == [done.instant] and mended.committed is not None
    assert stored(table) == before
    table.upsert(rows(spark, 10, 60))
    assert table.read().count() == 70
