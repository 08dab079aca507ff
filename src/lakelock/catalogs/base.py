"""The entry of a table in a catalog, in the words of Hudi's own sync, and what every catalog can do.

Every engine that knows Hudi finds such a table. The names, values and types are those of Hudi 1.2 (`HMSDDLExecutor`,
`SparkDataSourceTableUtils`, `HoodieHiveSyncClient`, `HiveSchemaUtil`, `AvroToSparkJson`), with `support_timestamp=true`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from lakelock.errors import SchemaError, SettingsError
from lakelock.table.partitions import DEFAULT_PARTITION, partition_texts
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.timeline import Timeline

_NAME = re.compile(r"[A-Za-z0-9_]{1,128}")
Values = tuple[str, ...]
"""The text of each partition column, which identifies a partition."""


@dataclass(frozen=True)
class TableName:
    """A table's name in a catalog. Catalogs do not tell upper case from lower case; names are kept in lower case."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str, own: str = "") -> TableName:
        """`sales.orders`; or `sales`, where the table is called `own`. `SettingsError` for anything else."""
        parts = [part.strip().strip("`") for part in text.split(".")]
        if len(parts) == 1 and own:
            parts.append(own)
        if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
            raise SettingsError(
                f"{'.'.join(parts)[:300]!r} is not the name of a table in a catalog",
                hint='write database.table, in letters, digits and _: catalog.table = "sales.orders"',
                key="catalog.table",
            )
        return cls(parts[0].lower(), parts[1].lower())

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class Column:
    """A column with its type as Hive writes types; its name is in lower case."""

    name: str
    type: str


@dataclass(frozen=True)
class Entry:
    """A table as catalogs hold it. Partition columns are not among the `columns`, and stand for the last ones of the table."""

    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    parameters: Mapping[str, str]
    input_format: str
    output_format: str
    serde: str
    serde_parameters: Mapping[str, str]

    def is_in(self, found: Entry) -> bool:
        """Whether `found` says all that this entry says; it may have other parameters, too."""
        return (
            (self.location, self.columns, self.partition_columns) == (found.location, found.columns, found.partition_columns)
            and (self.input_format, self.output_format, self.serde) == (found.input_format, found.output_format, found.serde)
            and self.parameters.items() <= found.parameters.items()
            and self.serde_parameters.items() <= found.serde_parameters.items()
        )


class Catalog(Protocol):
    """One catalog. Every call is bounded in time; `CatalogError` when it does not answer, or refuses."""

    def find(self, name: TableName) -> Entry | None:
        """The entry of a table, None if there is none of the name."""

    def create(self, name: TableName, entry: Entry, *, with_database: bool) -> None:
        """Make the entry, and `with_database` its database; nothing happens if it was made meanwhile."""

    def update(self, name: TableName, entry: Entry) -> None:
        """Make the entry of an existing table say this; what it says besides stays."""

    def partitions(self, name: TableName) -> Mapping[Values, str]:
        """The partitions that the catalog has, with their locations, which are empty where asking for them takes more."""

    def add(self, name: TableName, entry: Entry, partitions: Mapping[Values, str]) -> None:
        """Add partitions, given with their locations; those that are there already stay as they are."""

    def drop(self, name: TableName, entry: Entry, partitions: Collection[Values]) -> None:
        """Take partitions out of the catalog; their files stay, and those that are gone already are passed over."""

    def close(self) -> None:
        """Let go of the connection. Never raises."""


_HIVE = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
_SPARK = {**_HIVE, pa.int32(): "integer", pa.int64(): "long"}


def hive_type(kind: pa.DataType) -> str:
    """A column's type as Hive writes it, such as `array<struct<id:bigint>>`; `SchemaError` where Hive has none."""
    types = pa.types
    if types.is_struct(kind):
        # A catalog takes field names in lower case only, as Hive compares them.
        return "struct<" + ",".join(f"{child.name.lower()}:{hive_type(child.type)}" for child in kind) + ">"
    if types.is_list(kind):
        return f"array<{hive_type(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{hive_type(kind.key_type)},{hive_type(kind.item_type)}>"
    return _atom(kind, _HIVE, lambda _: "timestamp")


