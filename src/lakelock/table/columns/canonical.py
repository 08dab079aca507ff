"""The types that a table stores: what each Arrow type becomes, and which have no place in a Hudi table."""

from __future__ import annotations

import re

import pyarrow as pa

from lakelock.errors import SchemaError
from lakelock.table.avro.types import LOCAL_MICROS, UTC_MICROS, element_field

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
_DELETED = "_hoodie_is_deleted"
_OPAQUE = {b"variant": "a variant", b"geometry": "a geometry", b"geography": "a geography"}


def is_name(name: str) -> bool:
    """Whether every reader accepts it as the name of a column or field."""
    return _NAME.match(name) is not None


def refuse_own_name(name: str) -> None:
    """`SchemaError` for a name that Hudi or lakelock gives to columns of its own, in whatever case; Spark asks for none."""
    if name.lower().startswith(_OWN) and name != _DELETED:
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
    return [told for field in schema for told in _wider_integers(field.type, field.name)]


def _wider_integers(arrow: pa.DataType, where: str) -> list[str]:
    types = pa.types
    if types.is_struct(arrow):
        return [told for child in arrow for told in _wider_integers(child.type, f"{where}.{child.name}")]
    if types.is_list(arrow):
        return _wider_integers(arrow.value_type, f"{where}.element")
    if types.is_map(arrow):
        return _wider_integers(arrow.item_type, f"{where}.value")
    return [f"{where}: {arrow} is stored as int32"] if arrow in (pa.int8(), pa.int16()) else []
