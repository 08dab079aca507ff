"""A table in the words of catalogs: what Hudi's own sync writes, so that every engine that knows Hudi finds it.

The names and values are those of Hudi 1.2 (`HMSDDLExecutor`, `SparkDataSourceTableUtils`, `HoodieHiveSyncClient`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lakelock.catalogs.base import Column, Entry, Values
from lakelock.catalogs.hive_types import hive_type, spark_schema_json
from lakelock.errors import SchemaError
from lakelock.table.partitions import DEFAULT_PARTITION, partition_texts
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.timeline import Timeline

LAST_COMMIT, LAST_COMPLETION = "last_commit_time_sync", "last_commit_completion_time_sync"
_PROVIDER = "spark.sql.sources.provider"
_SCHEMA = "spark.sql.sources.schema"
_PATH = "path"
_LONGEST = 4000
"""Metastores keep a parameter in a column of this many characters."""


@dataclass(frozen=True)
class Described:
    """A table as of one moment: its entry, and where each of its partitions is."""

    entry: Entry
    partitions: Mapping[Values, str]

    @property
    def last_commit(self) -> str:
        """The newest instant that the entry knows of; empty before the first commit."""
        return self.entry.parameters.get(LAST_COMMIT, "")

    def at(self, location: str) -> Described:
        """The same table with its path spelled in this way."""
        entry, before = self.entry, len(self.entry.location)
        spelled = replace(entry, location=location, serde_parameters={**entry.serde_parameters, _PATH: location})
        return Described(spelled, {values: location + where[before:] for values, where in self.partitions.items()})

    @property
    def last_completion(self) -> str:
        return self.entry.parameters.get(LAST_COMPLETION, "")


def described(
    location: str, properties: TableProperties, schema: TableSchema, partitions: Iterable[str], timeline: Timeline
) -> Described:
    """The table at `location`, as engines spell it; `SchemaError` for folders that do not tell their partition's values."""
    fields, columns = properties.partition_fields, schema.file_schema
    if missing := [name for name in fields if name not in columns.names]:
        raise SchemaError(
            f"the partition column {missing[0]} is not among the table's columns, so a catalog cannot have it",
            hint="leave catalog.type out for this table",
        )
    partitioned = tuple(Column(name.lower(), hive_type(columns.field(name).type)) for name in fields)
    entry = Entry(
        location=location,
        columns=tuple(Column(field.name.lower(), hive_type(field.type)) for field in columns if field.name not in fields),
        partition_columns=partitioned,
        parameters={"EXTERNAL": "TRUE", **_for_spark(columns_json(schema, fields), fields), **_synced(timeline)},
        input_format="org.apache.hudi.hadoop.HoodieParquetInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        serde="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        serde_parameters={"serialization.format": "1", _PATH: location, "hoodie.query.as.ro.table": "false"},
    )
    return Described(entry, {_values(path, properties): f"{location}/{path}" for path in partitions} if fields else {})


def columns_json(schema: TableSchema, partition_fields: tuple[str, ...]) -> str:
    """The table's columns, Hudi's five included, as Spark's catalog keeps them."""
    return spark_schema_json(schema.file_schema, partition_fields)


def without_sync(entry: Entry) -> Entry:
    """The entry as it is made: it knows of no commit until its partitions are there, too."""
    rest = {name: value for name, value in entry.parameters.items() if name not in (LAST_COMMIT, LAST_COMPLETION)}
    return replace(entry, parameters=rest)


def _for_spark(columns: str, partition_fields: tuple[str, ...]) -> dict[str, str]:
    parts = [columns[start : start + _LONGEST] for start in range(0, len(columns), _LONGEST)]
    told = {_PROVIDER: "hudi", f"{_SCHEMA}.numParts": str(len(parts))}
    told |= {f"{_SCHEMA}.part.{number}": part for number, part in enumerate(parts)}
    if partition_fields:
        told[f"{_SCHEMA}.numPartCols"] = str(len(partition_fields))
        told |= {f"{_SCHEMA}.partCol.{number}": name for number, name in enumerate(partition_fields)}
    return told


def _synced(timeline: Timeline) -> dict[str, str]:
    if not timeline.commits:
        return {}
    return {LAST_COMMIT: timeline.commits[-1].requested, LAST_COMPLETION: timeline.newest_completion}


def _values(path: str, properties: TableProperties) -> Values:
    return tuple(DEFAULT_PARTITION if text is None else text for text in partition_texts(path, properties))
