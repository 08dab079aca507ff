"""Transactions that read, compute and write; and what happens when another commit comes between."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

import json
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import ConflictRule, Transaction, WriteStat
from tests.sizes import in_ci
from tests.spark import without_jobs

from lakelock.conflict import DECLARE_SCOPE, WHOLE_TABLE, Conflict, Party, about
from lakelock.errors import ConflictError, EarlyConflictError, InputError, TransactionStateError, WriteFailed
from lakelock.spark_plugin import LakeTable, lookup_stages
from lakelock.spark_plugin.spark_jobs import in_task_text
from lakelock.spark_plugin.transactions import LakeTransaction
from lakelock.spark_plugin.write_attempt import Attempt
from lakelock.spark_plugin.write_stages import REPORTS_ONLY

pytestmark = pytest.mark.usefixtures("both_ways")

COLUMNS = "id long, p string, v long"


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return sorted(without_jobs.content(table), key=str)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", options={"retry.attempts": 1})
    without_jobs.fill(made, (1, "a", 10), (2, "a", 20), (3, "b", 30))
    return made


def test_reads_and_writes_of_a_transaction_are_one(spark: SparkSession, table: LakeTable) -> None:
    with table.transaction() as tx:
        stock = tx.read("p = 'a'")
        total = stock.agg(F.sum("v")).head()[0]
        tx.upsert(stock.withColumn("v", F.lit(total)))
        tx.upsert(rows(spark, (9, "b", total)))
        tx.insert(rows(spark, (10, "c", 0)))
        assert len(content(table)) == 3
    assert content(table) == [(1, "a", 30), (10, "c", 0), (2, "a", 30), (3, "b", 30), (9, "b", 30)]
    assert tx.result is not None and (tx.result.rows_inserted, tx.result.rows_updated) == (2, 2)
    assert table.history().count() == 2


def test_an_exception_in_the_block_withdraws_everything(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(ZeroDivisionError), table.transaction() as tx:
        tx.insert(rows(spark, (4, "a", 1)))
        raise ZeroDivisionError
    folder = Path(table.path.removeprefix("file://"))
    assert len(content(table)) == 3
    assert list(folder.glob(f"**/*{tx.instant}.parquet")) == []


def test_what_another_changed_in_rows_that_were_read_rejects_the_transaction(
    spark: SparkSession, table: LakeTable, other: LakeTable
) -> None:
    with pytest.raises(ConflictError) as caught, table.transaction() as tx:
        high = tx.read("v > 15")
        tx.insert(rows(spark, (100, "sum", high.agg(F.sum("v")).head()[0])))
        other.insert(rows(spark, (4, "b", 16)))
    assert caught.value.conflict.rule is ConflictRule.APPEND
    assert '"id":4' in caught.value.conflict.overlap[0]
    assert "other" in str(caught.value)
    assert (100, "sum", 50) not in content(table)


def test_what_another_changed_elsewhere_rejects_nothing(spark: SparkSession, table: LakeTable, other: LakeTable) -> None:
    with table.transaction() as tx:
        some = tx.read("p = 'a' and v > 15")
        tx.insert(rows(spark, (100, "sum", some.agg(F.sum("v")).head()[0])))
        other.insert(rows(spark, (4, "a", 15)))
        other.upsert(rows(spark, (3, "b", 31)))
    assert (100, "sum", 20) in content(table)


def test_a_read_of_everything_is_broken_by_any_row(spark: SparkSession, table: LakeTable, other: LakeTable) -> None:
    with pytest.raises(ConflictError) as caught, table.transaction() as tx:
        tx.insert(rows(spark, (100, "n", tx.read().count())))
        other.insert(rows(spark, (4, "z", 1)))
    declared = about(DECLARE_SCOPE, "p=z")
    assert declared in caught.value.hint and caught.value.explanation.helps[0] == declared


def test_a_rejection_is_recorded_without_the_row_that_was_met(spark: SparkSession, table: LakeTable, other: LakeTable) -> None:
    with pytest.raises(ConflictError, match='"id":4') as caught, table.transaction() as tx:
        tx.insert(rows(spark, (100, "sum", tx.read("v > 15").count())))
        other.insert(rows(spark, (4, "b", 16)))
    folder = Path(table.path.removeprefix("file://"))
    record = (folder / ".hoodie/.lakelock/rejections" / caught.value.conflict.mine.instant).read_text()
    assert json.loads(record)["conflict"]["overlap"] == ["p=b"] and '"id' not in json.loads(record)["message"]


@pytest.mark.parametrize("few_keys", [1000, *in_ci(0)])
def test_two_upserts_of_one_new_key_do_not_both_insert_it(
    spark: SparkSession, table: LakeTable, other: LakeTable, monkeypatch: pytest.MonkeyPatch, few_keys: int
) -> None:
    monkeypatch.setattr(lookup_stages, "FEW_KEYS", few_keys)
    with pytest.raises(ConflictError) as caught, table.transaction() as tx:
        tx.upsert(rows(spark, (50, "new", 1)))
        other.upsert(rows(spark, (50, "new", 2)))
    assert caught.value.conflict.rule is ConflictRule.KEY
    assert caught.value.conflict.overlap == ("p=new: 50",)
    with table.transaction() as tx:
        tx.upsert(rows(spark, (51, "new", 1)))
        other.upsert(rows(spark, (52, "new", 2)))
    assert [row[0] for row in content(table) if row[1] == "new"] == [50, 51, 52]


def test_an_erasure_meets_a_stream_of_appends_only_where_a_row_matches(
    spark: SparkSession, table: LakeTable, other: LakeTable
) -> None:
    with table.transaction() as tx:
        tx.delete("id = 1")
        other.insert(rows(spark, (7, "a", 1)))
    assert [row[0] for row in content(table)] == [2, 3, 7]
    with pytest.raises(ConflictError), table.transaction() as tx:
        tx.delete("id = 2")
        other.insert(rows(spark, (2, "z", 1)))
    assert [row[0] for row in content(table)] == [2, 2, 3, 7]


def test_a_retry_sees_the_other_commit_and_succeeds(
    spark: SparkSession, table: LakeTable, other: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = LakeTable.for_path(spark, table.path, options={"retry.attempts": 3})

    @F.udf("long")
    def slow(value: int) -> int:
        return value

    frame = rows(spark, (1, "a", 99)).withColumn("v", slow("v"))
    written = Attempt.written

    def disturbed(self: Attempt, files: DataFrame, what: str, **more: Any) -> tuple[WriteStat, ...]:
        monkeypatch.setattr(Attempt, "written", written)
        other.insert(rows(spark, (1, "a", -1)))
        return written(self, files, what, **more)

    monkeypatch.setattr(Attempt, "written", disturbed)
    result = patient.upsert(frame)
    assert (result.attempts, result.rows_updated, len(result.conflicts)) == (2, 2, 1)
    assert [row for row in content(table) if row[0] == 1] == [(1, "a", 99), (1, "a", 99)]
    assert "attempt 2" in repr(result)


def test_a_function_is_run_again_until_nobody_came_between_and_its_value_comes_back(
    spark: SparkSession, table: LakeTable
) -> None:
    both_have_read, seen = Barrier(2), {"one": list[int](), "two": list[int]()}

    def increments(name: str) -> tuple[int | None, int]:
        patient = LakeTable.for_path(spark, table.path, options={"retry.attempts": 4}, application=name)

        def add_one(tx: LakeTransaction) -> int:
            stock = tx.read("id = 1")
            seen[name].append(stock.head()["v"])
            if len(seen[name]) == 1:
                both_have_read.wait(timeout=120)
            tx.upsert(stock.withColumn("v", F.col("v") + 1))
            return seen[name][-1] + 1

        done = patient.run(add_one)
        assert len(seen[name]) == done.attempts == len(done.conflicts) + 1 and done.rows_updated == 1
        return done.value, done.attempts

    with ThreadPoolExecutor(2) as pool:
        done = sorted(pool.map(increments, seen))
    assert [value for value, _ in done] == [11, 12] and done[0][1] == 1 < done[1][1]
    assert content(table) == [(1, "a", 12), (2, "a", 20), (3, "b", 30)]


def test_a_function_ends_as_it_returns_or_raises_and_its_transaction_is_the_only_one(
    spark: SparkSession, table: LakeTable
) -> None:
    patient, calls = LakeTable.for_path(spark, table.path, options={"retry.attempts": 3}), []

    def fails(tx: LakeTransaction) -> None:
        calls.append(tx)
        tx.insert(rows(spark, (4, "a", 1)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        patient.run(fails)
    assert len(calls) == 1
    with pytest.raises(TransactionStateError, match="cannot be used"):
        calls[0].read()
    inner = (
        lambda tx: patient.upsert(rows(spark, (1, "a", 0))),
        lambda tx: patient.run(lambda again: None),
        lambda tx: patient.transaction().__enter__(),
        lambda tx: tx.__enter__(),
    )
    for begins in inner:
        with pytest.raises(TransactionStateError, match="of its own|used before"):
            patient.run(begins)
    with pytest.raises(InputError, match="cannot be called"):
        patient.run(rows(spark))
    assert content(table) == [(1, "a", 10), (2, "a", 20), (3, "b", 30)]


def test_the_function_of_an_applied_version_is_not_called_again(spark: SparkSession, table: LakeTable) -> None:
    def add_one(tx: LakeTransaction) -> int:
        tx.upsert(tx.read("id = 1").withColumn("v", F.col("v") + 1))
        return 1

    first, again = (table.run(add_one, partition={"p": "a"}, txn_app_id="job", txn_version=7) for _ in range(2))
    assert (first.value, first.already_applied) == (1, False)
    assert (again.value, again.already_applied, again.instant) == (None, True, first.instant)
    assert (1, "a", 11) in content(table) and "value" not in first.as_dict()


def test_the_second_writer_of_a_file_group_learns_it_before_it_writes(
    spark: SparkSession, table: LakeTable, other: LakeTable
) -> None:
    impatient = LakeTable.for_path(spark, table.path, options={"retry.attempts": 1}, application="second")
    folder = Path(table.path.removeprefix("file://"))
    with table.transaction() as tx:
        tx.upsert(rows(spark, (1, "a", 11)))
        for attempt in (lambda: impatient.upsert(rows(spark, (2, "a", 21))), lambda: impatient.delete("id = 2")):
            with pytest.raises(EarlyConflictError) as caught:
                attempt()
            conflict = caught.value.conflict
            assert conflict.early and conflict.other.instant == tx.instant and conflict.mine.writer.application == "second"
            assert list(folder.glob(f"**/*{conflict.mine.instant}.parquet")) == []
        other.upsert(rows(spark, (3, "b", 31)))
    assert content(table) == [(1, "a", 11), (2, "a", 20), (3, "b", 31)]


def test_a_lost_transaction_cancels_its_spark_jobs_at_once(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    @F.udf("long")
    def forever(value: int) -> int:
        time.sleep(60)
        return value

    def lost(_: object) -> None:
        raise ConflictError(_conflict())

    began = time.monotonic()
    with pytest.raises(ConflictError, match="rule file-group"), table.transaction() as tx:
        monkeypatch.setattr(Transaction, "check_alive", lost)
        tx.insert(rows(spark, (5, "a", 1), (6, "a", 1)).withColumn("v", forever("v")))
    assert time.monotonic() - began < 20
    assert spark.range(3).count() == 3


def test_a_conflict_that_a_task_finds_keeps_its_explanation(spark: SparkSession, table: LakeTable) -> None:
    error = ConflictError(replace(_conflict(), read=WHOLE_TABLE, profile="delta", level="Serializable"))
    text = in_task_text(error)

    @F.udf("long")
    def loses(value: int) -> int:
        raise RuntimeError(text)

    with pytest.raises(ConflictError) as caught:
        table.insert(rows(spark, (5, "a", 1)).withColumn("v", loses("v")))
    assert caught.value.explanation == error.explanation and caught.value.explanation.helps[0] == about(DECLARE_SCOPE, "")


def _conflict() -> Conflict:
    return Conflict(ConflictRule.FILE_GROUP, Party("1", "INSERT"), Party("2", "INSERT"))


@pytest.mark.parametrize("index", ["", *in_ci("bucket:2", "global")])
def test_each_write_of_a_transaction_sees_those_before_it(spark: SparkSession, path: str, index: str) -> None:
    chosen = {"index": index} if index else {}
    table = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", **chosen)
    table.insert(rows(spark, (1, "a", 10), (2, "a", 20), (3, "b", 30)))
    with table.transaction() as tx:
        tx.upsert(rows(spark, (1, "a", 11), (8, "a", 1), (9, "c", 9)))
        tx.delete(rows(spark, (1, "a", 0), (9, "c", 0)).select("id", "p"))
        tx.upsert(rows(spark, (8, "a", 2), (9, "c", 90)))
        tx.update({"v": "v * 10"}, "v < 30")
        tx.delete("v = 200")
        assert len(content(table)) == 3
    assert content(table) == [(3, "b", 30), (8, "a", 20), (9, "c", 90)]
    assert tx.result is not None and tx.result.rows_deleted == 3
    with table.transaction() as tx:
        tx.delete(rows(spark, (8, "a", 0)).select("id", "p"))
        tx.insert(rows(spark, (5, "b", 50)))
        merge = tx.merge(rows(spark, (3, "b", 33), (5, "b", 55), (6, "b", 66)), "target.id = source.id and target.p = source.p")
        merge.when_matched_update(set={"v": "source.v"}).execute()
        tx.upsert(rows(spark, (8, "a", 88)))
    assert content(table) == [(3, "b", 33), (5, "b", 55), (8, "a", 88), (9, "c", 90)]


def test_two_files_of_one_file_group_are_never_committed(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from a frame that gives other rows each time it is computed, when a lost part of it is computed again."""
    stat = pickle.dumps(WriteStat(file_id="f-0", path="p=a/f-0_0-0-0_20260101000000000.parquet", partition_path="p=a"))
    twice = spark.createDataFrame([(bytearray(stat),)] * 2, REPORTS_ONLY)
    written = Attempt.written
    monkeypatch.setattr(
        Attempt, "written", lambda self, files, what, **more: written(self, self.on_executors(twice), what, **more)
    )
    with pytest.raises(WriteFailed, match="checkpoint it"), table.transaction() as tx:
        tx.insert(rows(spark, (5, "a", 1)))
    assert len(content(table)) == 3


