"""Columns that rows lack: how an upsert says so, and what it keeps."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFile, BaseFileWriter, Keyed, Stamp, TableSchema

from lakelock.errors import SchemaError
from lakelock.settings import MissingColumns, WriteSettings
from lakelock.table.rewriting import rewrite
from lakelock.table.rows import conform
from lakelock.table.schema import check_write, columns_of_upserts

ADDRESS = pa.struct([("street", pa.string()), ("zip", pa.string())])
STREET = pa.struct([("street", pa.string())])
TABLE = TableSchema.from_arrow(
    pa.schema([("id", pa.string()), ("v", pa.int64()), ("address", ADDRESS), ("stops", pa.list_(ADDRESS))])
)


def table_of(*fields: pa.Field) -> TableSchema:
    """A table as Java makes it, whose columns say themselves what may be null."""
    return TableSchema(pa.schema(fields))


def upserted(table: TableSchema, stored: list[dict], rows: pa.Table, missing: MissingColumns) -> list[dict]:
    """The rows of a file after an upsert by the key `id`."""

    def stamp(instant: str) -> Stamp:
        return Stamp("t", instant, "", f"f-0_1-2-3_{instant}.parquet")

    def keyed(found: pa.Table) -> Keyed:
        return Keyed(found, pa.chunked_array([found.column("id").to_pylist()], pa.string()))

    after = check_write(table, rows.schema, missing=missing)
    columns = columns_of_upserts(after, rows.schema, missing)
    first, second = io.BytesIO(), io.BytesIO()
    before = keyed(pa.Table.from_pylist(stored, table.arrow))
    writer = BaseFileWriter(first, table, stamp("20260101000000000"), WriteSettings(bloom_entries=10))
    writer.add_new(before.rows, before.keys)
    writer.close()
    with BaseFile(first, "base") as base:
        writer = BaseFileWriter(second, after, stamp("20260102000000000"), WriteSettings(bloom_entries=10))
        rewrite(base, writer, after, upserts=keyed(conform(rows, columns.arrow)))
        writer.close()
    return pq.read_table(second).select(after.names).to_pylist()


def test_what_is_missing_is_refused_with_its_names_the_loss_and_the_three_choices() -> None:
    given = pa.schema([("id", pa.string()), ("address", STREET)])
    with pytest.raises(SchemaError) as caught:
        check_write(TABLE, given, missing="error")
    assert caught.value.message == (
        "the rows lack 3 columns of the table: v, address.zip, stops; "
        "an upsert would write null over the stored values of every row that it updates"
    )
    for choice in ('"keep"', '"null"', '"error"', "write.missing_columns"):
        assert choice in (caught.value.hint or "")
    assert caught.value.details["columns"] == ["v", "address.zip", "stops"]


def test_rows_that_are_new_may_lack_every_column_that_may_be_null() -> None:
    assert check_write(TABLE, pa.schema([("id", pa.string()), ("address", STREET)])) == TABLE


def test_a_column_that_is_null_on_purpose_is_not_missing() -> None:
    given = pa.schema([("id", pa.string()), ("v", pa.null()), ("address", pa.null()), ("stops", pa.null())])
    assert check_write(TABLE, given, missing="error") == TABLE


def test_a_name_that_is_not_the_tables_is_said_before_what_is_missing() -> None:
    given = pa.schema([("id", pa.string()), ("v", pa.int64()), ("adress", ADDRESS), ("stops", pa.list_(ADDRESS))])
    with pytest.raises(SchemaError, match="did you mean 'address'"):
        check_write(TABLE, given, missing="error")


def test_a_struct_in_a_list_that_lacks_a_field_cannot_be_kept_and_is_named() -> None:
    given = pa.schema([("id", pa.string()), ("stops", pa.list_(STREET))])
    with pytest.raises(SchemaError, match=r"stops\[\]\.zip \(in a list"):
        check_write(TABLE, given, missing="keep")
    places = TableSchema.from_arrow(pa.schema([("id", pa.string()), ("places", pa.map_(pa.string(), ADDRESS))]))
    given = pa.schema([("id", pa.string()), ("places", pa.map_(pa.string(), STREET))])
    with pytest.raises(SchemaError, match=r"places\{\}\.zip \(in a map"):
        check_write(places, given, missing="keep")
    assert check_write(places, given, missing="null") == places


def test_a_struct_with_none_of_the_tables_fields_cannot_be_kept() -> None:
    given = pa.schema([("id", pa.string()), ("address", pa.struct([]))])
    with pytest.raises(SchemaError, match=r"address\.street \(the struct has none"):
        check_write(TABLE, given, missing="keep")


@pytest.mark.parametrize("missing", ["error", "keep", "null"])
def test_new_columns_and_new_fields_are_not_missing_ones(missing: MissingColumns) -> None:
    city = pa.struct([*ADDRESS, ("city", pa.string())])
    given = pa.schema([*(field for field in TABLE.arrow if field.name != "address"), ("address", city), ("n", pa.int64())])
    after = check_write(TABLE, given, merge_schema=True, missing=missing)
    assert after.field("address").type == city and after.names[-1] == "n"


def test_a_missing_column_beside_a_new_one_is_kept() -> None:
    given = pa.table({"id": ["a"], "address": [{"street": "Y", "city": "B"}]})
    with pytest.raises(SchemaError, match=r"v, address\.zip, stops"):
        check_write(TABLE, given.schema, merge_schema=True, missing="error")
    after = check_write(TABLE, given.schema, merge_schema=True, missing="keep")
    assert columns_of_upserts(after, given.schema, "keep").names == ["id", "address"]
    assert [child.name for child in columns_of_upserts(after, given.schema, "keep").field("address").type] == ["street", "city"]


@pytest.mark.parametrize(
    ("missing", "v", "address"), [("keep", 1, {"street": "Y", "zip": "1"}), ("null", None, {"street": "Y", "zip": None})]
)
def test_an_update_keeps_what_it_lacks_or_writes_null_over_it_as_told(missing, v, address) -> None:
    stored = [{"id": "a", "v": 1, "address": {"street": "X", "zip": "1"}, "stops": []}]
    rows = pa.table({"id": ["a", "b"], "address": pa.array([{"street": "Y"}, {"street": "Z"}])})
    kept = [] if missing == "keep" else None
    new = {"id": "b", "v": None, "address": {"street": "Z", "zip": None}, "stops": None}
    assert upserted(TABLE, stored, rows, missing) == [{"id": "a", "v": v, "address": address, "stops": kept}, new]


def test_a_null_struct_makes_the_stored_one_null_and_one_that_was_null_gets_nulls() -> None:
    stored = [{"id": "a", "address": {"street": "X", "zip": "1"}}, {"id": "b", "address": None}]
    rows = pa.table([["a", "b"], [None, {"street": "Y"}]], schema=pa.schema([("id", pa.string()), ("address", STREET)]))
    found = upserted(TABLE, stored, rows, "keep")
    assert [row["address"] for row in found] == [None, {"street": "Y", "zip": None}]


REQUIRED = pa.field("v", pa.int64(), nullable=False)


def test_a_column_that_must_not_be_null_may_be_missing_in_updates_only() -> None:
    table = table_of(pa.field("id", pa.string()), REQUIRED, pa.field("w", pa.int64()))
    rows = pa.table({"id": ["a", "b"], "w": [2, 3]})
    assert check_write(table, rows.schema, missing="keep") == table
    writer = BaseFileWriter(io.BytesIO(), table, Stamp("t", "2", "", "f-0_1-2-3_2.parquet"), WriteSettings(bloom_entries=10))
    with pytest.raises(SchemaError, match="column v must not be null and is in 2 rows, which lack it"):
        writer.add_new(rows, rows.column("id"))
    for missing in ("error", "null"):
        with pytest.raises(SchemaError, match="v: missing, and it must not be null"):
            check_write(table, rows.schema, missing=missing)


@pytest.mark.parametrize("merge_schema", [False, True])
def test_a_field_that_must_not_be_null_may_be_missing_in_updates_of_structs_that_are_there(merge_schema: bool) -> None:
    table = table_of(pa.field("id", pa.string()), pa.field("s", pa.struct([REQUIRED, ("w", pa.int64())])))
    rows = pa.table({"id": ["a"], "s": [{"w": 2}]})
    assert upserted(table, [{"id": "a", "s": {"v": 1, "w": 1}}], rows, "keep") == [{"id": "a", "s": {"v": 1, "w": 2}}]
    with pytest.raises(SchemaError, match=r"column s\.v must not be null"):
        upserted(table, [{"id": "a", "s": None}], rows, "keep")
    with pytest.raises(SchemaError, match=r"s\.v: missing, and it must not be null"):
        check_write(table, rows.schema, merge_schema)
