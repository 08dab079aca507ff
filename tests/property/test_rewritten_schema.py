"""Whatever another engine's columns are, lakelock writes a file again with exactly these columns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import BaseFile, BaseFileWriter, Keyed, Stamp, TableSchema

from lakelock.errors import SchemaError
from lakelock.settings import WriteSettings
from lakelock.table import base_files
from lakelock.table.rewriting import keys_among, rewrite
from lakelock.table.rows import conform
from lakelock.table.schema import META_COLUMNS

AT = "20261121092737397"
SMALL = WriteSettings(row_group_rows=4, bloom_entries=10)
ATOMS = st.sampled_from(
    [
        pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", tz="UTC"),
        pa.timestamp("us"), pa.timestamp("ms", tz="UTC"), pa.decimal128(7, 3), pa.decimal128(38, 10),
    ]
)  # fmt: skip
NAMES = st.lists(st.from_regex(r"[a-z_][a-z0-9]{0,3}", fullmatch=True), min_size=1, max_size=3, unique=True)


@pytest.fixture(params=[base_files.APART_ROWS, 1], ids=["whole", "apart"], scope="module", autouse=True)
def row_groups(request: pytest.FixtureRequest) -> Iterator[None]:
    """Row groups are written as a whole, or put together from chunks, as those of many rows are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_files, "APART_ROWS", request.param)
        yield


def _fields(names: list[str], types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    return st.tuples(*[st.builds(pa.field, st.just(name), types, st.booleans()) for name in names]).map(list)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = NAMES.flatmap(lambda names: _fields(names, inner)).map(pa.struct)
    lists = st.builds(lambda t, nullable: pa.list_(pa.field("element", t, nullable)), inner, st.booleans())
    maps = st.builds(lambda t, nullable: pa.map_(pa.string(), pa.field("value", t, nullable)), inner, st.booleans())
    return structs | lists | maps


TYPES = st.recursive(ATOMS, _nested, max_leaves=6)
ID = pa.field("id", pa.string(), nullable=False)
SCHEMAS = (
    NAMES.flatmap(lambda names: _fields([f"c_{name}" for name in names], TYPES))
    .flatmap(lambda fields: st.permutations([*fields, ID]))
    .map(pa.schema)
)


def values(arrow: pa.DataType, nullable: bool) -> st.SearchStrategy[Any]:
    """Python values of an Arrow type: the same few for each atom, so that nesting and nulls are what varies."""
    if pa.types.is_struct(arrow):
        found: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: values(f.type, f.nullable) for f in arrow})
    elif pa.types.is_map(arrow):
        found = st.dictionaries(st.sampled_from("ab"), values(arrow.item_type, arrow.item_field.nullable), max_size=2)
        found = found.map(lambda d: list(d.items()))
    elif pa.types.is_list(arrow):
        found = st.lists(values(arrow.value_type, arrow.value_field.nullable), max_size=3)
    elif pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        found = st.sampled_from(["", "x"] if pa.types.is_string(arrow) else [b"", b"\x00"])
    else:
        found = st.sampled_from([False, True] if pa.types.is_boolean(arrow) else pa.array([0, 1], arrow).to_pylist())
    return st.none() | found if nullable else found


def rows_of(schema: pa.Schema, most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    columns = {f.name: values(f.type, f.nullable) for f in schema if f.name != "id"}
    return st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=most)