def test_a_numbered_transaction_is_applied_once_as_a_whole(spark: SparkSession, table: LakeTable) -> None:
    for run in range(2):
        with table.transaction(txn_app_id="rebalance", txn_version=4) as tx:
            assert tx.already_applied == (run == 1)
            seen = tx.read("p = 'b'").collect()
            tx.upsert(rows(spark, (seen[0]["id"], "b", seen[0]["v"] + 1)))
            tx.insert(rows(spark, (9, "z", 9)))
    assert tx.result is not None and tx.result.already_applied
    assert content(table) == [(1, "a", 10), (2, "a", 20), (3, "b", 31), (9, "z", 9)]
    with table.transaction(txn_app_id="rebalance", txn_version=5) as tx:
        tx.insert(rows(spark, (10, "z", 9)))
    assert tx.result is not None and not tx.result.already_applied


def test_of_two_transactions_with_one_number_the_slower_one_does_nothing(
    spark: SparkSession, table: LakeTable, other: LakeTable
) -> None:
    with table.transaction(txn_app_id="load", txn_version=1) as tx:
        tx.insert(rows(spark, (9, "z", 1)))
        faster = other.insert(rows(spark, (9, "z", 2)), txn_app_id="load", txn_version=1)
    assert tx.result is not None and tx.result.already_applied and tx.result.instant == faster.instant
    assert [row for row in content(table) if row[1] == "z"] == [(9, "z", 2)]


def test_a_delete_deletes_keys_that_the_transaction_has_just_inserted(spark: SparkSession, table: LakeTable) -> None:
    before = content(table)
    with table.transaction() as tx:
        tx.insert(rows(spark, (9, "a", 90)))
        tx.delete(rows(spark, (9, "a", 90)).select("id", "p"))
    assert content(table) == before
    with table.transaction() as tx:
        tx.insert(rows(spark, (9, "a", 90)))
        tx.delete(rows(spark, (3, "b", 0)).select("id", "p"))
    assert content(table) == sorted([(1, "a", 10), (2, "a", 20), (9, "a", 90)], key=str)
