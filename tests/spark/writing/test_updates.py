"""Updates by condition through real Spark: rows change in place, whatever else they hold."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import CommitMetadata, ConflictRule
from tests.spark import without_jobs
from tests.spark.unchanged import files

from lakelock.errors import ConflictError, InputError, SchemaError, WriteFailed
from lakelock.spark_plugin import LakeTable

COLUMNS = "id long, p string, v long, note string, at timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("both_ways")]


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return without_jobs.content(table, "id", "p", "v", "note")


def filled(spark: SparkSession, path: str) -> LakeTable:
    once = {"retry.attempts": 1}
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", order_by="v", options=once)
    without_jobs.fill(made, (1, "a", 10, "x", NOON), (2, "a", 20, None, NOON))
    without_jobs.fill(made, (3, "b", 30, "z", NOON))
    return made


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return filled(spark, path)


def test_new_values_are_computed_from_the_old_row_and_nothing_else_changes(table: LakeTable) -> None:
    result = table.update({"v": "v - 15", "note": F.concat(F.lit("was "), F.col("v").cast("string"))}, "v >= 20")
    assert content(table) == [(1, "a", 10, "x"), (2, "a", 5, "was 20"), (3, "b", 15, "was 30")]
    assert (result.operation, result.rows_updated, result.rows_inserted, result.rows_deleted) == ("UPDATE", 2, 0, 0)
    assert {row["at"].timestamp() for row in table.read().collect()} == {NOON.timestamp()}


def test_only_the_file_groups_that_hold_such_rows_are_rewritten_and_only_such_rows_have_changed(table: LakeTable) -> None:
    before = table.history(1).head()["instant"]
    result = table.update({"note": "'new'"}, "id = 1")
    assert result.files == 1
    assert [row.id for row in table.changes(before).collect()] == [1]


def test_python_values_are_literals_and_none_is_null(table: LakeTable) -> None:
    later = datetime(2030, 1, 1, tzinfo=timezone.utc)
    table.update({"v": 7, "note": None, "at": later}, F.col("p") == "a")
    assert content(table) == [(1, "a", 7, None), (2, "a", 7, None), (3, "b", 30, "z")]
    assert table.read("id = 1").head()["at"].timestamp() == later.timestamp()


def test_without_a_condition_all_rows_change(table: LakeTable) -> None:
    assert table.update({"v": 0}).rows_updated == 3
    assert {row[2] for row in content(table)} == {0}


def test_a_condition_that_no_row_satisfies_changes_nothing(table: LakeTable) -> None:
    before = files(table)
    assert (table.update({"v": 0}, "id = 99").rows_updated, table.update({"v": 0}, "p = 'zz'").files) == (0, 0)
    assert files(table) == before


def test_rows_that_share_a_key_are_told_apart(spark: SparkSession, table: LakeTable) -> None:
    table.insert(rows(spark, (9, "c", 1, "one", NOON), (9, "c", 2, "two", NOON)).coalesce(1))
    table.update({"note": "'changed'"}, "id = 9 and v = 2")
    assert [row for row in content(table) if row[0] == 9] == [(9, "c", 1, "one"), (9, "c", 2, "changed")]


def test_rows_of_a_table_with_buckets_change_in_their_buckets(spark: SparkSession, path: str) -> None:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", index="bucket:2")
    made.insert(rows(spark, *[(n, "a", n, "x", NOON) for n in range(20)]))
    made.update({"v": "-v"}, "id % 3 = 0")
    made.upsert(rows(spark, (3, "a", 100, "y", NOON)))
    assert content(made) == sorted(
        [(n, "a", 100 if n == 3 else -n if n % 3 == 0 else n, "y" if n == 3 else "x") for n in range(20)]
    )


def test_hudi_sees_an_upsert_and_people_see_an_update(table: LakeTable) -> None:
    result = table.update({"v": 1}, "id = 1")
    (commit,) = Path(table.path.removeprefix("file://"), ".hoodie/timeline").glob(f"{result.instant}_*.commit")
    metadata = CommitMetadata.from_bytes(commit.read_bytes())
    assert (metadata.operation, metadata.extra["lakelock.operation"]) == ("UPSERT", "UPDATE")
    assert table.history(1).head()["operation"] == "UPDATE"


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"nte": "'x'"}, SchemaError, "no column 'nte'.*did you mean 'note'"),
        ({"id": "id + 1"}, SchemaError, "id is a record key column.*delete the rows and insert them"),
        ({"p": "'b'"}, SchemaError, "p is a partition column.*delete the rows and insert them"),
        ({"v": "v * 1.5"}, SchemaError, r"v: decimal.* does not fit int64.*cast"),
        ({"v": "'12'"}, SchemaError, "v: string does not fit int64"),
        ({"v": "nope + 1"}, AnalysisException, "nope"),
        ({}, InputError, "not a mapping"),
        ("v = 1", InputError, "not a mapping"),
    ],
)
def test_a_change_that_cannot_be_is_refused_before_any_work(settled: LakeTable, change, error: type, problem: str) -> None:
    with pytest.raises(error, match=f"(?s){problem}"):
        settled.update(change, "id = 1")


@pytest.mark.usefixtures("untouched")
def test_a_computation_that_fails_leaves_no_file(table: LakeTable) -> None:
    with pytest.raises(WriteFailed, match="no such rate"):
        table.update({"v": F.when(F.col("id") == 3, F.raise_error("no such rate")).otherwise(1).cast("long")})


def test_a_row_that_would_have_been_updated_and_is_added_meanwhile_rejects_the_update(
    spark: SparkSession, table: LakeTable, other: LakeTable
) -> None:
    with pytest.raises(ConflictError) as caught, table.transaction() as tx:
        tx.update({"note": "'high'"}, "v >= 20")
        other.insert(rows(spark, (4, "c", 20, None, NOON)))
    assert caught.value.conflict.rule is ConflictRule.APPEND
    assert '"id":4' in caught.value.conflict.overlap[0]
    assert content(table) == [(1, "a", 10, "x"), (2, "a", 20, None), (3, "b", 30, "z"), (4, "c", 20, None)]


def test_a_row_that_an_update_would_not_change_may_be_added_meanwhile(
    spark: SparkSession, table: LakeTable, other: LakeTable
) -> None:
    with table.transaction() as tx:
        tx.update({"note": "'high'"}, "v >= 20 and p = 'a'")
        other.insert(rows(spark, (4, "a", 19, None, NOON), (5, "c", 50, None, NOON)))
    assert tx.result is not None and tx.result.rows_updated == 1
    assert [row[3] for row in content(table)] == ["x", "high", "z", None, None]


def test_an_update_changes_rows_that_its_transaction_has_inserted(spark: SparkSession, table: LakeTable) -> None:
    with table.transaction() as tx:
        tx.insert(rows(spark, (4, "c", 1, None, NOON)))
        tx.update({"v": "v + 1"})
    assert [row[2] for row in content(table)] == [11, 21, 31, 2]


def test_an_update_that_has_lost_runs_again_on_what_the_other_left(
    spark: SparkSession, table: LakeTable, other: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakelock.spark_plugin import changing

    again = LakeTable.for_path(spark, table.path, options={"retry.attempts": 3, "retry.first_wait_s": 0.01})
    write, runs = changing.write_changes, []

    def interrupted(*given, **named):
        written = write(*given, **named)
        if not runs:
            other.insert(rows(spark, (4, "c", 40, None, NOON)))
        runs.append(1)
        return written

    monkeypatch.setattr(changing, "write_changes", interrupted)
    result = again.update({"v": "v + 1"}, "v >= 30")
    assert (result.attempts, result.rows_updated, len(runs)) == (2, 2, 2)
    assert [row[2] for row in content(table)] == [10, 20, 31, 41]
