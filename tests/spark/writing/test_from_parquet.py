"""Folders of Parquet become tables: all rows, once, whatever is killed; and what cannot is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.api import Event, EventKind
from tests.sizes import in_ci

from lakelock.errors import DuplicateKeyError, InputError, SchemaError, TableError
from lakelock.spark_plugin import LakeTable

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Two partitions, of which the later one has one column more."""
    made = tmp_path / "lake" / "orders"
    spark.range(0, 3, numPartitions=1).write.parquet(str(made / "month=1"))
    spark.range(3, 5, numPartitions=1).selectExpr("id", "'x' as note").write.parquet(str(made / "month=2"))
    return made


def test_a_partitioned_folder_becomes_a_table_with_its_partitions_and_all_columns_of_its_files(
    spark: SparkSession, folder: Path, path: str
) -> None:
    with LakeTable.from_parquet(spark, path, folder=folder, key="id") as table:
        rows = {(r["id"], r["month"], r["note"]) for r in table.read().collect()}
        assert rows == {(0, 1, None), (1, 1, None), (2, 1, None), (3, 2, "x"), (4, 2, "x")}
        assert {column.name for column in table.schema} == {"id", "note", "month"}
        (detail,) = table.detail().collect()
        assert (detail["partition_by"], detail["key"], detail["partitions"]) == (["month"], ["id"], 2)
        assert table.upsert(spark.createDataFrame([(3, 2, "y")], "id long, month int, note string")).rows_updated == 1


def test_an_import_that_is_repeated_adds_no_row_and_a_changed_folder_changes_nothing(
    spark: SparkSession, folder: Path, path: str
) -> None:
    for _ in range(2):
        with LakeTable.from_parquet(spark, path, folder=folder, partition_by=()) as table:
            assert table.read().count() == 5 and table.history().count() == 1
        spark.range(5, 6, numPartitions=1).write.mode("append").parquet(str(folder / "month=1"))


@pytest.mark.parametrize("when", [EventKind.DECIDED, *in_ci(EventKind.WRITING, EventKind.COMMITTED)])
def test_an_import_that_was_interrupted_has_all_rows_once_when_it_is_repeated(
    spark: SparkSession, folder: Path, path: str, when: EventKind
) -> None:
    """Before its commit, between its decision and the moment when it is visible, and after it."""

    def die(event: Event) -> None:
        if event.kind is when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LakeTable.from_parquet(spark, path, folder=folder, listeners=[die])
    assert LakeTable.exists(spark, path)
    with LakeTable.from_parquet(spark, path, folder=folder) as table:
        assert table.read().count() == 5


def test_a_table_that_has_other_rows_takes_no_import(spark: SparkSession, folder: Path, path: str) -> None:
    with LakeTable.create(spark, path, schema=spark.read.parquet(str(folder / "month=2")), key="id") as table:
        table.insert(spark.createDataFrame([(7, "z")], "id long, note string"))
        with pytest.raises(TableError, match="not one that was imported from"):
            LakeTable.from_parquet(spark, path, folder=folder / "month=2", key="id", partition_by=())
        assert table.read().count() == 1


def test_a_key_that_the_folder_holds_twice_is_an_error_unless_any_row_will_do(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    spark.createDataFrame([(1, 10), (1, 20)], "id long, v long").coalesce(1).write.parquet(str(tmp_path / "twice"))
    with pytest.raises(DuplicateKeyError):
        LakeTable.from_parquet(spark, path, folder=tmp_path / "twice", key="id")
    with LakeTable.from_parquet(spark, path, folder=tmp_path / "twice", key="id", duplicates="any") as table:
        assert table.read().count() == 1


@pytest.mark.parametrize(
    ("rows", "kind", "error"),
    [
        ([(1, 10), (1, 20)], "long", DuplicateKeyError),
        ([(1, 10), (None, 20)], "long", SchemaError),
        ([("x", 10), ("", 20)], "string", SchemaError),
        ([(1.5, 10), (2.5, 20)], "double", SchemaError),
    ],
)
def test_a_folder_whose_keys_are_refused_leaves_no_table_and_the_corrected_call_makes_one(
    spark: SparkSession, tmp_path: Path, path: str, rows: list[tuple[object, ...]], kind: str, error: type[Exception]
) -> None:
    spark.createDataFrame(rows, f"id {kind}, v long").coalesce(1).write.parquet(str(tmp_path / "source"))
    with pytest.raises(error):
        LakeTable.from_parquet(spark, path, folder=tmp_path / "source", key="id")
    assert not LakeTable.exists(spark, path)
    with LakeTable.from_parquet(spark, path, folder=tmp_path / "source", key="v") as table:
        assert table.read().count() == 2


@pytest.mark.parametrize("key", [None, "id"])
def test_a_damaged_file_in_the_folder_is_an_error_that_says_so(
    spark: SparkSession, tmp_path: Path, path: str, key: str | None
) -> None:
    source = tmp_path / "source"
    spark.range(3).coalesce(1).write.parquet(str(source))
    (source / "damaged.parquet").write_bytes(b"PAR1 and then nothing that is Parquet")
    with pytest.raises(InputError, match="cannot be read as one table"):
        LakeTable.from_parquet(spark, path, folder=source, key=key)
    assert not LakeTable.exists(spark, path)


def test_a_folder_that_cannot_become_a_table_is_refused_before_any_work(
    spark: SparkSession, folder: Path, path: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    delta, iceberg = tmp_path / "delta", tmp_path / "iceberg"
    for place, log in ((delta, "_delta_log/00000000000000000000.json"), (iceberg, "metadata/v1.metadata.json")):
        (place / log).parent.mkdir(parents=True)
        (place / log).write_text("{}")
    spark.range(1).write.parquet(str(delta / "month=1"))
    with LakeTable.create(
        spark, str(tmp_path / "hudi"), schema=spark.range(1).selectExpr("id", "1 as p"), partition_by="p"
    ) as hudi:
        hudi.insert(spark.range(1).selectExpr("id", "1 as p"))
        refused = {
            "cannot become a table in its place": {"path": str(folder), "folder": folder},
            f"{folder}/table is inside": {"path": str(folder / "table"), "folder": folder},
            "is inside": {"path": str(folder.parent), "folder": folder},
            "has no Parquet files": {"path": path, "folder": tmp_path / "empty"},
            "no Parquet": {"path": path, "folder": tmp_path / "missing"},
            "is a Delta table": {"path": path, "folder": delta},
            "delta is a Delta table": {"path": path, "folder": delta / "month=1"},
            "is an Iceberg table": {"path": path, "folder": iceberg},
            "is a Hudi table": {"path": path, "folder": tmp_path / "hudi"},
            "hudi is a Hudi table": {"path": path, "folder": tmp_path / "hudi" / "p=1"},
        }
        for why, call in refused.items():
            with pytest.raises(InputError, match=why):
                LakeTable.from_parquet(spark, **call)
    copied = tmp_path / "copied"
    (tmp_path / "hudi" / "p=1").rename(copied)
    with pytest.raises(InputError, match="has the column _hoodie_commit_time"):
        LakeTable.from_parquet(spark, path, folder=copied)
    with pytest.raises(SchemaError, match="the key column 'nothing'"):
        LakeTable.from_parquet(spark, path, folder=folder, key="nothing")
    assert not LakeTable.exists(spark, path) and not (folder / ".hoodie").exists()
