"""An update by rows that lack columns, and fields of structs, against a model of dictionaries."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from tests.api import BaseFile, BaseFileWriter, Keyed, Stamp, TableSchema

from lakelock.settings import WriteSettings
from lakelock.table.rewriting import rewrite
from lakelock.table.rows import conform
from lakelock.table.schema import check_write, columns_of_upserts

OLD, NEW = "20260101000000000", "20260102000000000"
GEO = pa.struct([("lat", pa.int64()), ("lon", pa.int64())])
HOME = pa.struct([("street", pa.string()), ("zip", pa.int64()), ("geo", GEO)])
SCHEMA = TableSchema.from_arrow(
    pa.schema([("id", pa.string()), ("ord", pa.int64()), ("v", pa.int64()), ("home", HOME), ("tags", pa.list_(pa.string()))])
)
SETTINGS = WriteSettings(row_group_rows=3, bloom_entries=10, batch_rows=2)
Value = Any


def stamp(instant: str) -> Stamp:
    return Stamp("t", instant, "", f"f-0_1-2-3_{instant}.parquet")


def keyed(rows: pa.Table) -> Keyed:
    return Keyed(rows, pa.chunked_array([rows.column("id").to_pylist()], pa.string()))


def base_of(rows: list[dict[str, Value]]) -> io.BytesIO:
    output = io.BytesIO()
    writer = BaseFileWriter(output, SCHEMA, stamp(OLD), SETTINGS)
    found = keyed(pa.Table.from_pylist(rows, SCHEMA.arrow))
    writer.add_new(found.rows, found.keys)
    writer.close()
    return output


def values(arrow: pa.DataType) -> st.SearchStrategy[Value]:
    if pa.types.is_struct(arrow):
        return st.none() | st.fixed_dictionaries({child.name: values(child.type) for child in arrow})
    if pa.types.is_list(arrow):
        return st.none() | st.lists(values(arrow.value_type), max_size=2)
    return st.none() | (st.integers(0, 9) if pa.types.is_integer(arrow) else st.sampled_from("xyz"))


def parts(arrow: pa.DataType) -> st.SearchStrategy[pa.DataType]:
    """The type, or one that lacks some fields of its structs, in any order."""
    if not pa.types.is_struct(arrow):
        return st.just(arrow)
    some = st.lists(st.sampled_from(list(arrow)), min_size=1, unique_by=lambda child: child.name)
    return some.flatmap(
        lambda children: st.tuples(*(parts(child.type) for child in children)).map(
            lambda types: pa.struct([child.with_type(t) for child, t in zip(children, types, strict=True)])
        )
    )


@st.composite
def incoming(draw: st.DrawFn) -> pa.Table:
    others = draw(st.lists(st.sampled_from(list(SCHEMA.arrow)[2:]), unique_by=lambda field: field.name))
    fields = [*list(SCHEMA.arrow)[:2], *(field.with_type(draw(parts(field.type))) for field in others)]
    row = st.fixed_dictionaries({field.name: values(field.type) for field in fields} | {"id": KEYS})
    schema = pa.schema(draw(st.permutations(fields)))
    return pa.Table.from_pylist(draw(st.lists(row, max_size=5, unique_by=lambda found: found["id"])), schema)


KEYS = st.sampled_from([f"k{i}" for i in range(6)])
STORED = st.fixed_dictionaries({field.name: values(field.type) for field in SCHEMA.arrow} | {"id": KEYS})


def over(stored: Value, new: Value, table: pa.DataType, given: pa.DataType) -> Value:
    """What the model says: a struct that is there on both sides is updated field by field."""
    if new is None or not pa.types.is_struct(table):
        return new
    there = {child.name: child.type for child in given}
    old = stored or {}
    return {
        child.name: over(old.get(child.name), new[child.name], child.type, there[child.name])
        if child.name in there
        else old.get(child.name)
        for child in table
    }


@given(st.lists(STORED, max_size=8), incoming(), st.booleans())
def test_a_partial_update_changes_exactly_the_columns_and_fields_that_are_given(
    stored: list[dict[str, Value]], rows: pa.Table, ordered: bool
) -> None:
    after = check_write(SCHEMA, rows.schema, missing="keep")
    upserts = keyed(conform(rows, columns_of_upserts(after, rows.schema, "keep").arrow))
    output = io.BytesIO()
    with BaseFile(base_of(stored), "base") as base:
        writer = BaseFileWriter(output, after, stamp(NEW), SETTINGS)
        rewrite(base, writer, after, upserts=upserts, ordering_field="ord" if ordered else None)
        writer.close()
    whole = pa.struct(list(SCHEMA.arrow))
    part = pa.struct(list(rows.schema))
    new = {row["id"]: row for row in rows.to_pylist()}
    rank = {None: -1} | {number: number for number in range(10)}
    wins = [row["id"] in new and (not ordered or rank[new[row["id"]]["ord"]] >= rank[row["ord"]]) for row in stored]
    expected = [over(row, new[row["id"]], whole, part) if win else row for row, win in zip(stored, wins, strict=True)]
    held = {row["id"] for row in stored}
    expected += [over(None, row, whole, part) for key, row in new.items() if key not in held]
    assert pq.read_table(output).select(SCHEMA.names).to_pylist() == expected


@given(incoming())
def test_whatever_is_missing_is_refused_by_its_name_and_nothing_else_is(rows: pa.Table) -> None:
    from lakelock.errors import SchemaError

    wanted = sorted(_paths(pa.struct(list(SCHEMA.arrow)), pa.struct(list(rows.schema)), ""))
    try:
        check_write(SCHEMA, rows.schema, missing="error")
        refused: list[str] = []
    except SchemaError as error:
        refused = sorted(error.details["columns"])
    assert refused == wanted


def _paths(table: pa.DataType, given: pa.DataType, where: str) -> list[str]:
    if not pa.types.is_struct(table):
        return []
    there = {child.name: child.type for child in given}
    missing = [where + child.name for child in table if child.name not in there]
    inside = (_paths(child.type, there[child.name], f"{where}{child.name}.") for child in table if child.name in there)
    return [*missing, *(path for paths in inside for path in paths)]
