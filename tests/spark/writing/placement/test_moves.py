"""In a table with index="global" a key is looked up in every partition, and its row moves to that of its newest version."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from pyspark.sql import DataFrame, SparkSession
from tests.api import ConflictRule
from tests.spark.without_jobs import fill

from lakelock.errors import ConflictError, DuplicateKeyError, InputError, SchemaError, TableError
from lakelock.spark_plugin import LakeTable, lookup_stages

COLUMNS = "id long, p string, v long, ts long"
ONCE = {"retry.attempts": 1}

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(table: LakeTable) -> list[tuple[object, ...]]:
    """The rows; each is in the folder that its partition column names."""
    found = table.read(include_meta=True).collect()
    assert all(row["_hoodie_partition_path"] == f"p={row['p']}" for row in found)
    return sorted((row["id"], row["p"], row["v"], row["ts"]) for row in found)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", index="global")
    fill(made, (1, "a", 10, 1), (2, "a", 20, 1), (3, "b", 30, 1))
    return made


def opened(spark: SparkSession, table: LakeTable, **options: object) -> LakeTable:
    return LakeTable.for_path(spark, table.path, options=options, application="another")


def test_an_upsert_updates_moves_and_inserts_in_one_commit(spark: SparkSession, table: LakeTable) -> None:
    assert table.detail().collect()[0]["index"] == "global"
    (before,) = {row["instant"] for row in table.history().collect()}
    result = table.upsert(rows(spark, (1, "b", 11, 2), (2, "a", 21, 2), (3, "c", 31, 2), (4, "c", 41, 2)))
    assert content(table) == [(1, "b", 11, 2), (2, "a", 21, 2), (3, "c", 31, 2), (4, "c", 41, 2)]
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (3, 1, 2)
    batches = HudiTableBuilder.from_base_uri(table.path).build().read()
    theirs = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    assert sorted(zip(*theirs.select(["id", "p", "v", "ts"]).to_pydict().values(), strict=True)) == content(table)
    told = table.changes(since=before, feed="commits").collect()
    assert sorted((row["_change_type"], row["id"], row["p"]) for row in told) == [
        ("delete", 1, "a"), ("delete", 3, "b"), ("insert", 1, "b"), ("insert", 3, "c"), ("insert", 4, "c"),
        ("update_postimage", 2, "a"), ("update_preimage", 2, "a"),
    ]  # fmt: skip


@pytest.mark.in_ci
def test_many_keys_are_looked_up_by_the_executors(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_stages, "FEW_KEYS", 0)
    table.upsert(rows(spark, (1, "b", 11, 2), (4, "a", 41, 2)))
    assert content(table) == [(1, "b", 11, 2), (2, "a", 20, 1), (3, "b", 30, 1), (4, "a", 41, 2)]
    other = opened(spark, table)
    with pytest.raises(ConflictError) as lost, table.transaction() as tx:
        tx.upsert(rows(spark, (7, "a", 1, 1)))
        other.upsert(rows(spark, (7, "b", 2, 2)))
    assert lost.value.conflict.rule is ConflictRule.KEY


def test_a_delete_by_keys_needs_no_partition(spark: SparkSession, table: LakeTable) -> None:
    result = table.delete(spark.createDataFrame([(1,), (3,), (3,), (9,)], "id long"))
    assert result.rows_deleted == 2
    assert content(table) == [(2, "a", 20, 1)]


@pytest.mark.in_ci
def test_of_several_versions_of_a_key_the_newest_wins_wherever_they_are(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", order_by="ts", index="global")
    table.upsert(rows(spark, (1, "a", 10, 5), (2, "a", 20, 5), (3, "a", 30, 5), (4, "a", 40, None)))
    newer = [(3, "b", 31, 6), (3, "c", 32, 7), (4, "b", 41, None), (5, "b", 50, 1)]
    table.upsert(rows(spark, (1, "b", 11, 4), (2, "b", 21, 5), *newer))
    found = {row["id"]: (row["p"], row["v"]) for row in table.read().collect()}
    assert found == {1: ("a", 10), 2: ("b", 21), 3: ("c", 32), 4: ("b", 41), 5: ("b", 50)}


@pytest.mark.in_ci
def test_two_rows_of_a_key_that_are_as_new_are_an_error_in_whatever_partitions(spark: SparkSession, table: LakeTable) -> None:
    twice = rows(spark, (1, "a", 11, 2), (1, "b", 12, 2))
    with pytest.raises(DuplicateKeyError, match="same key, in one partition or several: 1\n"):
        table.upsert(twice)
    table.upsert(twice, duplicates="any")
    assert len(content(table)) == 3


@pytest.mark.in_ci
def test_a_row_that_moves_takes_the_columns_with_it_that_its_new_version_lacks(spark: SparkSession, table: LakeTable) -> None:
    table.upsert(rows(spark, (1, "b", 11, 2), (9, "b", 90, 2)).drop("v"), missing_columns="keep")
    found = table.read().where("ts = 2").orderBy("id").select("id", "p", "v").collect()
    assert found == [(1, "b", 10), (9, "b", None)]
    parts = LakeTable.create(
        spark, f"{table.path}-parts", schema=spark.createDataFrame([], "id long, p string, s struct<a: int, b: int>"),
        key="id", partition_by="p", index="global",
    )  # fmt: skip
    with pytest.raises(SchemaError, match=r"whole columns, and the rows lack s\.b"):
        parts.upsert(spark.createDataFrame([], "id long, p string, s struct<a: int>"), missing_columns="keep")


def test_of_two_who_move_or_insert_a_key_the_later_loses_or_is_redone(spark: SparkSession, table: LakeTable) -> None:
    other = opened(spark, table)
    with pytest.raises(ConflictError) as moved, table.transaction() as tx:
        other.upsert(rows(spark, (1, "c", 12, 2)))
        tx.upsert(rows(spark, (1, "b", 11, 2)))
    assert moved.value.conflict.rule is ConflictRule.FILE_GROUP and moved.value.conflict.early
    with pytest.raises(ConflictError) as inserted, table.transaction() as tx:
        tx.upsert(rows(spark, (7, "a", 71, 2)))
        other.upsert(rows(spark, (7, "b", 72, 2)))
    assert inserted.value.conflict.rule is ConflictRule.KEY

    attempts: list[str] = []

    def move_beside_another(tx) -> None:
        attempts.append(tx.instant)
        tx.upsert(rows(spark, (8, "d", 81, 2)))
        if len(attempts) == 1:
            somebody.submit(other.upsert, rows(spark, (8, "e", 82, 2))).result()

    with ThreadPoolExecutor(1) as somebody:
        assert table.run(move_beside_another).attempts == 2
    assert content(table) == [(1, "c", 12, 2), (2, "a", 20, 1), (3, "b", 30, 1), (7, "b", 72, 2), (8, "d", 81, 2)]


@pytest.mark.in_ci
def test_a_writer_of_the_old_row_and_its_mover_collide(spark: SparkSession, table: LakeTable) -> None:
    other = opened(spark, table, **ONCE)
    writes: list[Callable[[], object]] = [
        lambda: other.update({"v": "v + 1"}, "id = 1"),
        lambda: other.upsert(rows(spark, (1, "a", 12, 2))),
        lambda: other.delete("id = 1"),
    ]
    for write in writes:
        before = content(table)
        with pytest.raises(ConflictError), table.transaction() as tx:
            tx.upsert(rows(spark, (1, "b", 11, 2)))
            with pytest.raises(ConflictError) as early:
                write()
            assert early.value.conflict.early  # the mover has the claim of the old row's file group
            raise early.value
        assert content(table) == before
        with pytest.raises(ConflictError), table.transaction() as tx:
            tx.read("id = 2")
            write()
            tx.upsert(rows(spark, (1, "b", 11, 2)))
        assert content(table) != before


@pytest.mark.long
def test_movers_at_once_leave_what_a_replay_in_the_order_of_their_commits_gives(spark: SparkSession, table: LakeTable) -> None:
    def write(worker: int) -> None:
        mine, chance = opened(spark, table), random.Random(worker)
        for number in range(3):
            chosen = chance.sample(range(1, 6), 2)
            batch = [(key, chance.choice("abc"), 100 * worker + 10 * number + at, 2) for at, key in enumerate(chosen)]
            mine.upsert(rows(spark, *batch), tag=repr(batch))

    model = {1: ("a", 10, 1), 2: ("a", 20, 1), 3: ("b", 30, 1)}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (1, 2)))
    commits = [row for row in table.history(full=True).orderBy("decision").collect() if row["operation"] == "UPSERT"]
    assert len(commits) == 6
    for commit in commits:
        model.update({key: tuple(rest) for key, *rest in eval(commit["tag"])})
    assert content(table) == sorted((key, *rest) for key, rest in model.items())


def test_what_would_store_a_key_twice_is_refused_with_what_to_do(spark: SparkSession, table: LakeTable) -> None:
    source, by_partition = rows(spark, (1, "b", 11, 2)), "target.id = source.id and target.p = source.p"
    with pytest.raises(InputError, match="index=global") as caught:
        table.merge(source, by_partition).when_not_matched_insert_all().execute()
    assert "table.upsert(df)" in caught.value.hint
    with table.transaction() as tx:
        tx.insert(rows(spark, (8, "c", 1, 1)))
        tx.upsert(rows(spark, (8, "d", 1, 1)))
        tx.delete(rows(spark, (8, "x", 0, 0)).select("id"))
    with pytest.raises(InputError, match="p=a"):
        table.upsert(source, partition="p=b")
    assert content(table) == [(1, "a", 10, 1), (2, "a", 20, 1), (3, "b", 30, 1)]


@pytest.mark.in_ci
def test_the_first_writer_that_is_told_records_the_index_in_an_existing_table(spark: SparkSession, path: str) -> None:
    plain = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p")
    plain.upsert(rows(spark, (1, "a", 10, 1)))
    plain.upsert(rows(spark, (1, "b", 11, 2)))  # without the index a key of another partition is another row
    assert len(content(plain)) == 2
    opened(spark, plain, **{"write.index": "global"}).upsert(rows(spark, (1, "c", 12, 3)))
    assert content(plain) == [(1, "c", 12, 3)]
    LakeTable.for_path(spark, path).upsert(rows(spark, (1, "a", 13, 4)))
    assert content(plain) == [(1, "a", 13, 4)]
    with pytest.raises(TableError, match="has the index global, and bucket:4:id was given"):
        opened(spark, plain, **{"write.index": "bucket:4"}).insert(rows(spark, (2, "a", 1, 1)))


def test_a_merge_stores_no_key_twice(spark: SparkSession, table: LakeTable) -> None:
    """Not of two new rows in different partitions, nor of a condition that equates the partition in another case."""

    def merge(on: str, *values: tuple[object, ...]) -> None:
        made = table.merge(rows(spark, *values), on).when_matched_update({"v": "source.v"})
        made.when_not_matched_insert_all().execute()

    before = content(table)
    with pytest.raises(DuplicateKeyError, match="several new rows have the same key.*: 70"):
        merge("target.id = source.id", *((70, partition, 7, 1) for partition in "ab"))
    with pytest.raises(InputError, match="equates the partition, too"):
        merge("target.Id = source.id and target.P = source.p", (1, "z", 11, 2))
    assert content(table) == before
    merge("target.id = source.id", (70, "a", 7, 1), (71, "b", 7, 1))
    assert len(content(table)) == len(before) + 2