def spark_schema_json(schema: pa.Schema, partition_columns: Sequence[str]) -> str:
    """The schema as `StructType.json()` writes it, with the partition columns last, as Spark's catalog has them."""
    last = [schema.field(name) for name in partition_columns]
    fields = [field for field in schema if field.name not in partition_columns]
    return json.dumps(_spark_struct([*fields, *last]), separators=(",", ":"), ensure_ascii=False)


def _spark_struct(fields: Sequence[pa.Field]) -> dict[str, object]:
    return {
        "type": "struct",
        "fields": [
            {"name": field.name, "type": _spark_type(field.type), "nullable": field.nullable, "metadata": {}}
            for field in fields
        ],
    }


def _spark_type(kind: pa.DataType) -> object:
    types = pa.types
    if types.is_struct(kind):
        return _spark_struct(list(kind))
    if types.is_list(kind):
        element = kind.value_field
        return {"type": "array", "elementType": _spark_type(element.type), "containsNull": element.nullable}
    if types.is_map(kind):
        key, item = _spark_type(kind.key_type), kind.item_field
        return {"type": "map", "keyType": key, "valueType": _spark_type(item.type), "valueContainsNull": item.nullable}
    return _atom(kind, _SPARK, lambda time: "timestamp" if time.tz else "timestamp_ntz")


def _atom(kind: pa.DataType, names: dict[pa.DataType, str], time: Callable[[pa.TimestampType], str]) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return time(kind)
    if kind not in names:
        raise SchemaError(
            f"catalogs have no type for {kind}", hint="leave the column out of the table, or leave the catalog out"
        )
    return names[kind]


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
        """The same table with its path spelled in this way, which may end with a slash."""
        entry, before, root = self.entry, len(self.entry.location), location.rstrip("/")
        spelled = replace(entry, location=location, serde_parameters={**entry.serde_parameters, _PATH: location})
        return Described(spelled, {values: root + where[before:] for values, where in self.partitions.items()})

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
        parameters={"EXTERNAL": "TRUE", **_for_spark(spark_schema_json(columns, fields), fields), **_synced(timeline)},
        input_format="org.apache.hudi.hadoop.HoodieParquetInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        serde="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        serde_parameters={"serialization.format": "1", _PATH: location, "hoodie.query.as.ro.table": "false"},
    )
    return Described(entry, {_values(path, properties): f"{location}/{path}" for path in partitions} if fields else {})


def without_sync(entry: Entry) -> Entry:
    """The entry as it is made: it knows of no commit until its partitions are there, too."""
    rest = {name: value for name, value in entry.parameters.items() if name not in (LAST_COMMIT, LAST_COMPLETION)}
    return replace(entry, parameters=rest)


def _for_spark(columns: str, partition_fields: tuple[str, ...]) -> dict[str, str]:
    parts = [columns[start : start + _LONGEST] for start in range(0, len(columns), _LONGEST)]
    properties = {_PROVIDER: "hudi", f"{_SCHEMA}.numParts": str(len(parts))}
    properties |= {f"{_SCHEMA}.part.{number}": part for number, part in enumerate(parts)}
    if partition_fields:
        properties[f"{_SCHEMA}.numPartCols"] = str(len(partition_fields))
        properties |= {f"{_SCHEMA}.partCol.{number}": name for number, name in enumerate(partition_fields)}
    return properties


def _synced(timeline: Timeline) -> dict[str, str]:
    if not timeline.commits:
        return {}
    return {LAST_COMMIT: timeline.commits[-1].requested, LAST_COMPLETION: timeline.newest_completion}


def _values(path: str, properties: TableProperties) -> Values:
    return tuple(DEFAULT_PARTITION if text is None else text for text in partition_texts(path, properties))
