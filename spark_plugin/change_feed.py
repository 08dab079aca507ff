"""What has changed in a `LakeTable`, and its slices with log files: frames whose rows tasks read in Python, a piece at a time.

The pieces go with the plan, and only their numbers are rows. Changes are the changed rows, or the feed of deletes, inserts and
updates of a range of commits: slices are compared on the executors, a file group at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.checked_calls import checked_calls
from lakelock.occ.change_feed import feed_between, position_at
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.reading import ReadView, ensure_in_order, ensure_not_future
from lakelock.spark_plugin.arguments import instant_of
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.spark_session import arrow_schema, needs_spark, require_running, spark_schema
from lakelock.spark_plugin.write_stages import numbers_of
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.table.change_feed import FeedMode, Unit, checked_mode, in_need_of_pairs, position_of, read_changes
from lakelock.table.eligibility import require_slices
from lakelock.table.merged_slices import LoggedSlice, MergedRows
from lakelock.table.partitions import PartitionValues
from lakelock.table.pruning import Pruning
from lakelock.table.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, TableSchema
from lakelock.table.slice_differences import STAMPS, FeedRows, feed_schema, paired
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline

P = TypeVar("P")

MOST_TASKS = 1_000


@dataclass(frozen=True)
class Numbered(Generic[P]):
    """What a task needs: the pieces, at least one, and how the rows of one are read."""

    location: StorageLocation
    pieces: tuple[P, ...]
    read: Callable[[P, Storage], Iterator[pa.Table]]

    def frame(self, spark: SparkSession, columns: pa.Schema) -> DataFrame:
        """The rows of all pieces, which have these columns."""
        numbers = spark.range(0, len(self.pieces), 1, min(len(self.pieces), MOST_TASKS))
        return numbers.mapInArrow(partial(numbered_stage, self), spark_schema(columns))


def numbered_stage(plan: Numbered[P], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of the pieces whose numbers came to this task."""
    storage = plan.location.open()
    for number in numbers_of(batches):
        for rows in plan.read(plan.pieces[number], storage):
            yield from rows.to_batches()


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
                yield from _batches_of(shown, piece)
                piece = []
            piece.append(rows)
    if piece:
        yield from _batches_of(shown, piece)


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


def _batches_of(shown: pa.Schema, piece: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    rows = pa.concat_tables(piece).drop_columns([PARTITION_PATH, _PIECE])
    yield from paired(rows).drop_columns(list(STAMPS)).cast(shown).to_batches()


@checked_calls
class TableChanges:
    """The part of a `LakeTable` that tells what commits have changed."""

    _spark: SparkSession
    _coordinator: Coordinator
    _rows: Callable[..., DataFrame]

    @needs_spark
    def changes(
        self,
        since: str | datetime | int,
        *,
        until: str | datetime | int | None = None,
        where: str | Column | None = None,
        feed: FeedMode | None = None,
    ) -> DataFrame:
        """What commits changed that completed after `since`, and not after `until`: instants, times, or a `_commit_version`.

        By default the changed rows in their newest version, with Hudi's five columns in front: `_hoodie_commit_time` is the
        instant of the change. Deleted rows do not appear. `where` chooses among these rows, as in `read`.

        With `feed="commits"` what each commit did, as Delta's change data feed has it: the table's columns, `_change_type`
        (`insert`, `update_preimage`, `update_postimage`, `delete`), `_commit_version`, which grows from commit to commit, and
        `_commit_timestamp`. With `feed="net"` what the commits did together: at most one change for each key, none if it came
        and went, and all with the version and time of the last commit. In both a row that was written again counts as updated,
        whatever its values; optimize changes no row, and an overwrite deletes and inserts. `InputError` that says from when on
        the feed is whole, if old files that it needs were cleaned.
        """
        require_slices(self._coordinator.properties, "a frame of changed rows")
        table = self._coordinator.table
        timeline = table.timeline_of_one_moment()
        begin = self._position(timeline, since, "since")
        end = None if until is None else self._position(timeline, until, "until")
        ensure_in_order(begin, end)
        if feed is not None:
            return self._feed(begin, end, where, checked_mode(feed))
        changes, schema = read_changes(table.storage, timeline, begin, end), self._coordinator.schema(end, timeline=timeline)
        shown = ReadView(Snapshot(changes.files), schema)
        if table.is_merge_on_read:
            shown = self._coordinator.changed_slices(timeline, changes, schema)
        frame = self._rows(shown, where, include_meta=True)
        return frame.where(F.col(COMMIT_TIME).isin([instant.requested for instant in changes.instants]))

    def _feed(self, begin: str, end: str | None, where: str | Column | None, mode: FeedMode) -> DataFrame:
        table, properties, schema = self._coordinator.table, self._coordinator.properties, self._coordinator.schema()
        shown = spark_schema(feed_schema(schema))
        condition = None if where is None else Condition.of(self._spark, shown, where)
        units = feed_between(table, properties, schema, begin, end, mode).units
        if condition is not None:
            # Partition columns only: what a file says of other columns need not be true of its other slice.
            by = Pruning(condition.predicate, PartitionValues.of(properties, schema.arrow))
            units = tuple(unit for unit in units if by.concerns(unit.partition))
        frame = changed_rows(self._spark, table.location, schema, units, properties.timezone, mode)
        return frame if condition is None else frame.where(condition.on(frame))

    def _position(self, timeline: Timeline, moment: str | datetime | int, name: str) -> str:
        table, zone = self._coordinator.table, self._coordinator.properties.timezone
        if isinstance(moment, int):
            position = position_of(moment)
            return ensure_not_future(table, zone, position, name) if position else position
        return position_at(table, timeline, ensure_not_future(table, zone, instant_of(moment, zone), name))


def merged_rows(spark: SparkSession, location: StorageLocation, rows: MergedRows, slices: Sequence[LoggedSlice]) -> DataFrame:
    """The rows of these slices, at least one. A file that was cleaned meanwhile fails the job."""
    return Numbered(location, tuple(slices), rows.read).frame(spark, rows.columns)
