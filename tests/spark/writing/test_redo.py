"""A write that is rejected after Spark has written does again only what collided, and gives what a fresh run would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.api import ArrowEngine, Event, LocalStorage
from tests.behaviour.tables import SCHEMA, leftovers
from tests.faults.worker import open_engine
from tests.sizes import in_ci, long

from lakelock.spark_plugin import LakeTable, WriteResult, lookup_stages

pytestmark = pytest.mark.usefixtures("both_ways")

COLUMNS = "id string, v long, month string"
MONTHS = [str(number) for number in range(1, 6)]
CLAIMS_NOTHING: dict[str, object] = {"concurrency.early_conflict_detection": False}

Row = tuple[str, int, str]


def rows(*values: Row) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def everywhere(*values: tuple[str, int]) -> list[Row]:
    return [(key, value, month) for month in MONTHS for key, value in values]


def content(table: pa.Table) -> list[Row]:
    return sorted(zip(*(table.column(n).to_pylist() for n in SCHEMA.names), strict=True))


def another(path: str) -> ArrowEngine:
    """A writer without Spark who looks at nobody's claims."""
    return open_engine(path, CLAIMS_NOTHING, "another")


def five(spark: SparkSession, path: str, index: str | None = None) -> str:
    """A table with the rows a and b in each of five months, a file group each."""
    schema = spark.createDataFrame([], COLUMNS)
    LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", index=index)
    another(path).insert(rows(*everywhere(("a", 1), ("b", 1))))
    return path


def disturbed(spark: SparkSession, path: str, **meanwhile: Callable[[Event], object]) -> LakeTable:
    """The table for a Spark job; when it tells of the event of a name for the first time, that is done before it goes on."""

    def listener(event: Event) -> None:
        act = meanwhile.pop(event.kind.name.lower(), None)
        if act is not None:
            act(event)

    return LakeTable.for_path(spark, path, listeners=[listener])


def counted_source(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, Path]:
    """Rows for all five file groups, and a folder that gets a file whenever they are computed."""
    (computed := tmp_path / "computed").mkdir()

    def counted(batches):
        (computed / str(len([*computed.iterdir()]))).touch()
        yield from batches

    rows_of_all = spark.createDataFrame(everywhere(("b", 2), ("c", 2)), COLUMNS).coalesce(1)
    return rows_of_all.mapInArrow(counted, COLUMNS), computed


def test_an_upsert_over_five_groups_of_which_one_collides_writes_only_that_one_again(spark, path, tmp_path):
    table = disturbed(spark, five(spark, path), claimed=lambda _: another(path).upsert(rows(("a", 7, "3"))))
    brought, computed = counted_source(spark, tmp_path)
    done = table.upsert(brought)
    assert (done.attempts, done.files, done.files_kept, done.rows_updated, done.rows_inserted) == (2, 5, 4, 5, 5)
    assert "attempt 2, which redid 1 of 5 files" in repr(done)
    assert table.history(1, full=True).first()["files_kept"] == 4
    assert len([*computed.iterdir()]) == 1
    written = table.read("id = 'c'", include_meta=True).collect()
    assert {row["_hoodie_commit_time"] for row in written} == {done.instant}
    # The numbers of rows in copied files are still those of the first attempt.
    assert [row["month"] for row in written if row["_hoodie_commit_seqno"].startswith(done.instant)] == ["3"]
    expected = everywhere(("a", 1), ("b", 2), ("c", 2))
    assert content(another(path).read()) == sorted({*expected, ("a", 7, "3")} - {("a", 1, "3")})
    assert leftovers(LocalStorage(path)) == []


def test_two_upserts_of_different_keys_of_one_file_group_both_commit(spark, path):
    first = []
    table = disturbed(spark, five(spark, path), claimed=lambda _: first.append(another(path).upsert(rows(("a", 7, "1")))))
    second = table.upsert(spark.createDataFrame([("b", 2, "1"), ("b", 2, "2")], COLUMNS))
    assert (first[0].attempts, second.attempts, second.files_kept) == (1, 2, 1)
    shown = [row for row in content(another(path).read()) if row[2] in "12"]
    assert shown == [("a", 1, "2"), ("a", 7, "1"), ("b", 2, "1"), ("b", 2, "2")]


def test_a_file_of_the_first_attempt_that_is_gone_is_written_again_with_its_new_rows(spark, path):
    def lose(event: Event) -> None:
        (gone,) = Path(path, "month=4").glob(f"*_{event.instant}.parquet")
        gone.unlink()

    table = disturbed(
        spark, five(spark, path), claimed=lambda _: another(path).upsert(rows(("a", 7, "1"))), set_aside=lose
    )  # fmt: skip
    done = table.upsert(spark.createDataFrame(everywhere(("b", 2), ("c", 2)), COLUMNS))
    assert (done.attempts, done.files, done.files_kept) == (2, 5, 3)
    expected = everywhere(("a", 1), ("b", 2), ("c", 2))
    assert content(another(path).read()) == sorted({*expected, ("a", 7, "1")} - {("a", 1, "1")})
    assert leftovers(LocalStorage(path)) == []


