"""What one task of a read through `format("lakelock")` reads: a file, or the slices of a file group to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.change_feed import Unit
from lakelock.table.merged_slices import LoggedSlice, MergedRows
from lakelock.table.schema import COMMIT_TIME, TableSchema
from lakelock.table.slice_differences import FeedRows, opened, opened_or_gone
from lakelock.table.snapshot import DataFile


@dataclass
class FilePartition(InputPartition):
    """One base file to read; with a commit time only the rows that have it. `streamed`: as changes of a stream."""

    file: DataFile
    commit_time: str | None = None
    streamed: bool = False

    def read(self, columns: pa.Schema, storage: Storage) -> Iterator[pa.RecordBatch]:
        """In a task: the rows, with these columns."""
        with self._opened(storage) as file:
            if self.commit_time is None:
                yield from (part for rows in file.batches(TableSchema(columns)) for part in rows.to_batches())
                return
            timed = pa.schema([pa.field(COMMIT_TIME, pa.string()), *(f for f in columns if f.name != COMMIT_TIME)])
            for rows in file.batches(TableSchema(timed)):
                mine = rows.filter(pc.equal(rows.column(COMMIT_TIME), self.commit_time))
                yield from mine.select(columns.names).to_batches()

    def _opened(self, storage: Storage) -> BaseFile:
        if self.streamed:
            return opened(storage, self.file)
        return opened_or_gone(
            storage,
            self.file,
            "since the first query over this frame or view, for which Spark planned the read",
            'load the frame again, spark.read.format("lakelock").load(path), or create the view again; to keep old files for '
            "longer, raise clean.keep_commits or clean.keep_hours",
        )


@dataclass
class MergedPartition(InputPartition):
    """A file slice with log files."""

    slice: LoggedSlice
    rows: MergedRows

    def read(self, columns: pa.Schema, storage: Storage) -> Iterator[pa.RecordBatch]:
        """In a task: the rows, with these columns."""
        for rows in self.rows.read(self.slice, storage):
            yield from rows.select(columns.names).cast(columns).to_batches()


@dataclass
class UnitPartition(InputPartition):
    """Slices to compare."""

    unit: Unit
    rows: FeedRows

    def read(self, columns: pa.Schema, storage: Storage) -> Iterator[pa.RecordBatch]:
        """In a task: the changes, with these columns."""
        for rows in self.rows.read(self.unit, storage):
            yield from rows.select(columns.names).cast(columns).to_batches()


def unit_partitions(units: Sequence[Unit], schema: TableSchema, asked: pa.Schema, zone: str) -> list[InputPartition]:
    """A partition for each unit, which reads only the columns that were asked for; `zone` is that of the table's instants."""
    needed = TableSchema(pa.schema([field for field in arrow_schema(spark_schema(schema.arrow)) if field.name in asked.names]))
    return [UnitPartition(unit, FeedRows.of(needed, [unit], zone)) for unit in units]
