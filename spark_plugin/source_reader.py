"""Reading through `format("lakelock")`: a snapshot's files as Arrow, a task per file, or a stream of commits.

`LakeTable.read` is several times faster on large tables, because it uses Spark's own Parquet reader. A task reads a file, or
the slices of a file group to compare. The columns that a read names itself, by `.schema(...)`, must be able to hold what the
table has.

`spark.readStream.format("lakelock")` gives the rows or changes of a table as they are committed, each commit exactly once.
Spark keeps one reader in one Python process as long as the query runs, and its offsets in the checkpoint. An offset names the
commits that were read, so what lies between two offsets stays the same, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakelock.errors import LakelockError, SchemaError, SettingsError
from lakelock.occ.change_feed import TableStream, ensure_columns_fit, ensure_comparable, feed_between
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.reading import ensure_in_order, ensure_not_future
from lakelock.occ.request import files_within, resources_of, within
from lakelock.spark_plugin.source_errors import plainly
from lakelock.spark_plugin.source_option_names import READS, Use
from lakelock.spark_plugin.source_options import LATEST, OF_READS, SourceOptions, position_of_text
from lakelock.spark_plugin.source_overwrites import note_first_read, note_query
from lakelock.spark_plugin.spark_session import arrow_schema, spark_schema
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.table.base_files import BaseFile
from lakelock.table.change_feed import Commit, StreamOffset, Unit
from lakelock.table.eligibility import require_slices
from lakelock.table.instants import as_of_time
from lakelock.table.merged_slices import LoggedSlice, MergedRows
from lakelock.table.rows import Fields, why_not_fits
from lakelock.table.schema import COMMIT_TIME, META_COLUMNS, TableSchema
from lakelock.table.slice_differences import FeedRows, feed_schema, opened, opened_or_gone
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline
from lakelock.texts import column_hint

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit


@dataclass
class FilePartition(InputPartition):
    """One base file to read; with a commit time only the rows that have it. `streamed`: as changes of a stream."""

    file: DataFile
    commit_time: str | None = None
    streamed: bool = False

    def read(self, columns: pa.Schema, storage: Storage) -> Iterator[pa.RecordBatch]:
        """In a task: the rows, with these columns."""
        with self._opened(storage, TableSchema(pa.schema([f for f in columns if f.name not in META_COLUMNS]))) as file:
            if self.commit_time is None:
                yield from (part for rows in file.batches(TableSchema(columns)) for part in rows.to_batches())
                return
            timed = pa.schema([pa.field(COMMIT_TIME, pa.string()), *(f for f in columns if f.name != COMMIT_TIME)])
            for rows in file.batches(TableSchema(timed)):
                mine = rows.filter(pc.equal(rows.column(COMMIT_TIME), self.commit_time))
                yield from mine.select(columns.names).to_batches()

    def _opened(self, storage: Storage, schema: TableSchema) -> BaseFile:
        if self.streamed:
            return opened(storage, self.file, schema)
        return opened_or_gone(
            storage,
            self.file,
            schema,
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


def check_asked(columns: pa.Schema, asked: pa.Schema) -> None:
    """`SchemaError` for a column that the table lacks, or whose values the asked type cannot all hold.

    Any column, and any field of a struct, may be left out.
    """
    unknown = [name for name in asked.names if name not in columns.names]
    if unknown:
        hint = column_hint(unknown[0], columns.names)
        raise SchemaError(f"the schema of the read asks for {', '.join(unknown)}, which the table does not have", hint=hint)
    there = arrow_schema(spark_schema(pa.schema([columns.field(name) for name in asked.names])))
    pairs = zip(there, asked, strict=True)
    problems = [why for field, wanted in pairs for why in _misfits(field.type, wanted.type, field.name)]
    if problems:
        raise SchemaError(
            "the schema of the read cannot hold what the table has:\n  " + "\n  ".join(problems),
            hint="name in .schema(...) the table's type, or one that holds all of its values, or leave the schema out; "
            "a cast in the query then says what is to become of values that do not fit",
        )


def _misfits(there: pa.DataType, asked: pa.DataType, where: str) -> Iterator[str]:
    """What the table has `there` that `asked` cannot hold, a sentence for each place."""
    types = pa.types
    if types.is_struct(there) and types.is_struct(asked):
        fields = Fields(there)
        for child in asked:
            found = fields.find(child.name)
            if found is None:
                yield f"{where}.{child.name}: the table's column has no such field"
            else:
                yield from _misfits(found.type, child.type, f"{where}.{child.name}")
    elif types.is_list(there) and types.is_list(asked):
        yield from _misfits(there.value_type, asked.value_type, f"{where}[]")
    elif types.is_map(there) and types.is_map(asked):
        yield from _misfits(there.key_type, asked.key_type, f"{where} (keys)")
        yield from _misfits(there.item_type, asked.item_type, f"{where}{{}}")
    elif why_not_fits(there, asked, where):
        yield f"{where}: the table has {_named(there)}, and the read asks for {_named(asked)}"


def _named(arrow: pa.DataType) -> str:
    """A type as Spark calls it."""
    found: str = spark_schema(pa.schema([("c", arrow)]))["c"].dataType.simpleString()
    return found


def schema_of(options: Mapping[str, str], conf: Mapping[str, str]) -> StructType:
    """The table's columns."""
    parsed = SourceOptions.parse(options, conf, READS, warn=True)
    with parsed.open() as table:
        return spark_schema(shown_columns(table.schema(_as_of(table, parsed)), parsed))


