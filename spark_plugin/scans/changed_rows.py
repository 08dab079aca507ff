"""A frame over the changes of a range of commits: slices are compared on the executors, a file group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.spark_plugin.scans.numbered import MOST_TASKS, Numbered
from lakelock.spark_plugin.session.lost_spark import require_running
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.table.change_feed import FeedMode, Unit, in_need_of_pairs
from lakelock.table.schema import PARTITION_PATH, RECORD_KEY, TableSchema
from lakelock.table.slice_differences import STAMPS, FeedRows, feed_schema, paired

_PIECE = "_lakelock_piece"
PAIRED_BYTES = 16 * 1024 * 1024
"""How many bytes of Parquet files are behind the rows that are paired in one piece."""


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
        rows = FeedRows.of(columns, alone, zone)
        frames.append(Numbered(location, tuple(alone), rows.read).frame(spark, rows.columns))
    if together:
        rows = FeedRows.of(columns, together, zone, stamped=True)
        placed = pa.schema([pa.field(PARTITION_PATH, pa.string()), *rows.columns])
        compared = Numbered(location, tuple(together), partial(read_placed, rows)).frame(spark, placed)
        frames.append(_paired(compared, together, shown))
    return reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], spark_schema(shown))


def read_placed(rows: FeedRows, unit: Unit, storage: Storage) -> Iterator[pa.Table]:
    """On an executor: the changed rows of a unit, with their partition in front."""
    for found in rows.read(unit, storage):
        yield found.add_column(0, PARTITION_PATH, pa.repeat(unit.partition, found.num_rows))


def _paired(rows: DataFrame, units: Sequence[Unit], shown: pa.Schema) -> DataFrame:
    """One change for each key: what one file group lost and another one got meets by the hash of the key."""
    size_bytes: dict[str, int] = {}
    for unit in units:
        size_bytes[unit.partition] = size_bytes.get(unit.partition, 0) + unit.size_bytes
    pieces = max(1, -(-max(size_bytes.values()) // PAIRED_BYTES))
    keyed = rows.withColumn(_PIECE, F.pmod(F.xxhash64(RECORD_KEY), F.lit(pieces)).cast("int"))
    tasks = min(MOST_TASKS, pieces * len(size_bytes))
    gathered = keyed.repartition(tasks, PARTITION_PATH, _PIECE).sortWithinPartitions(PARTITION_PATH, _PIECE)
    return gathered.mapInArrow(partial(pair_stage, shown), spark_schema(shown))


def pair_stage(shown: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: pair the rows, which come in order of partition and piece, one piece after the other."""
    piece: list[pa.Table] = []
    for batch in batches:
        for rows in _runs(pa.Table.from_batches([batch])):
            if piece and _place(piece[0]) != _place(rows):
                yield from _told(shown, piece)
                piece = []
            piece.append(rows)
    if piece:
        yield from _told(shown, piece)


def _runs(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows, cut where the next piece begins."""
    begin = 0
    while begin < rows.num_rows:
        rest = rows.slice(begin)
        path, piece = _place(rest)
        same = pc.and_(pc.equal(rest.column(PARTITION_PATH), path), pc.equal(rest.column(_PIECE), piece))
        other = pc.index(same, False).as_py()
        count = rest.num_rows if other < 0 else other
        yield rest.slice(0, count)
        begin += count


def _place(rows: pa.Table) -> tuple[object, object]:
    return rows.column(PARTITION_PATH)[0].as_py(), rows.column(_PIECE)[0].as_py()


def _told(shown: pa.Schema, piece: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    rows = pa.concat_tables(piece).drop_columns([PARTITION_PATH, _PIECE])
    yield from paired(rows).drop_columns(list(STAMPS)).cast(shown).to_batches()
