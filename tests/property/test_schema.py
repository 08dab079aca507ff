"""Any type survives Avro, and any rows survive being brought into the table's types."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.api import TableSchema

from lakelock.table.rows import conform, read_as, why_not_fits
from lakelock.table.schema import check_write

NAMES = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), min_size=1, max_size=4, unique=True)
ATOMS: st.SearchStrategy[pa.DataType] = st.sampled_from(
    [
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.float32(), pa.float64(), pa.string(),
        pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("ms"), pa.decimal128(7, 3),
    ]
)  # fmt: skip


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = NAMES.flatmap(
        lambda names: st.tuples(*[inner] * len(names)).map(lambda types: pa.struct(list(zip(names, types, strict=True))))
    )
    return inner.map(pa.list_) | inner.map(pa.large_list) | structs | inner.map(lambda value: pa.map_(pa.string(), value))


TYPES = st.recursive(ATOMS, _nested, max_leaves=6)


def values(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values of an Arrow type; the same few for each atom, so that nesting and nulls are what varies."""
    if pa.types.is_struct(arrow):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in arrow})
    if pa.types.is_map(arrow):
        return st.none() | st.dictionaries(st.sampled_from("ab"), values(arrow.item_type), max_size=2).map(
            lambda d: list(d.items())
        )
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return st.none() | st.lists(values(arrow.value_type), max_size=3)
    return st.sampled_from([None, *pa.array(["1", "0"]).cast(pa.int8()).cast(pa.int64()).to_pylist()]).map(
        lambda v: _atom(arrow, v)
    )


def _atom(arrow: pa.DataType, value: int | None) -> Any:
    if value is None:
        return None
    if pa.types.is_binary(arrow):
        return b"\x00" * value
    through = pa.int32() if pa.types.is_date32(arrow) else pa.int64() if pa.types.is_timestamp(arrow) else pa.int8()
    return pa.array([value], through).cast(arrow).to_pylist()[0]


COLUMN = TYPES.flatmap(lambda arrow: st.tuples(st.just(arrow), st.lists(values(arrow), max_size=5)))


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), TYPES, min_size=1, max_size=4), st.booleans())
def test_every_schema_survives_avro(columns: dict[str, pa.DataType], null_first: bool) -> None:
    schema = TableSchema.from_arrow(pa.schema(list(columns.items())))
    text = schema.to_avro_json("t", null_first=null_first)
    assert TableSchema.from_avro_json(text) == schema
    fastavro.parse_schema(json.loads(text))


@given(COLUMN, st.integers(0, 5))
def test_rows_keep_their_values_in_the_tables_types(column: tuple[pa.DataType, list[Any]], start: int) -> None:
    arrow, content = column
    given_rows = pa.table({"c": pa.array(content, arrow)}).slice(start)
    schema = check_write(TableSchema.from_arrow(given_rows.schema), given_rows.schema)
    assert why_not_fits(arrow, schema.field("c").type, "c") == []
    fitted = conform(given_rows, schema.arrow)
    fitted.validate(full=True)
    assert fitted.schema == schema.arrow
    assert fitted.to_pylist() == given_rows.to_pylist()
    assert read_as(fitted, schema.arrow, "f").equals(fitted)
