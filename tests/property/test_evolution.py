"""Two changes of one table's columns: whatever merges can be read from the files of both sides, in either order."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.api import TableSchema

from lakelock.table.column_types import widens, wider
from lakelock.table.rows import read_as
from lakelock.table.schema import changed, is_readable_as, merged_schema

DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
ATOMS = st.sampled_from([pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()]) | DECIMALS


def fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    one = st.builds(pa.field, st.sampled_from("abcd"), types, st.booleans())
    return st.lists(one, min_size=1, max_size=4, unique_by=lambda field: field.name)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    maps = inner.map(lambda arrow: pa.map_(pa.string(), pa.field("value", arrow)))
    return fields(inner).map(pa.struct) | inner.map(lambda arrow: pa.list_(pa.field("element", arrow))) | maps


SCHEMAS = fields(st.recursive(ATOMS, nested, max_leaves=5)).map(lambda found: TableSchema(pa.schema(found)))


@st.composite
def grown(draw: st.DrawFn, old: TableSchema) -> TableSchema:
    """The columns after some changes that leave files as they are."""
    new = [_grown(draw, field) for field in old.arrow]
    more = draw(fields(ATOMS))
    return TableSchema(pa.schema([*new, *(f.with_nullable(True) for f in more if f.name not in old.names)]))


def _grown(draw: st.DrawFn, field: pa.Field) -> pa.Field:
    arrow, types = field.type, pa.types
    if types.is_struct(arrow):
        more = [pa.field("z", draw(ATOMS))] if draw(st.booleans()) and arrow.get_field_index("z") < 0 else []
        arrow = pa.struct([*(_grown(draw, child) for child in arrow), *more])
    elif types.is_list(arrow):
        arrow = pa.list_(_grown(draw, arrow.value_field))
    elif types.is_map(arrow):
        arrow = pa.map_(pa.string(), _grown(draw, arrow.item_field))
    else:
        wide = draw(ATOMS)
        arrow = wide if widens(arrow, wide) else arrow
    return pa.field(field.name, arrow, field.nullable or draw(st.booleans()))


@given(st.data(), SCHEMAS)
def test_what_merges_is_readable_from_the_files_of_both_sides(data: st.DataObject, base: TableSchema) -> None:
    theirs, mine = data.draw(grown(base)), data.draw(grown(base))
    assert is_readable_as(base, theirs) and is_readable_as(base, mine)
    both, problems = merged_schema(base, theirs, mine)
    back, same = merged_schema(base, mine, theirs)
    assert bool(problems) == bool(same)
    if not problems:
        assert is_readable_as(theirs, both) and is_readable_as(mine, both) and is_readable_as(back, both)
        assert merged_schema(theirs, theirs, both) == (both, [])
    if mine == base:
        assert (both, problems) == (theirs, [])


@given(st.data(), SCHEMAS)
def test_files_of_before_are_read_in_the_columns_of_now(data: st.DataObject, base: TableSchema) -> None:
    now = data.draw(grown(base))
    empty = pa.table([pa.nulls(0, field.type) for field in base.arrow], schema=base.arrow)
    assert read_as(empty, now.arrow, "f").schema == now.arrow
    assert (changed(base.arrow, now.arrow) == []) == (base == now)


@given(ATOMS, ATOMS)
def test_the_wider_of_two_types_holds_both_and_nothing_less_does(one: pa.DataType, other: pa.DataType) -> None:
    found = wider(one, other)
    assert found == wider(other, one)
    if found is not None:
        assert all(each == found or widens(each, found) for each in (one, other))
    assert not (widens(one, other) and widens(other, one))