def keyed(schema: pa.Schema, rows: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    return [{**row, "id": f"k{first + n}"} for n, row in enumerate(rows)]


def as_table(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as another engine hands them over: every column may be null, as it looks."""
    open_schema = pa.schema([pa.field(f.name, _opened(f.type)) for f in schema])
    return pa.Table.from_pylist(rows, schema=open_schema)


def _opened(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(f.name, _opened(f.type)) for f in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(pa.string(), _opened(arrow.item_type))
    return pa.list_(_opened(arrow.value_type)) if pa.types.is_list(arrow) else arrow


def foreign_file(schema: pa.Schema, rows: list[dict[str, Any]]) -> io.BytesIO:
    """A base file of another engine, by another writer, with exactly these columns."""
    fitted = conform(as_table(schema, rows), schema)
    keys = [row["id"] for row in rows]
    meta = [[AT] * len(keys), [f"{AT}_0_{n}" for n in range(len(keys))], keys, [""] * len(keys), ["f.parquet"] * len(keys)]
    columns = [*(pa.array(column, pa.string()) for column in meta), *fitted.columns]
    whole = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *schema])
    output = io.BytesIO()
    with pq.ParquetWriter(output, whole, store_schema=False) as writer:
        writer.write_table(pa.table(columns, schema=whole), row_group_size=3)
    return output


@given(st.data(), SCHEMAS)
def test_a_rewritten_file_has_exactly_the_columns_that_were_found(data: st.DataObject, schema: pa.Schema) -> None:
    stored = keyed(schema, data.draw(rows_of(schema, 7)), 0)
    changes = keyed(schema, data.draw(rows_of(schema, 4)), len(stored) - 1)
    source = foreign_file(schema, stored)
    table = TableSchema.from_avro_json(TableSchema(schema).to_avro_json("t"))
    assert table == TableSchema(schema)
    output, stamp = io.BytesIO(), Stamp("t", AT, "", f"a-0_0-0-0_{AT}.parquet")
    upserts = conform(as_table(schema, changes), table.arrow)
    upserts = Keyed(upserts, pa.chunked_array([upserts.column("id").combine_chunks()]))
    with BaseFile(source, "f") as base:
        writer = BaseFileWriter(output, table, stamp, SMALL)
        rewrite(base, writer, table, upserts=upserts, delete_mask=keys_among(pa.array(["k0"])))
        writer.close()
        assert pq.read_schema(output).equals(pq.read_schema(source), check_metadata=False)
    found = sorted(pq.read_table(output).select(schema.names).to_pylist(), key=lambda row: row["id"])
    expected = {row["id"]: row for row in stored if row["id"] != "k0"} | {row["id"]: row for row in changes}
    assert found == [expected[key] for key in sorted(expected)]


@given(SCHEMAS, st.booleans())
def test_every_nullability_survives_avro(schema: pa.Schema, null_first: bool) -> None:
    text = TableSchema(schema).to_avro_json("t", null_first=null_first)
    assert TableSchema.from_avro_json(text) == TableSchema(schema)
    fastavro.parse_schema(json.loads(text))


STRICT = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.list_(pa.field("element", pa.int64(), False)))])


@pytest.mark.parametrize(
    ("value", "where"),
    [({"x": None, "y": []}, "c.x"), ({"x": 1, "y": [None]}, r"c.y\[\]"), (None, "c must not")],
)
def test_a_null_in_a_field_that_must_not_be_null_is_named(value: Any, where: str) -> None:
    schema = pa.schema([pa.field("c", STRICT, nullable=False)])
    rows = as_table(schema, [{"c": {"x": 1, "y": [2]}}, {"c": value}])
    with pytest.raises(SchemaError, match=f"column {where}"):
        conform(rows, schema)


@pytest.mark.parametrize("fields", [list(STRICT), list(_opened(STRICT))], ids=["as the table says", "as Spark hands them over"])
def test_a_null_struct_may_have_fields_that_must_not_be_null(fields: list[pa.Field]) -> None:
    """Spark's rows are null below a null struct, too, and Parquet's writer refuses that in fields that must not be null."""
    below = [pa.array([1, None], fields[0].type), pa.array([[2], None], fields[1].type)]
    column = pa.StructArray.from_arrays(below, fields=fields, mask=pa.array([False, True]))
    fitted = conform(pa.table({"c": column}), pa.schema([pa.field("c", STRICT)]))
    output = io.BytesIO()
    pq.write_table(fitted, output, store_schema=False)
    assert pq.read_table(output).to_pylist() == [{"c": {"x": 1, "y": [2]}}, {"c": None}]
