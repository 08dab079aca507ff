"""A frame over the changes of a range of commits: slices are compared on the executors, a file group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.spark_plugin.lost_spark import require_running
from lakelock.storage.location import StorageLocation
from lakelock.table.change_feed.pairing import paired
from lakelock.table.change_feed.rows import STAMPS, FeedRows, feed_schema
from lakelock.table.change_feed.units import FeedMode, Unit, in_need_of_pairs
from lakelock.table.schema import PARTITION_PATH, RECORD_KEY, TableSchema

MOST_TASKS = 1_000
PAIRED_BYTES = 16 * 1024 * 1024
"""How many bytes of Parquet files are behind the rows that are paired in one piece."""


@dataclass(frozen=True)
class ComparePlan:
    """What a task needs; the numbers of its units arrive as rows."""

    location: StorageLocation
    rows: FeedRows
    units: tuple[Unit, ...]

    @property
    def columns(self) -> pa.Schema:
        path = [pa.field(PARTITION_PATH, pa.string())] if self.rows.stamped else []
        return pa.schema([*path, *self.rows.columns])


def changed_rows(
    spark: SparkSession, location: StorageLocation, schema: TableSchema, units: Sequence[Unit], zone: str, mode: FeedMode
) -> DataFrame:
    """The rows of the feed. `zone` is that of the table's instants. A file that was cleaned meanwhile fails the job."""
    require_running(spark)
    # The types that Spark expects of a Python stage.
    columns = TableSchema(arrow_schema(spark_schema(schema.arrow)))
    shown = feed_schema(columns)
    pairs = in_need_of_pairs(units) if mode == "net" else frozenset()
    alone = [unit for unit in units if unit.partition not in pairs]
    together = [unit for unit in units if unit.partition in pairs]
    frames = []
    if alone:
        frames.append(_compared(spark, ComparePlan(location, FeedRows.of(columns, alone, zone), tuple(alone))))
    if together:
        rows = FeedRows.of(columns, together, zone, stamped=True)
        frames.append(_paired(_compared(spark, ComparePlan(location, rows, tuple(together))), together, shown))
    return reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], spark_schema(shown))


def _compared(spark: SparkSession, plan: ComparePlan) -> DataFrame:
    numbers = spark.range(0, len(plan.units), 1, min(len(plan.units), MOST_TASKS))
    return numbers.mapInArrow(partial(compare_stage, plan), spark_schema(plan.columns))


def compare_stage(plan: ComparePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: the changed rows of the units whose numbers came to this task."""
    storage = plan.location.open()
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        unit = plan.units[number]
        for rows in plan.rows.read(unit, storage):
            found = rows
            if plan.rows.stamped:
                found = rows.add_column(0, PARTITION_PATH, pa.repeat(unit.partition, rows.num_rows))
            yield from found.to_batches()


def _paired(rows: DataFrame, units: Sequence[Unit], shown: pa.Schema) -> DataFrame:
    """One change for each key: what one file group lost and another one got meets by the hash of the key."""
    size_bytes: dict[str, int] = {}
    for unit in units:
        size_bytes[unit.partition] = size_bytes.get(unit.partition, 0) + unit.size_bytes
    pieces = max(1, -(-max(size_bytes.values()) // PAIRED_BYTES))
    piece = F.pmod(F.xxhash64(RECORD_KEY), F.lit(pieces))

    # Spark looks at the type hints of what it is given, and knows no partial functions here.
    def pair_stage(changed: pa.Table) -> pa.Table:
        return paired(changed.drop_columns([PARTITION_PATH])).drop_columns(list(STAMPS)).cast(shown)

    return rows.groupBy(F.col(PARTITION_PATH), piece).applyInArrow(pair_stage, spark_schema(shown))
