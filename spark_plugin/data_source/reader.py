"""Reading through `format("lakelock")`: the snapshot's files as Arrow, a task per file.

`LakeTable.read` is several times faster on large tables, because it uses Spark's own Parquet reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakelock.errors import SettingsError
from lakelock.occ.change_feed import feed_between
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.reading import ensure_in_order, ensure_not_future
from lakelock.occ.targets import files_within, resources_of, within
from lakelock.spark_plugin.data_source.asked import check_asked
from lakelock.spark_plugin.data_source.change_options import position_of_text
from lakelock.spark_plugin.data_source.options import SourceOptions
from lakelock.spark_plugin.data_source.partitions import FilePartition, MergedPartition, UnitPartition, unit_partitions
from lakelock.spark_plugin.data_source.told import plainly
from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.spark_plugin.peers.uses import READS, Use
from lakelock.spark_plugin.session.conf import OF_READS
from lakelock.storage.location import StorageLocation
from lakelock.table.change_feed import Unit
from lakelock.table.instants import as_of_time
from lakelock.table.schema import TableSchema
from lakelock.table.slice_differences import feed_schema


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
                self._partitions += map(FilePartition, files_within(shown.snapshot, targets))
                merged = shown.merged(self._columns)
                self._partitions += [MergedPartition(slice_, merged) for slice_ in shown.logged_within(targets)]
        self._location = StorageLocation.of(parsed.path, parsed.settings.storage)

    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._parsed.ensure_session_known(OF_READS)
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