BROUGHT = [*everywhere(("b", 2), ("c", 2)), ("e", 2, "5"), ("n", 2, "6"), ("n", 2, "7")]
SELECTED = pc.field("v") == 1


def others_change_much(path: str) -> None:
    """They change a row, bring keys that are new to both, remove a row, and add one that the condition selects."""
    engine = another(path)
    engine.upsert(rows(("a", 7, "1"), ("c", 7, "2"), ("n", 7, "7")))
    engine.delete(rows(("b", 0, "3")))
    engine.insert(rows(("d", 1, "4")))


@pytest.mark.parametrize(
    ("operation", "index", "few_keys", "kept"),
    [
        ("upsert", None, True, 4),
        *in_ci(("insert", "bucket:2", True, None), ("delete_where", None, True, 4)),
        *long(
            ("upsert", None, False, 3),  # new rows are the same only where nobody wrote
            ("upsert", "bucket:2", True, None),
            ("delete", None, True, 4),
        ),
    ],
)
def test_a_redo_gives_what_a_fresh_run_gives(spark, tmp_path, monkeypatch, operation, index, few_keys, kept):
    if not few_keys:
        monkeypatch.setattr(lookup_stages, "FEW_KEYS", 0)
    redone, fresh = (five(spark, str(tmp_path / name), index) for name in ("redone", "fresh"))
    for path in (redone, fresh):
        another(path).insert(rows(("e", 1, "5")))
    table = disturbed(spark, redone, claimed=lambda _: others_change_much(redone))
    brought = spark.createDataFrame(BROUGHT, COLUMNS)
    done = table.delete("v = 1") if operation == "delete_where" else getattr(table, operation)(brought)
    assert done.attempts == 2 and done.files_kept > 0
    assert kept is None or done.files_kept == kept
    others_change_much(fresh)
    getattr(another(fresh), operation)(SELECTED if operation == "delete_where" else rows(*BROUGHT))
    assert content(another(redone).read()) == content(another(fresh).read())
    assert leftovers(LocalStorage(redone)) == []


def test_two_updates_of_different_rows_of_one_file_group_both_commit(spark, path):
    first = []
    one, two = "id = 'a' AND month = '1'", "id = 'b' AND month IN ('1', '2')"
    other = LakeTable.for_path(spark, five(spark, path), options=CLAIMS_NOTHING)
    table = disturbed(spark, path, claimed=lambda _: first.append(other.update({"v": 7}, one)))
    second = table.update({"v": "v + 1"}, two)
    assert (first[0].attempts, second.attempts, second.files, second.files_kept) == (1, 2, 2, 1)
    assert "attempt 2, which redid 1 of 2 files" in repr(second)
    changed = {("a", 7, "1"), ("b", 2, "1"), ("b", 2, "2")}
    assert content(another(path).read()) == sorted({*everywhere(("a", 1), ("b", 1)), *changed} - {
        ("a", 1, "1"), ("b", 1, "1"), ("b", 1, "2")
    })  # fmt: skip
    assert leftovers(LocalStorage(path)) == []


def updating(table: LakeTable, source: DataFrame) -> WriteResult:
    """Changes rows by what they hold: others may have changed whether a row is one of these, and what comes of it."""
    return table.update({"v": "v * 10"}, "v = 1 OR id = 'c'")


BY_KEY = "target.id = source.id AND target.month = source.month"


def changing(table: LakeTable, source: DataFrame) -> WriteResult:
    merge = table.merge(source, BY_KEY).when_matched_delete("target.v = 7")
    return merge.when_matched_update({"v": "target.v * 10 + source.v"}).execute()


def merging(table: LakeTable, source: DataFrame) -> WriteResult:
    merge = table.merge(source, BY_KEY).when_matched_update({"v": "target.v * 10 + source.v"})
    return merge.when_not_matched_insert_all("source.month <> '5'").execute()