def shown_columns(schema: TableSchema, parsed: SourceOptions) -> pa.Schema:
    """The columns that a read with these options has."""
    if parsed.changes.feed:
        if parsed.include_meta:
            hint = "leave include_meta out: _commit_version and _commit_timestamp say when a change was made"
            raise SettingsError("a change feed has no meta columns", hint=hint)
        return feed_schema(schema)
    return schema.file_schema if parsed.include_meta else schema.arrow


class LakelockReader(DataSourceReader):
    """Reads the snapshot that was current when the query was planned, or the requested one.

    It has no `pushFilters`: Spark would keep the plan of a filtered read for the next query over the same frame.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, conf: Mapping[str, str]) -> None:
        self._parsed = parsed = SourceOptions.parse(options, conf, (Use.BATCH_READ,))
        parsed.changes.check_batch(parsed.as_of)
        self._columns = arrow_schema(schema)
        with parsed.open() as table:
            as_of = _as_of(table, parsed)
            targets = resources_of(parsed.partition, table.properties)
            self._partitions: list[InputPartition] = []
            if parsed.changes.feed:
                found = table.schema()
                check_asked(shown_columns(found, parsed), self._columns)
                units = [unit for unit in _units(table, found, parsed) if not targets or within(unit.partition, targets)]
                self._partitions += unit_partitions(units, found, self._columns, table.properties.timezone)
            else:
                shown = table.shown(as_of, parsed.query_type)
                check_asked(shown_columns(shown.schema, parsed), self._columns)
                if as_of is None:
                    note_first_read(parsed.location.uri, shown if parsed.query_type == "snapshot" else None)
                self._partitions += map(FilePartition, files_within(shown.snapshot, targets))
                merged = shown.merged(self._columns)
                self._partitions += [MergedPartition(slice_, merged) for slice_ in shown.logged_within(targets)]
        self._location = StorageLocation.of(parsed.path, parsed.settings.storage)

    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._parsed.ensure_session_known(OF_READS)
        note_query(self._parsed.location.uri)
        if isinstance(partition, FilePartition | MergedPartition | UnitPartition):
            yield from partition.read(self._columns, self._location.open())

        # Where there are no partitions, Spark asks for a single partition None.


def _as_of(table: Coordinator, parsed: SourceOptions) -> str | None:
    zone = table.properties.timezone
    return None if parsed.as_of is None else ensure_not_future(table.table, zone, as_of_time(parsed.as_of, zone), "as_of")


def _units(table: Coordinator, schema: TableSchema, parsed: SourceOptions) -> tuple[Unit, ...]:
    timeline, given = table.table.timeline(), {"since": parsed.changes.since, "until": parsed.changes.until}
    since, until = (
        None if text is None else position_of_text(table.table, timeline, text, table.properties.timezone, name)
        for name, text in given.items()
    )
    ensure_in_order(since or "", until)
    return feed_between(table.table, table.properties, schema, since or "", until).units


try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2 a source does not learn of limits and triggers
    ReadAllAvailable = ReadMaxFiles = None  # type: ignore[assignment, misc]
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]


class LakelockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table from offset to offset. It opens the table where it is first asked for an offset, never in a task."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, conf: Mapping[str, str], *, all_columns: bool = False
    ) -> None:
        """`all_columns`: the query has not named the columns of `schema`, they were those of the table."""
        self._all_columns = all_columns
        self._parsed = parsed = SourceOptions.parse(options, conf, (Use.STREAM_READ,))
        parsed.changes.check_stream(parsed.as_of)
        self._columns = arrow_schema(schema)
        self._opened: _Opened | None = None
        self._first: StreamOffset | None = None
        self._at: StreamOffset | None = None
        self._target: StreamOffset | None = None

    def __getstate__(self) -> dict[str, object]:
        """Tasks get the options and the columns, and no connection."""
        return {**self.__dict__, "_opened": None}

    @property
    def _table(self) -> _Opened:
        if self._opened is None:
            self._opened = _Opened(self._parsed, self._columns, self._all_columns)
        return self._opened

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._at = self._beginning()
        return self._at.to_json()

    def _beginning(self) -> StreamOffset:
        """Where a new query begins: the same offset whenever it is asked for, so that a reported end comes after it."""
        if self._first is None:
            since, stream = self._parsed.changes.since, self._table.stream
            if since == LATEST:
                self._first = stream.latest()
            else:
                table, zone = stream.table, self._table.coordinator.properties.timezone
                first = None if since is None else position_of_text(table, table.timeline(), since, zone, "since")
                self._first = stream.first(first)
        return self._first

    @plainly
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """The end of the next batch. Before Spark 4.2 the beginning is what this reader was last asked to plan.

        Before it is asked that, Spark does not say whether the query is new or where its checkpoint is. Then the end is that of
        all there is, whatever the limit: the end of a part would be a place that the query may have passed.
        """
        self._at = self._at if start is None else StreamOffset.from_json(start)
        everything = self._at is None or (limit is not None and isinstance(limit, ReadAllAvailable))
        if self._at is None:
            self._at = self._beginning()
        end = self._table.stream.next(self._at, None if everything else self._parsed.changes.most_files, self._target)
        return start if start is not None and end == self._at else end.to_json()

    @plainly
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._parsed.changes.most_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._table.stream.latest()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, self._at = StreamOffset.from_json(start), StreamOffset.from_json(end)
        return self._table.partitions(begin, self._at) if begin != self._at else []

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._parsed.ensure_session_known(OF_READS)
        if isinstance(partition, FilePartition | UnitPartition):
            yield from partition.read(self._columns, self._parsed.location.open())

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.coordinator.close()


class RefusedStream(DataSourceStreamReader):
    """A stream that is refused when it is asked for its beginning: Spark loses an error of `DataSource.streamReader`."""

    def __init__(self, error: LakelockError) -> None:
        self._error = error

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    latestOffset = partitions = read = initialOffset  # type: ignore[assignment]  # noqa: N815


class _Opened:
    """The table of a running stream."""

    def __init__(self, parsed: SourceOptions, columns: pa.Schema, all_columns: bool) -> None:
        self._parsed, self._columns, self._all_columns = parsed, columns, all_columns
        self.coordinator = parsed.open()
        try:
            require_slices(self.coordinator.properties, "a stream")
            if parsed.changes.feed:
                ensure_comparable(self.coordinator.properties)
            if not all_columns:
                check_asked(self._shown(), columns)
            self._targets = resources_of(parsed.partition, self.coordinator.properties)
        except BaseException:
            self.coordinator.close()
            raise
        options = parsed.changes
        self.stream = TableStream(
            self.coordinator.table, options.feed, options.skip_change_commits, self._ensure_fits, self._is_wanted
        )

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """What to read between two offsets. `SchemaError` if the table has other columns than the query."""
        self._check_columns()
        if self._parsed.changes.feed:
            units = [unit for unit in self.stream.units(start, end) if self._is_wanted(unit.partition)]
            return unit_partitions(units, self.coordinator.schema(), self._columns, self.coordinator.properties.timezone)
        found = [each for each in self.stream.appended(start, end) if self._is_wanted(each.file.partition)]
        return [FilePartition(each.file, each.commit_time, streamed=True) for each in found]

    def _ensure_fits(self, timeline: Timeline, commits: Sequence[Commit]) -> None:
        opened = self.coordinator
        ensure_columns_fit(opened.table, opened.properties, opened.schema(), timeline, commits)

    def _is_wanted(self, partition: str) -> bool:
        return not self._targets or within(partition, self._targets)

    def _shown(self) -> pa.Schema:
        return arrow_schema(spark_schema(shown_columns(self.coordinator.schema(), self._parsed)))

    def _check_columns(self) -> None:
        """A query that asked for all columns follows them; one that named some needs those, in types that hold the values."""
        now = self._shown()
        if not self._all_columns:
            check_asked(now, self._columns)
        elif now != self._columns:
            raise SchemaError(
                f"the columns of {self.coordinator.table.storage.uri} have changed since the query started: it has "
                f"{_listed(self._columns)}, the table now {_listed(now)}",
                hint="start the query again with the same checkpoint: it goes on where it was, with the columns as they are",
            )


def _listed(columns: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in columns)
