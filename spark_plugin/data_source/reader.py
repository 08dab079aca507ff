"""Reading through `format("lakelock")`: the snapshot's files as Arrow, a task per file.

`LakeTable.read` is several times faster on large tables, because it uses Spark's own Parquet reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakelock.errors import InputError, SchemaError
from lakelock.near_misses import column_hint
from lakelock.occ.locking.targets import files_within, resources_of
from lakelock.spark_plugin.data_source.options import SourceOptions
from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.spark_plugin.session_conf import OF_READS
from lakelock.storage.location import StorageLocation
from lakelock.table.base_files.reader import BaseFile
from lakelock.table.instants import as_of_time
from lakelock.table.schema import TableSchema, check_write
from lakelock.table.snapshot import DataFile


def schema_of(options: Mapping[str, str], conf: Mapping[str, str]) -> StructType:
    """The table's columns."""
    parsed = SourceOptions.parse(options, conf)
    with parsed.open() as table:
        schema = table.schema(None if parsed.as_of is None else as_of_time(parsed.as_of))
    return spark_schema(schema.file_schema if parsed.include_meta else schema.arrow)


@dataclass
class FilePartition(InputPartition):
    """One base file to read."""

    file: DataFile


class LakelockReader(DataSourceReader):
    """Reads the snapshot that was current when the query was planned, or the requested one.

    It has no `pushFilters`: Spark would keep the plan of a filtered read for the next query over the same frame.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, conf: Mapping[str, str]) -> None:
        self._parsed = parsed = SourceOptions.parse(options, conf)
        with parsed.open() as table:
            as_of = None if parsed.as_of is None else as_of_time(parsed.as_of)
            found = table.schema(as_of)
            self._columns = arrow_schema(schema)
            _check_asked(found.file_schema if parsed.include_meta else found.arrow, self._columns)
            snapshot = table.snapshot(as_of)
            self._files = files_within(snapshot, resources_of(parsed.partition, table.properties))
        self._location = StorageLocation.of(parsed.path, parsed.settings.storage)

    def partitions(self) -> Sequence[InputPartition]:
        return [FilePartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._parsed.ensure_session_known(OF_READS)
        if not isinstance(partition, FilePartition):
            return  # Where there are no partitions, Spark asks for a single partition None.
        storage = self._location.open()
        with BaseFile(storage.open_input(partition.file.key), partition.file.key) as file:
            for table in file.batches(TableSchema(self._columns)):
                yield from table.to_batches()


class NotAStream(DataSourceStreamReader):
    """What `readStream` gets. Its first call fails: PySpark loses an error that comes before there is a reader."""

    def initialOffset(self) -> NoReturn:  # noqa: N802
        raise InputError(
            "a lake table is not a source of streams",
            hint="read in batches: LakeTable.for_path(spark, path).changes(since=instant), and keep the newest instant",
        )

    latestOffset = partitions = read = initialOffset  # type: ignore[assignment]  # noqa: N815


def _check_asked(columns: pa.Schema, asked: pa.Schema) -> None:
    """`SchemaError` for a column that the table lacks, or has in a type that does not fit. Any column may be left out."""
    unknown = [name for name in asked.names if name not in columns.names]
    if unknown:
        hint = column_hint(unknown[0], columns.names)
        raise SchemaError(f"the schema of the read asks for {', '.join(unknown)}, which the table does not have", hint=hint)
    check_write(TableSchema(pa.schema([field.with_nullable(True) for field in columns])), asked)
