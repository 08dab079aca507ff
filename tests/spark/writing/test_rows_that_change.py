"""A data frame that gives other rows when Spark computes it again, because an executor that kept them is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.sizes import in_ci
from tests.spark.without_jobs import fill

from lakelock.errors import WriteFailed
from lakelock.spark_plugin import LakeTable
from lakelock.spark_plugin.spark_session import KeptFrames

COLUMNS = "id long, p string, v long"

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("on_executors")]


@pytest.fixture
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every executor is lost as soon as it has answered."""
    monkeypatch.setattr(KeptFrames, "keep", lambda self, frame: None)


def once(spark: SparkSession, folder: Path, *first: tuple[int, str, int], then: tuple[int, str, int]) -> DataFrame:
    """A frame that has the rows `first` when it is computed for the first time, and the row `then` whenever it is again."""
    seen = str(folder / "seen")

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        given = list(first) if not Path(seen).exists() else [then]
        Path(seen).touch()
        columns = zip(*given, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(list(column)) for column in columns], names=["id", "p", "v"])

    return spark.range(0, 1, 1, 1).mapInArrow(rows, COLUMNS)


def upsert(table: LakeTable, df: DataFrame) -> None:
    table.upsert(df)


def delete(table: LakeTable, df: DataFrame) -> None:
    table.delete(df.select("id", "p"))


def merge(table: LakeTable, df: DataFrame) -> None:
    on = "target.id = source.id and target.p = source.p"
    table.merge(df, on).when_matched_update(set={"v": "source.v"}).when_not_matched_insert_all().execute()


def merge_named(table: LakeTable, df: DataFrame) -> None:
    on = "target.id = source.id and source.p = target.p"
    values = {"id": "source.id", "p": "source.p", "v": "source.v + 1"}
    table.merge(df, on).when_not_matched_insert(values=values).execute()


@pytest.mark.parametrize(
    ("write", "index"),
    [(upsert, None), *in_ci((delete, None), (merge, None), (merge_named, None), (upsert, "global"))],
    ids=["upsert", "delete", "merge", "merge with named columns", "upsert in all partitions"],
)
@pytest.mark.usefixtures("nothing_is_kept")
def test_a_key_that_was_not_looked_up_is_not_written_as_if_it_were_new(
    spark: SparkSession, path: str, tmp_path: Path, write: Callable[[LakeTable, DataFrame], None], index: str | None
) -> None:
    """It was there twice."""
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id", partition_by="p", index=index)
    fill(table, (1, "a", 10), (2, "a", 20))
    first = [(9, "a", 90), *([(2, "a", 20)] if write is delete else [])]  # a delete of keys that no file holds is done
    with pytest.raises(WriteFailed, match=r"the key 1 was not among .*: the rows changed while they were being") as error:
        write(table, once(spark, tmp_path, *first, then=(1, "a", 11)))
    assert "checkpoint" in str(error.value)
    assert sorted(table.read().collect()) == [(1, "a", 10), (2, "a", 20)]
    assert not list(Path(path).rglob("*.marker.*"))


@pytest.mark.parametrize("write", [merge, *in_ci(upsert)], ids=["merge", "upsert"])
@pytest.mark.usefixtures("nothing_is_kept")
def test_rows_that_are_the_same_when_they_are_computed_again_are_written(
    spark: SparkSession, path: str, write: Callable[[LakeTable, DataFrame], None]
) -> None:
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id", partition_by="p")
    fill(table, (1, "a", 10), (2, "a", 20))
    write(table, spark.createDataFrame([(1, "a", 11), (3, "a", 30), (4, "b", 40)], COLUMNS))
    assert sorted(table.read().collect()) == [(1, "a", 11), (2, "a", 20), (3, "a", 30), (4, "b", 40)]


def test_a_merge_may_insert_other_keys_than_it_looked_up(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id", partition_by="p")
    fill(table, (1, "a", 10))
    values = {"id": "source.id + 100", "p": "source.p", "v": "source.v"}
    on = "target.id = source.id and target.p = source.p"
    table.merge(spark.createDataFrame([(2, "a", 20)], COLUMNS), on).when_not_matched_insert(values=values).execute()
    assert sorted(table.read().collect()) == [(1, "a", 10), (102, "a", 20)]
