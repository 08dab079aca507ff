"""A table as a source of streams: appended rows or changes, each commit once, whatever the query goes through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from lakelock.spark_plugin import LakeTable, unregister
from lakelock.spark_plugin.source_reader import LakelockStreamReader, ReadMaxFiles

COLUMNS = "id long, p string, v long"
Values = tuple[int, str, int]
KNOWS_LIMITS = ReadMaxFiles is not None
"""Since Spark 4.2 a source is told where a batch begins, and how much it may have."""


@dataclass
class Query:
    """A query over the table: what it has told, batch by batch, and its checkpoint."""

    spark: SparkSession
    path: str
    checkpoint: Path
    options: dict[str, str] = field(default_factory=dict)
    batches: list[list[Row]] = field(default_factory=list)

    def run(self) -> list[list[Row]]:
        """Read all that there is, and stop; the batches of this run."""
        first = len(self.batches)
        # An earlier Spark makes one batch, the one to replay if there is one, where it does not know that it may make several.
        for _ in range(1 if KNOWS_LIMITS else 3):
            self._run_once()
        return [batch for batch in self.batches[first:] if batch]

    def _run_once(self) -> None:
        frame = self.spark.readStream.format("lakelock").options(**self.options).load(self.path)
        writer = frame.writeStream.foreachBatch(self.keep).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(180)
        if query.exception() is not None:
            raise query.exception()

    def keep(self, batch: DataFrame, _: int) -> None:
        self.batches.append(batch.collect())

    def forget_last_commit(self) -> None:
        """As if the query had died after the sink was done and before Spark noted it."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()


@dataclass
class EarlierSpark:
    """Asks a reader for batches as Spark 4.0 and 4.1 do: it does not tell a reader where its query begins. Counts the rows
    that the reader tells, by id."""

    path: str
    options: dict[str, str]
    columns: StructType
    committed: dict[str, Any] | None = None
    told: Counter[int] = field(default_factory=Counter)

    def started(self) -> LakelockStreamReader:
        """A reader of a new process."""
        return LakelockStreamReader({"path": self.path, **self.options}, self.columns, {})

    def batch(self, reader: LakelockStreamReader, between: Callable[[], object] = lambda: None) -> int:
        """One batch; how many files it had."""
        end = reader.latestOffset()
        between()
        start = self.committed or reader.initialOffset()
        if end == start:
            return 0
        parts = reader.partitions(start, end)
        for part in parts:
            for found in reader.read(part):
                self.told.update(found.column("id").to_pylist())
        self.committed = end
        return len(parts)


def rows(spark: SparkSession, *values: Values) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    unregister(spark)
    return LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p")


def query(spark: SparkSession, table: LakeTable, folder: Path, **options: str) -> Query:
    return Query(spark, table.path, folder / "checkpoint", options)


