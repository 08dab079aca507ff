"""The types of a table's columns as Hive writes them, and the columns as Spark's catalog keeps them.

Both as Hudi's sync writes them (`HiveSchemaUtil`, `AvroToSparkJson`), with `support_timestamp=true`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa

from lakelock.errors import SchemaError

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
