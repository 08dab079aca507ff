"""The types of a table's columns: what each Arrow type is stored as, its name in Avro's JSON, and what it may grow into.

Names and nesting in Avro's JSON are those of Hudi's Spark writer.

A type may grow into one that holds every stored value, where all readers show old files in it: int to long or double,
float to double, and decimals to more digits on either side of the point. Parquet readers of Spark 4, Java Hudi 1.2 and
hudi-rs were tried with each (ADR 23). Not long to double, which rounds, and which Spark's reader refuses.
"""

from __future__ import annotations

import math
import re
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


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ATOMS = {
    **{
        same: same
        for same in (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
    },
    **dict.fromkeys((pa.int8(), pa.int16(), pa.uint8(), pa.uint16()), pa.int32()),
    **dict.fromkeys((pa.large_string(), pa.string_view()), pa.string()),
    **dict.fromkeys((pa.large_binary(), pa.binary_view()), pa.binary()),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
OWN_PREFIX = "_lakelock_"
"""How the names of columns begin that frames have on their way through Spark."""
_OWN = (OWN_PREFIX, "_hoodie_")
DELETED = "_hoodie_is_deleted"
"""A boolean column that a schema may have: rows with true in it are deletions to Hudi's writers."""
_OPAQUE = {b"variant": "a variant", b"geometry": "a geometry", b"geography": "a geography"}


def is_name(name: str) -> bool:
    """Whether every reader accepts it as the name of a column or field."""
    return _NAME.match(name) is not None


def refuse_own_name(name: str) -> None:
    """`SchemaError` for a name that Hudi or lakelock gives to columns of its own, in whatever case; Spark asks for none."""
    if name.lower().startswith(_OWN) and name != DELETED:
        raise SchemaError(
            f"{name!r} cannot be the name of a column: names that begin with {' or '.join(_OWN)} are those of Hudi's and "
            "lakelock's own columns",
            hint="rename the column before writing",
            column=name,
        )


def new_column(field: pa.Field) -> pa.Field:
    """The table column that holds an incoming column: canonical type, may be null, a name that every reader accepts."""
    if not is_name(field.name):
        raise SchemaError(
            f"{field.name!r} cannot be a column name: Avro, in which Hudi keeps schemas, allows letters, digits and _ only",
            hint="rename the column before writing",
        )
    refuse_own_name(field.name)
    return pa.field(field.name, _canonical(field, field.name))


def canonical(arrow: pa.DataType, name: str = "value") -> pa.DataType:
    """The type that a table stores for `arrow`, or `SchemaError` where it stores none."""
    return _canonical(pa.field(name, arrow), name)


def _canonical(field: pa.Field, where: str) -> pa.DataType:
    arrow = field.type
    types = pa.types
    if types.is_dictionary(arrow):
        return _canonical(pa.field(field.name, arrow.value_type), where)
    if types.is_struct(arrow):
        return _canonical_struct(arrow, where)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return pa.list_(element_field(_canonical(arrow.value_field, f"{where}[]")))
    if types.is_map(arrow):
        if arrow.key_type not in (pa.string(), pa.large_string()):
            raise _refusal(where, f"a map with {arrow.key_type} keys", "Avro maps have string keys: cast the keys")
        return pa.map_(pa.string(), pa.field("value", _canonical(arrow.item_field, f"{where}{{}}")))
    if types.is_null(arrow):
        raise _refusal(where, "a column without a type (void)", "cast it to the type it will have")
    atom = _ATOMS.get(arrow) or _sized_atom(arrow)
    if atom is None:
        raise _refusal(where, str(arrow), "Hudi tables have no such type: cast it, for example to string or bigint")
    return atom


def _sized_atom(arrow: pa.DataType) -> pa.DataType | None:
    """The stored type of one that has parameters."""
    if pa.types.is_timestamp(arrow):
        return UTC_MICROS if arrow.tz else LOCAL_MICROS
    if pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return pa.decimal128(arrow.precision, arrow.scale)
    return None


def _canonical_struct(arrow: pa.StructType, where: str) -> pa.DataType:
    for child in arrow:
        for mark, what in _OPAQUE.items():
            if mark in (child.metadata or {}):
                raise _refusal(where, what, "cast it to string, for example with to_json")
    if arrow.num_fields == 0:
        raise _refusal(where, "a struct without fields", "Parquet cannot hold it: drop the column")
    refuse_twins([f"{where}.{child.name}" for child in arrow])
    return pa.struct([pa.field(child.name, nested_type(child, where)) for child in arrow])


def nested_type(child: pa.Field, where: str) -> pa.DataType:
    """The type that a table stores for a new field of the struct `where`."""
    if not is_name(child.name):
        raise _refusal(where, f"a struct with the field name {child.name!r}", "rename it: letters, digits and _ only")
    return _canonical(child, f"{where}.{child.name}")


def _refusal(where: str, what: str, hint: str) -> SchemaError:
    return SchemaError(f"column {where}: {what} cannot be stored", hint=hint)


def refuse_twins(names: list[str]) -> None:
    """`SchemaError` for two names that differ in case only."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise SchemaError(
                f"two columns have names that Spark cannot tell apart: {seen[name.lower()]!r} and {name!r}",
                hint="rename or drop one of them",
            )
        seen[name.lower()] = name


def stored_otherwise(schema: pa.Schema) -> list[str]:
    """Each column or field that the table stores in a wider integer type than the given one, as a sentence."""
    return [text for field in schema for text in _wider_integers(field.type, field.name)]


def _wider_integers(arrow: pa.DataType, where: str) -> list[str]:
    types = pa.types
    if types.is_struct(arrow):
        return [text for child in arrow for text in _wider_integers(child.type, f"{where}.{child.name}")]
    if types.is_list(arrow):
        return _wider_integers(arrow.value_type, f"{where}.element")
    if types.is_map(arrow):
        return _wider_integers(arrow.item_type, f"{where}.value")
    return [f"{where}: {arrow} is stored as int32"] if arrow in (pa.int8(), pa.int16()) else []


_MOST_DIGITS = 38
_WIDER = {pa.int32(): (pa.int64(), pa.float64()), pa.float32(): (pa.float64(),)}
ALLOWED = "int to long or double, float to double, decimals to more digits on both sides of the point"


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a column that is not nested may grow from one type into the other."""
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        return bool(old != new and new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return new in _WIDER.get(old, ())


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The least type that both may grow into, or are; None if there is none."""
    if one == other or widens(other, one):
        return one
    if widens(one, other):
        return other
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        scale = max(one.scale, other.scale)
        precision = max(each.precision - each.scale for each in (one, other)) + scale
        return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else None
    return None


def keeps_text(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether all values read the same in both types, as record keys and names of partitions spell them."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale)
    return bool(old == new or (pa.types.is_integer(old) and pa.types.is_integer(new)))