def test_rows_are_told_once_from_the_first_state_on_across_restarts(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    mine = query(spark, table, tmp_path, maxFilesPerTrigger="1")
    table.insert(rows(spark, (1, "a", 1), (2, "b", 1)))
    table.upsert(rows(spark, (1, "a", 2)))
    first = [1, 1] if KNOWS_LIMITS else [2]
    assert sorted(len(batch) for batch in mine.run()) == first, "the state as it is, a file at a time"
    table.insert(rows(spark, (3, "a", 1)))
    table.insert(rows(spark, (4, "a", 1)))
    table.optimize().execute()
    told = [[row.id for row in batch] for batch in mine.run()]
    assert told[:2] == [[3], [4]] if KNOWS_LIMITS else [number for batch in told for number in batch] == [3, 4]
    mine.forget_last_commit()
    table.insert(rows(spark, (5, "b", 1)))
    assert {row.id for batch in mine.run() for row in batch} <= {4, 5}, "a replay has the same rows"
    counts = Counter(row.id for batch in mine.batches for row in batch)
    assert set(counts) == {1, 2, 3, 4, 5} and all(count == 1 for number, count in counts.items() if number != 4)
    assert mine.run() == []


def test_a_restart_before_spark_4_2_tells_nothing_twice_although_the_batches_are_limited(
    spark: SparkSession, table: LakeTable
) -> None:
    """The first state was told again, from the second batch of the new process on."""
    table.insert(rows(spark, (1, "a", 1), (2, "b", 1), (3, "c", 1)))
    mine = EarlierSpark(table.path, {"max_files_per_trigger": "1"}, table.schema)
    reader = mine.started()
    assert mine.batch(reader) == 3, "nobody has said where the query begins"
    table.insert(rows(spark, (4, "a", 1)))
    table.insert(rows(spark, (5, "b", 1)))
    assert [mine.batch(reader), mine.batch(reader)] == [1, 1]
    for again in (6, 7):
        reader = mine.started()
        table.insert(rows(spark, (again, "a", 1)))
        while mine.batch(reader):
            pass
    assert mine.told == Counter(range(1, 8))


def test_a_commit_between_the_end_and_the_beginning_of_the_first_batch_is_told_once_before_spark_4_2(
    spark: SparkSession, table: LakeTable
) -> None:
    """It asks for the end first."""
    table.insert(rows(spark, (1, "a", 1), (2, "b", 1)))
    mine = EarlierSpark(table.path, {"max_files_per_trigger": "1"}, table.schema)
    reader = mine.started()
    mine.batch(reader, between=lambda: table.insert(rows(spark, (3, "a", 1), (0, "0", 1))))
    while mine.batch(reader):
        pass
    assert mine.told == Counter(range(4))


@pytest.mark.in_ci
def test_changes_are_told_by_kind_and_a_restart_replays_exactly_them(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    first = table.insert(rows(spark, (1, "a", 1), (2, "b", 1)))
    mine = query(spark, table, tmp_path, readChangeFeed="true", since=first.instant)
    table.upsert(rows(spark, (1, "a", 2), (3, "b", 1)))
    table.delete("id = 2")
    [batch] = mine.run()
    told = sorted((row["_commit_version"], row["_change_type"], row["id"], row["v"]) for row in batch)
    assert [entry[1:] for entry in told] == [
        ("insert", 3, 1), ("update_postimage", 1, 2), ("update_preimage", 1, 1), ("delete", 2, 1),
    ]  # fmt: skip
    mine.forget_last_commit()
    table.overwrite_partitions(rows(spark, (9, "a", 9)))
    replayed, new = mine.run()
    assert sorted(replayed) == sorted(batch)
    assert sorted((row["_change_type"], row["id"]) for row in new) == [("delete", 1), ("insert", 9)]


@pytest.mark.in_ci
def test_a_stream_of_appends_stops_at_a_change_unless_told_to_pass_over_it(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    mine = query(spark, table, tmp_path, since="latest")
    table.insert(rows(spark, (1, "a", 1)))
    assert mine.run() == []
    table.insert(rows(spark, (2, "a", 1)))
    changing = table.delete("id = 1")
    with pytest.raises(StreamingQueryException, match=rf"commit {changing.instant} \(DELETE\) changed or deleted rows"):
        mine.run()
    mine.options["skipChangeCommits"] = "true"
    table.insert(rows(spark, (3, "a", 1)))
    assert sorted(row.id for batch in mine.run() for row in batch) == [2, 3]


@pytest.mark.in_ci
def test_changes_outside_its_partition_do_not_stop_a_stream_of_appends(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    mine = query(spark, table, tmp_path, partition="p=a")
    table.insert(rows(spark, (1, "a", 1), (2, "b", 1)))
    assert [[row.id for row in batch] for batch in mine.run()] == [[1]]
    table.upsert(rows(spark, (2, "b", 2), (3, "a", 1)))
    table.overwrite_partitions(rows(spark, (4, "b", 1)))
    table.delete("id = 4")
    assert sorted(row.id for batch in mine.run() for row in batch) == [3]
    changing = table.upsert(rows(spark, (1, "a", 2), (5, "b", 1)))
    with pytest.raises(StreamingQueryException, match=rf"commit {changing.instant} \(UPSERT\) changed or deleted rows"):
        mine.run()


@pytest.mark.in_ci
def test_new_columns_stop_a_stream_which_goes_on_with_them_when_started_again(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    mine = query(spark, table, tmp_path, since="2020-01-01")
    table.insert(rows(spark, (1, "a", 1)))
    frame = spark.readStream.format("lakelock").options(**mine.options).load(table.path)
    table.insert(spark.createDataFrame([(2, "a", 1, "x")], f"{COLUMNS}, note string"), merge_schema=True)
    started = frame.writeStream.foreachBatch(mine.keep).option("checkpointLocation", str(mine.checkpoint))
    running = started.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="start the query again with the same checkpoint"):
        running.awaitTermination(180)
    assert sorted((row.id, row.note) for batch in mine.run() for row in batch) == [(1, None), (2, "x")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"as_of": "2020-01-01"}, "as_of"),
        ({"include_meta": "yes please"}, "include_meta"),
        ({"max_files_per_trigger": "0"}, "max_files_per_trigger"),
        ({"since": "soon"}, "neither an instant time"),
    ],
)
def test_a_stream_that_is_refused_says_why(
    spark: SparkSession, table: LakeTable, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    """Spark loses an error of the reader that it asks the source for: it told an UnboundLocalError of its own."""
    with pytest.raises((StreamingQueryException, AnalysisException), match=says) as caught:
        query(spark, table, tmp_path, **options).run()
    assert "next: " in str(caught.value) and "UnboundLocalError" not in str(caught.value)
