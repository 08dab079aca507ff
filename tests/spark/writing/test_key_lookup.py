"""How often an upsert opens the table's files to look keys up, counted in Spark's own workers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark import SparkFiles, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from tests.sizes import in_ci

from lakelock.errors import DuplicateKeyError
from lakelock.spark_plugin import LakeTable, lookup, lookup_stages

pytestmark = pytest.mark.usefixtures("on_executors")

cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLUMNS = "id long, p string, v long"
FILES = 300


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS).coalesce(1)


def recording(stage: Callable[..., Iterator[object]], log: str) -> Callable[..., Iterator[object]]:
    """The stage, which notes each file that it opens."""

    def run(plan: object, batches: Iterator[object]) -> Iterator[object]:
        from tests.api import LocalStorage

        opening = LocalStorage.open_input

        def noted(self: LocalStorage, key: str, *, size_bytes: int = 0) -> object:
            with open(log, "a") as lines:
                lines.write(key + "\n")
            assert size_bytes, "the size is known"
            return opening(self, key, size_bytes=size_bytes)

        LocalStorage.open_input = noted  # type: ignore[assignment, method-assign]
        try:
            yield from stage(plan, batches)
        finally:
            LocalStorage.open_input = opening  # type: ignore[method-assign]

    return run


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Counter[str]]:
    """How often each file was opened by the look-up stages since the last call."""
    log = tmp_path / "opened"
    for name in ("pack_stage", "look_stage", "tag_stage"):
        monkeypatch.setattr(lookup, name, recording(getattr(lookup, name), str(log)))

    def since() -> Counter[str]:
        found = Counter(log.read_text().splitlines()) if log.exists() else Counter()
        log.unlink(missing_ok=True)
        return found

    return since


def many_files(spark: SparkSession, path: str, **create: object) -> LakeTable:
    """A table of `FILES` files with one row each, whose keys are 0, 10, 20, …, and one file in another partition, if any."""
    one_row_each = {"write.target_file_rows": 1}
    table = LakeTable.create(spark, path, schema=rows(spark), key="id", options=one_row_each, **create)  # type: ignore[arg-type]
    table.insert(rows(spark, *((number * 10, "hot", number) for number in range(FILES)), (-1, "cold", 0)))
    return table


@pytest.mark.parametrize("partitioned", [False, *in_ci(True)], ids=["unpartitioned", "one hot partition"])
def test_an_upsert_opens_each_file_once_whatever_the_number_of_its_tasks(
    spark: SparkSession, path: str, opened: Callable[[], Counter[str]], monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    monkeypatch.setattr(lookup_stages, "MOST_FILES", 64)
    monkeypatch.setattr(lookup, "possible_files", lambda files, *_: list(range(len(files))))
    table = many_files(spark, path, **({"partition_by": "p"} if partitioned else {}))
    incoming = rows(spark, (50, "hot", -50), (55, "hot", -55), (2990, "hot", -2990)).repartition(4)
    result = table.upsert(incoming)
    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    counts = opened()
    assert set(counts.values()) == {1}
    assert len(counts) == (FILES if partitioned else FILES + 1)
    assert table.read().where("v < 0").count() == 3


def test_an_upsert_opens_only_files_whose_recorded_key_range_may_have_one_of_its_keys(
    spark: SparkSession, path: str, opened: Callable[[], Counter[str]]
) -> None:
    table = many_files(spark, path)
    for times in (1, 2):  # the second time one file was rewritten
        result = table.upsert(rows(spark, (50, "hot", -50), (55 * times, "hot", -55)).repartition(2))
        assert (result.rows_updated, result.rows_inserted) == (times, 2 - times)
        assert len(opened()) <= 2
    assert table.upsert(rows(spark, (123_456, "hot", 1))).rows_inserted == 1
    assert opened() == {}
    assert table.read().where("v < 0").count() == 3


@pytest.mark.in_ci
def test_more_keys_than_the_driver_takes_are_looked_up_by_the_tasks_that_have_the_rows(
    spark: SparkSession, path: str, opened: Callable[[], Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_stages, "FEW_KEYS", 2)
    table = many_files(spark, path, partition_by="p")
    result = table.upsert(rows(spark, (50, "hot", -50), (55, "hot", -55), (2990, "hot", -2990)).repartition(4))
    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    assert set(opened().values()) == {1}
    table.delete(rows(spark, (50, "hot", 0), (55, "hot", 0), (7, "cold", 0)))
    assert table.read().where("v < 0").count() == 1


@pytest.mark.parametrize("fails", [False, *in_ci(True)], ids=["committed", "rejected"])
def test_what_a_write_sends_to_its_tasks_leaves_no_file_in_the_driver(spark: SparkSession, path: str, *, fails: bool) -> None:
    table = LakeTable.create(spark, path, schema=rows(spark), key="id")
    table.insert(rows(spark, (1, "hot", 1), (2, "hot", 2)))
    conf, threshold = spark.sparkContext._jsc.sc().conf(), "spark.broadcast.UDFCompressionThreshold"
    before, sent = conf.get(threshold, "1m"), partial(Path(SparkFiles.getRootDirectory()).parent.glob, "pyspark-*/*")
    conf.set(threshold, "11000")  # above what Spark adds to a stage, and below the stages
    try:
        there = set(sent())
        if fails:
            with pytest.raises(DuplicateKeyError):
                table.upsert(rows(spark, (1, "hot", 3), (1, "hot", 4)))
        else:
            assert table.upsert(rows(spark, (1, "hot", 3), (4, "hot", 4))).rows_updated == 1
            with table.transaction() as tx:
                tx.update({"v": "v + 1"}, "id = 4")
                tx.delete(rows(spark, (2, "hot", 0)))
            table.optimize(sort_by="id").execute()
            assert sorted(row["v"] for row in table.read().collect()) == [3, 5]
        assert set(sent()) <= there
    finally:
        conf.set(threshold, before)
