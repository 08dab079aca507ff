"""Types between Arrow and Avro's JSON, as Hudi's Spark writer names and nests them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakelock.errors import SchemaError

UTC_MICROS = pa.timestamp("us", tz="UTC")
LOCAL_MICROS = pa.timestamp("us")

_PLAIN_FROM_AVRO: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL_FROM_AVRO: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): UTC_MICROS,
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): LOCAL_MICROS,
}
_PLAIN_TO_AVRO: Mapping[pa.DataType, object] = {
    **{arrow: name for name, arrow in _PLAIN_FROM_AVRO.items() if name != "null"},
    **{arrow: {"type": base, "logicalType": logical} for (base, logical), arrow in _LOGICAL_FROM_AVRO.items()},
}


def element_field(element: pa.DataType, nullable: bool = True) -> pa.Field:
    """The element of an array, under the name that Parquet gives it."""
    return pa.field("element", element, nullable)


def arrow_fields(record: Mapping[str, Any], source: str) -> Iterator[pa.Field]:
    """The fields of an Avro record as Arrow fields."""
    yield from _FromAvro(source).fields(record)


class _FromAvro:
    """Reads one schema; named types may be used again by name after their definition, as Avro allows."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: dict[str, pa.DataType] = {}

    def fields(self, record: Mapping[str, Any], namespace: str = "", where: str = "") -> Iterator[pa.Field]:
        namespace = record.get("namespace", namespace)
        for field in record["fields"]:
            path = f"{where}{field['name']}"
            arrow, nullable = self._type(field["type"], namespace, path)
            yield pa.field(field["name"], arrow, nullable)

    def _type(self, avro: Any, namespace: str, where: str) -> tuple[pa.DataType, bool]:
        if isinstance(avro, list):
            branches = [branch for branch in avro if branch != "null"]
            if len(branches) != 1:
                raise SchemaError(
                    f"{self._source}: column {where} is a union of {len(branches)} types",
                    hint="only unions of one type and null have a meaning in Spark",
                )
            return self._type(branches[0], namespace, where)[0], len(branches) < len(avro)
        if isinstance(avro, str):
            return self._plain(avro, namespace, where), avro == "null"
        if isinstance(avro, dict):
            return self._complex(avro, namespace, where), False
        raise SchemaError(f"{self._source}: column {where} has no Avro type: {avro!r}")

    def _plain(self, name: str, namespace: str, where: str) -> pa.DataType:
        known = _PLAIN_FROM_AVRO.get(name) or self._named.get(name) or self._named.get(f"{namespace}.{name}")
        if known is None:
            raise SchemaError(f"{self._source}: column {where} has the unknown type {name!r}")
        return known

    def _complex(self, avro: Mapping[str, Any], namespace: str, where: str) -> pa.DataType:
        kind = avro.get("type")
        logical = avro.get("logicalType")
        if isinstance(kind, (dict, list)):
            return self._type(kind, namespace, where)[0]
        if logical == "decimal":
            return self._remember(avro, namespace, pa.decimal128(avro["precision"], avro.get("scale", 0)))
        if kind == "record":
            return self._remember(avro, namespace, pa.struct(list(self.fields(avro, namespace, f"{where}."))))
        if kind == "array":
            return pa.list_(element_field(*self._type(avro["items"], namespace, f"{where}[]")))
        if kind == "map":
            value, nullable = self._type(avro["values"], namespace, f"{where}{{}}")
            return pa.map_(pa.string(), pa.field("value", value, nullable))
        if kind == "enum":
            return self._remember(avro, namespace, pa.string())
        if kind == "fixed":
            return self._remember(avro, namespace, pa.binary(avro["size"]))
        return _LOGICAL_FROM_AVRO.get((str(kind), str(logical))) or self._plain(str(kind), namespace, where)

    def _remember(self, avro: Mapping[str, Any], namespace: str, arrow: pa.DataType) -> pa.DataType:
        if "name" in avro:
            name = avro["name"] if "." in avro["name"] else f"{avro.get('namespace', namespace)}.{avro['name']}"
            self._named[name] = self._named[avro["name"]] = arrow
        return arrow


def avro_record(name: str, namespace: str, fields: list[pa.Field], *, null_first: bool) -> dict[str, Any]:
    """An Avro record of Arrow fields. `null_first` unions have a null default, as in commits."""
    inner = f"{namespace}.{name}" if namespace else name
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [_avro_field(field, inner, null_first) for field in fields],
    }


def _avro_field(field: pa.Field, namespace: str, null_first: bool) -> dict[str, Any]:
    avro: dict[str, Any] = {
        "name": field.name,
        "type": _avro_type(field.type, field.nullable, field.name, namespace, null_first),
    }
    if field.nullable and null_first:
        avro["default"] = None
    return avro


def _avro_type(arrow: pa.DataType, nullable: bool, name: str, namespace: str, null_first: bool) -> Any:
    avro = _not_null(arrow, name, namespace, null_first)
    if not nullable:
        return avro
    return ["null", avro] if null_first else [avro, "null"]


def _not_null(arrow: pa.DataType, name: str, namespace: str, null_first: bool) -> Any:
    if arrow in _PLAIN_TO_AVRO:
        return _PLAIN_TO_AVRO[arrow]
    inner = f"{namespace}.{name}"
    if pa.types.is_decimal128(arrow):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": inner,
            "size": decimal_bytes(arrow.precision),
            "logicalType": "decimal",
            "precision": arrow.precision,
            "scale": arrow.scale,
        }
    if pa.types.is_fixed_size_binary(arrow):
        return {"type": "fixed", "name": "fixed", "namespace": inner, "size": arrow.byte_width}
    if pa.types.is_struct(arrow):
        return avro_record(name, namespace, list(arrow), null_first=null_first)
    if pa.types.is_list(arrow):
        return {"type": "array", "items": _avro_type(arrow.value_type, arrow.value_field.nullable, name, inner, null_first)}
    if pa.types.is_map(arrow):
        return {"type": "map", "values": _avro_type(arrow.item_type, arrow.item_field.nullable, name, inner, null_first)}
    raise SchemaError(f"column {name}: {arrow} has no place in an Avro schema")


def decimal_bytes(precision: int) -> int:
    """The fewest bytes that hold every number of `precision` digits with a sign."""
    return math.ceil((precision * math.log2(10) + 1) / 8)