def by_value(table: LakeTable, source: DataFrame) -> WriteResult:
    """Whether a row is new depends on rows of all partitions: others bring one of month 5 a partner elsewhere."""
    source = source.sparkSession.createDataFrame([("s", 7, "5"), *((f"t{n}", 70 + n, "5") for n in range(9))], COLUMNS)
    merge = table.merge(source, "target.v = source.v").when_matched_update({"v": "target.v + 100"})
    return merge.when_not_matched_insert_all().when_not_matched_by_source_update({"v": "-target.v"}).execute()


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("change", "index", "kept"),
    [
        (updating, "bucket:2", None),
        (merging, None, 4),
        (by_value, None, None),
        *long((updating, None, 4), (changing, None, 4), (merging, "bucket:2", None), (by_value, "bucket:2", None)),
    ],
)
def test_a_redo_of_an_update_or_a_merge_gives_what_a_fresh_run_gives(spark, tmp_path, change, index, kept):
    redone, fresh = (five(spark, str(tmp_path / name), index) for name in ("redone", "fresh"))
    for path in (redone, fresh):
        another(path).insert(rows(("e", 1, "5")))
    source = spark.createDataFrame(BROUGHT, COLUMNS)
    table = disturbed(spark, redone, claimed=lambda _: others_change_much(redone))
    done = change(table, source)
    assert done.attempts == 2 and done.files_kept > 0
    assert kept is None or done.files_kept == kept
    others_change_much(fresh)
    serial = LakeTable.for_path(spark, fresh)
    once = change(serial, source)
    assert content(another(redone).read()) == content(another(fresh).read())
    assert (done.rows_updated, done.rows_inserted, done.rows_deleted) == (
        once.rows_updated, once.rows_inserted, once.rows_deleted
    )  # fmt: skip
    assert leftovers(LocalStorage(redone)) == []


@pytest.mark.in_ci
def test_new_rows_of_the_same_key_that_are_others_are_written_again(spark, path):
    def meanwhile(_: Event) -> None:
        another(path).delete(rows(("f", 0, "1")))
        another(path).upsert(rows(("a", 7, "1")))

    five(spark, path)
    another(path).insert(rows(("f", 8, "1")))
    table = disturbed(spark, path, claimed=meanwhile)
    source = spark.createDataFrame([("s", 7, "5"), ("s", 8, "5")], COLUMNS)
    merge = table.merge(source, "target.v = source.v").when_matched_update({"v": "0"}).when_not_matched_insert_all()
    done = merge.execute()
    assert (done.attempts, done.rows_updated, done.rows_inserted) == (2, 1, 1)
    found = content(another(path).read())
    assert ("s", 8, "5") in found and ("a", 0, "1") in found and len(found) == 11


@pytest.mark.in_ci
def test_the_source_of_a_merge_is_computed_once_for_all_attempts(spark, path, tmp_path):
    table = disturbed(spark, five(spark, path), claimed=lambda _: another(path).upsert(rows(("a", 7, "3"))))
    brought, computed = counted_source(spark, tmp_path)
    merge = table.merge(brought, BY_KEY)
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.attempts, done.files, done.files_kept, done.rows_updated, done.rows_inserted) == (2, 5, 4, 5, 5)
    assert len([*computed.iterdir()]) == 1
    expected = everywhere(("a", 1), ("b", 2), ("c", 2))
    assert content(another(path).read()) == sorted({*expected, ("a", 7, "3")} - {("a", 1, "3")})


@pytest.mark.parametrize(
    "value",
    ["v + year(current_timestamp())", *in_ci("v + monotonically_increasing_id()", "(SELECT max(v) FROM others)")],
)
def test_new_values_that_another_attempt_would_compute_differently_are_all_computed_again(spark, path, value):
    def meanwhile(_: Event) -> None:
        another(path).upsert(rows(("a", 7, "3")))
        spark.createDataFrame([("x", 50, "1")], COLUMNS).createOrReplaceTempView("others")

    spark.createDataFrame([("x", 40, "1")], COLUMNS).createOrReplaceTempView("others")
    table = disturbed(spark, five(spark, path), claimed=meanwhile)
    done = table.update({"v": value}, "id = 'b'")
    assert (done.attempts, done.files, done.files_kept) == (2, 5, 0)
    if "others" in value:
        assert {value for key, value, _ in content(another(path).read()) if key == "b"} == {50}


@pytest.mark.in_ci
def test_rows_chosen_by_another_table_are_all_chosen_again(spark, path):
    def meanwhile(_: Event) -> None:
        another(path).upsert(rows(("a", 7, "3")))
        spark.createDataFrame([("a", 1, "1")], COLUMNS).createOrReplaceTempView("chosen")

    spark.createDataFrame([("b", 1, "1")], COLUMNS).createOrReplaceTempView("chosen")
    table = disturbed(spark, five(spark, path), claimed=meanwhile)
    done = table.delete("id IN (SELECT id FROM chosen)")
    assert (done.attempts, done.files_kept, done.rows_deleted) == (2, 0, 5)
    assert {key for key, _, _ in content(another(path).read())} == {"b"}
