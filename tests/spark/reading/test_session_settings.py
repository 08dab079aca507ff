"""What a session is configured to does not change which rows a table has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.api import DataFile, WriteStat

from lakelock.errors import LakelockError, WriteFailed
from lakelock.spark_plugin import LakeTable, reading
from lakelock.spark_plugin.reading import read_files
from lakelock.spark_plugin.table_upkeep import ensure_all_written

FAILURES = (PySparkException, Py4JJavaError, LakelockError)


@contextmanager
def configured(spark: SparkSession, **confs: str) -> Iterator[None]:
    """The session with these confs, whose names have underscores for dots."""
    named = {name.replace("__", "."): value for name, value in confs.items()}
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in named:
            spark.conf.unset(name)


def rows(spark: SparkSession, first: int) -> DataFrame:
    return spark.range(first, first + 1000).selectExpr("id", "id * 7 as v").coalesce(1)


@pytest.fixture
def damaged(spark: SparkSession, path: str) -> LakeTable:
    """A table of three files, one of which has a page that cannot be read."""
    table = LakeTable.create(spark, path, schema="id long, v long", key="id", options={"upkeep.auto": "false"})
    for first in (0, 1000, 2000):
        table.insert(rows(spark, first))
    file = sorted(Path(path).glob("*.parquet"))[1]
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    page = next(column for column in columns if column.path_in_schema == "v")
    with file.open("r+b") as data:
        data.seek(page.dictionary_page_offset or page.data_page_offset)
        data.write(b"\xff" * 100)
    return table


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.read().agg({"v": "sum"}).collect(),
        lambda table: table.update({"v": "v + 1"}, "v % 2 = 0"),
        lambda table: table.optimize(sort_by="v").execute(),
    ],
)
def test_a_damaged_file_is_an_error_and_never_fewer_rows(
    spark: SparkSession, damaged: LakeTable, use: Callable[[LakeTable], object]
) -> None:
    with configured(spark, spark__sql__files__ignoreCorruptFiles="true"):
        with pytest.raises(FAILURES):
            use(damaged)
        assert damaged.history().count() == 3
        assert damaged.read().select("id").count() == 3000


def test_a_damaged_file_is_an_error_also_where_spark_lists_once_more(spark: SparkSession, damaged: LakeTable) -> None:
    root = damaged.path.removeprefix("file://")
    names = [(file.name, file.stat().st_size) for file in Path(root).glob("*.parquet")]
    files = [file for file in (DataFile.parse(*each) for each in names) if file]
    with configured(spark, spark__sql__files__ignoreCorruptFiles="true"), pytest.raises(FAILURES):
        reading.read_files_by_name(spark, f"file:{root}", files, damaged.schema).agg({"v": "sum"}).collect()


def test_files_are_not_replaced_by_fewer_rows_than_they_have() -> None:
    stats = [WriteStat("a", "a.parquet", "", num_writes=2), WriteStat("b", "b.parquet", "", num_writes=3)]
    ensure_all_written(5, stats)
    for rows in (4, 6, 5000):
        with pytest.raises(WriteFailed, match=f"have {rows:,} rows, and Spark gave 5 of them: nothing was committed"):
            ensure_all_written(rows, stats)
    with pytest.raises(WriteFailed):
        ensure_all_written(1, [])


OLD = "select 1L as id, date'0500-03-01' as d, timestamp'1200-02-02 01:02:03' as at, timestamp_ntz'0001-01-01 00:00:00' as n"
AS_TEXT = ["cast(d as string)", "cast(at as string)", "cast(n as string)"]


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_old_dates_are_those_that_were_written_whatever_the_session_says(
    spark: SparkSession, path: str, mode: str, vectorized: str
) -> None:
    old = spark.sql(OLD)
    expected = old.selectExpr(*AS_TEXT).collect()
    table = LakeTable.create(spark, path, schema=old.schema, key="id")
    for number in (1, 2):
        table.insert(old.withColumn("id", old["id"] * number))
    with configured(
        spark,
        spark__sql__parquet__datetimeRebaseModeInRead=mode,
        spark__sql__parquet__int96RebaseModeInRead=mode,
        spark__sql__parquet__enableVectorizedReader=vectorized,
    ):
        assert table.read().where("id = 1").selectExpr(*AS_TEXT).collect() == expected
        assert table.read().where("d = date'0500-03-01'").count() == 2
        table.optimize(sort_by="d").execute()
        table.upsert(table.read().where("id = 2"))
    assert table.read().where("id = 2").selectExpr(*AS_TEXT).collect() == expected


def test_a_file_that_tells_its_calendar_is_read_by_it(spark: SparkSession, path: str) -> None:
    old = spark.sql(OLD).coalesce(1)
    rebased = {f"spark__sql__parquet__{kind}RebaseModeInWrite": "LEGACY" for kind in ("datetime", "int96")}
    with configured(spark, **rebased):
        old.write.parquet(path)
    (written,) = Path(path).glob("*.parquet")
    file = DataFile.parse("f-0_0-0-0_20261101000000000.parquet", written.stat().st_size)
    assert file is not None
    written.rename(Path(path) / file.name)
    found = read_files(spark, f"file:{path}", [file], old.schema)
    assert found.selectExpr(*AS_TEXT).collect() == old.selectExpr(*AS_TEXT).collect()
