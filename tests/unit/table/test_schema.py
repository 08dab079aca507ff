"""Schemas: written as Hudi writes them, read from what Java wrote, and refusing what would lose something."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from tests.api import TableSchema

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.table.column_types import decimal_bytes, stored_otherwise
from lakelock.table.rows import conform, read_as
from lakelock.table.schema import META_COLUMNS, check_write

JAVA = (
    '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{"name":"id","type":["null","string"],"default":null},'
    '{"name":"v","type":["null","long"],"default":null},{"name":"ts","type":["null","long"],"default":null},'
    '{"name":"region","type":["null","string"],"default":null}]}'
)
ATOMS = {
    "a_boolean": pa.bool_(),
    "a_byte": pa.int8(),
    "a_short": pa.int16(),
    "an_int": pa.int32(),
    "a_long": pa.int64(),
    "a_float": pa.float32(),
    "a_double": pa.float64(),
    "a_decimal": pa.decimal128(20, 5),
    "a_string": pa.string(),
    "a_binary": pa.binary(),
    "a_date": pa.date32(),
    "a_timestamp": pa.timestamp("us", tz="America/New_York"),
    "a_timestamp_ntz": pa.timestamp("us"),
    "a_struct": pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.list_(pa.decimal128(9, 2)))]),
    "an_array": pa.list_(pa.struct([("z", pa.string())])),
    "a_map": pa.map_(pa.string(), pa.struct([("w", pa.timestamp("us", tz="UTC"))])),
}


def schema_of(**columns: pa.DataType) -> TableSchema:
    return TableSchema.from_arrow(pa.schema(list(columns.items())))


def test_the_commit_schema_is_what_java_writes_byte_for_byte() -> None:
    schema = schema_of(id=pa.string(), v=pa.int64(), ts=pa.int64(), region=pa.string())
    assert schema.to_avro_json("t") == JAVA
    assert TableSchema.from_avro_json(JAVA) == schema


def test_the_create_schema_has_the_type_before_null_and_no_defaults() -> None:
    fields = json.loads(schema_of(v=pa.int64()).to_avro_json("t", null_first=False))["fields"]
    assert fields == [{"name": "v", "type": ["long", "null"]}]


@pytest.mark.parametrize("null_first", [True, False])
def test_every_spark_type_survives_the_way_through_avro(null_first: bool) -> None:
    schema = schema_of(**ATOMS)
    text = schema.to_avro_json("my-table", null_first=null_first)
    fastavro.parse_schema(json.loads(text))
    assert TableSchema.from_avro_json(text) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_narrow_integers_become_int_and_zones_become_utc() -> None:
    arrow = schema_of(**ATOMS).arrow
    assert arrow.field("a_byte").type == arrow.field("a_short").type == pa.int32()
    assert arrow.field("a_timestamp").type == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in arrow)


def test_columns_that_are_stored_in_another_integer_type_are_named() -> None:
    nested = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.map_(pa.string(), pa.int16())))])
    told = stored_otherwise(pa.schema([("a", pa.int16()), ("b", pa.int32()), ("s", nested)]))
    assert told == [f"{where} is stored as int32" for where in ("a: int16", "s.x: int8", "s.y.element.value: int16")]


def test_meta_columns_of_the_input_are_left_out() -> None:
    rows = pa.schema([(name, pa.string()) for name in META_COLUMNS] + [("id", pa.string())])
    assert TableSchema.from_arrow(rows).names == ["id"]


@pytest.mark.parametrize(
    ("arrow", "says"),
    [
        (pa.null(), "void"),
        (pa.duration("us"), "cast it"),
        (pa.month_day_nano_interval(), "cast it"),
        (pa.uint64(), "uint64"),
        (pa.time64("ns"), "time64"),
        (pa.decimal256(50, 2), "decimal256"),
        (pa.map_(pa.int32(), pa.string()), "string keys"),
        (pa.struct([]), "without fields"),
        (
            pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]),
            "variant",
        ),
    ],
)
def test_a_type_without_a_place_is_refused_with_its_column(arrow: pa.DataType, says: str) -> None:
    with pytest.raises(SchemaError, match="column strange") as refused:
        schema_of(good=pa.int64(), strange=arrow)
    assert says in str(refused.value) and refused.value.hint


@pytest.mark.parametrize("name", ["a b", "1st", "größe", "a.b", ""])
def test_names_that_avro_does_not_know_are_refused(name: str) -> None:
    with pytest.raises(SchemaError, match="column name"):
        schema_of(**{name: pa.int64()})


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(SchemaError, match="'Id' and 'ID'"):
        schema_of(Id=pa.int64(), ID=pa.int64())


def test_other_writers_types_are_read() -> None:
    fields = [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        {"name": "again", "type": ["null", "E"]},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
    ]
    arrow = TableSchema.from_avro_json(json.dumps({"type": "record", "name": "r", "fields": fields})).arrow
    assert arrow.types == [pa.string(), pa.string(), pa.timestamp("ms", tz="UTC"), pa.decimal128(9, 2), pa.binary(4)]
    assert [field.nullable for field in arrow] == [False, True, False, False, False]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"type":"record","name":"r","fields":[{"name":"a"}]}'])
def test_a_damaged_schema_is_reported_as_damage(text: str) -> None:
    with pytest.raises(CorruptTableError, match="here"):
        TableSchema.from_avro_json(text, "here")


def test_a_union_of_two_types_is_named() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"u","type":["int","string"]}]}'
    with pytest.raises(SchemaError, match="column u is a union of 2 types"):
        TableSchema.from_avro_json(text)


@pytest.mark.parametrize(("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (18, 8), (19, 9), (38, 16)])
def test_decimals_take_the_fewest_bytes(precision: int, size: int) -> None:
    assert decimal_bytes(precision) == size
    assert len((10**precision - 1).to_bytes(size, "big", signed=True)) == size


class TestCheckWrite:
    table = schema_of(id=pa.string(), v=pa.int64(), d=pa.decimal128(10, 2), s=pa.struct([("x", pa.int32())]))

    def test_order_does_not_matter_and_missing_columns_are_null(self) -> None:
        incoming = pa.schema([("v", pa.int16()), ("id", pa.large_string())])
        assert check_write(self.table, incoming) == self.table
        rows = conform(pa.table({"v": pa.array([1], pa.int16()), "id": pa.array(["a"], pa.large_string())}), self.table.arrow)
        assert rows.schema == self.table.arrow
        assert rows.to_pylist() == [{"id": "a", "v": 1, "d": None, "s": None}]

    @pytest.mark.parametrize(
        ("given", "table"),
        [
            (pa.int64(), pa.int32()),
            (pa.uint32(), pa.int32()),
            (pa.int64(), pa.float64()),
            (pa.int32(), pa.float32()),
            (pa.float64(), pa.float32()),
            (pa.float64(), pa.int64()),
            (pa.decimal128(12, 2), pa.decimal128(10, 2)),
            (pa.decimal128(10, 3), pa.decimal128(10, 2)),
            (pa.int32(), pa.decimal128(11, 2)),
            (pa.string(), pa.int64()),
            (pa.int64(), pa.string()),
            (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
            (pa.date32(), pa.timestamp("us", tz="UTC")),
            (pa.list_(pa.int64()), pa.list_(pa.int32())),
        ],
    )
    def test_a_type_that_could_lose_something_is_refused(self, given: pa.DataType, table: pa.DataType) -> None:
        with pytest.raises(SchemaError, match="c.* does not fit"):
            check_write(schema_of(c=table), pa.schema([("c", given)]))

    @pytest.mark.parametrize(
        ("given", "table"),
        [
            (pa.int8(), pa.int64()),
            (pa.uint16(), pa.int32()),
            (pa.int32(), pa.float64()),
            (pa.float32(), pa.float64()),
            (pa.decimal128(8, 1), pa.decimal128(10, 2)),
            (pa.int32(), pa.decimal128(12, 2)),
            (pa.null(), pa.string()),
            (pa.dictionary(pa.int32(), pa.string()), pa.string()),
            (pa.timestamp("ns", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC")),
            (pa.timestamp("s"), pa.timestamp("us")),
            (pa.large_list(pa.int8()), pa.list_(pa.int32())),
        ],
    )
    def test_a_type_that_fits_is_cast(self, given: pa.DataType, table: pa.DataType) -> None:
        schema = schema_of(c=table)
        check_write(schema, pa.schema([("c", given)]))
        rows = conform(pa.table({"c": pa.nulls(2, given)}), schema.arrow)
        assert rows.schema == schema.arrow and rows["c"].null_count == 2

    def test_all_misfits_are_named_at_once(self) -> None:
        incoming = pa.schema([("idd", pa.string()), ("v", pa.string()), ("s", pa.struct([("y", pa.int32())]))])
        with pytest.raises(SchemaError) as refused:
            check_write(self.table, incoming)
        text = str(refused.value)
        assert "v: string does not fit int64" in text and "did you mean 'id'" in text and "s.y: not a field" in text

    def test_new_columns_need_merge_schema_and_come_last(self) -> None:
        struct = pa.struct([("y", pa.string()), ("x", pa.int32())])
        incoming = pa.schema([("new", pa.int8()), ("id", pa.string()), ("s", struct)])
        with pytest.raises(SchemaError, match=r"write\.merge_schema=true"):
            check_write(self.table, incoming)
        merged = check_write(self.table, incoming, merge_schema=True)
        assert merged.names == ["id", "v", "d", "s", "new"]
        assert [child.name for child in merged.field("s").type] == ["x", "y"]
        assert check_write(merged, self.table.arrow) == merged

    def test_a_new_field_whose_name_differs_in_case_only_is_refused(self) -> None:
        twins = pa.schema([("id", pa.string()), ("s", pa.struct([("x", pa.int32()), ("X", pa.int32())]))])
        with pytest.raises(SchemaError, match=r"'s\.x' and 's\.X'"):
            check_write(self.table, twins, merge_schema=True)

    def test_merge_schema_does_not_change_types(self) -> None:
        with pytest.raises(SchemaError, match="v: double does not fit int64"):
            check_write(self.table, pa.schema([("v", pa.float64())]), merge_schema=True)

    def test_a_column_that_may_not_be_null_must_be_there_and_filled(self) -> None:
        table = TableSchema(pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.int64())]))
        with pytest.raises(SchemaError, match="id: missing"):
            check_write(table, pa.schema([("v", pa.int64())]))
        with pytest.raises(SchemaError, match="must not be null and is in 1 row"):
            conform(pa.table({"id": ["a", None], "v": [1, 2]}), table.arrow)


def test_values_that_do_not_fit_are_refused_not_rounded() -> None:
    schema = schema_of(t=pa.timestamp("us", tz="UTC"))
    rows = pa.table({"t": pa.array([1], pa.timestamp("ns", tz="UTC"))})
    with pytest.raises(SchemaError, match="date_trunc"):
        conform(rows, schema.arrow)


def test_nested_rows_are_rebuilt_in_the_tables_order() -> None:
    schema = schema_of(
        s=pa.struct([("x", pa.int64()), ("y", pa.string())]),
        a=pa.list_(pa.struct([("p", pa.int64()), ("q", pa.int64())])),
        m=pa.map_(pa.string(), pa.int64()),
    )
    given = pa.table(
        {
            "s": pa.array([None, {"y": "b", "x": 2}, {"y": None, "x": 3}], pa.struct([("y", pa.string()), ("x", pa.int32())])),
            "a": pa.array([[{"q": 9}], None, [{"q": 1}, None]], pa.list_(pa.struct([("q", pa.int8())]))),
            "m": pa.array([[("k", 1)], None, [("l", 2), ("m", None)]], pa.map_(pa.string(), pa.int16())),
        }
    )
    for start in (0, 1):
        rows = conform(given.slice(start), schema.arrow)
        rows.validate(full=True)
        assert (
            rows.to_pylist()
            == [
                {"s": None, "a": [{"p": None, "q": 9}], "m": [("k", 1)]},
                {"s": {"x": 2, "y": "b"}, "a": None, "m": None},
                {"s": {"x": 3, "y": None}, "a": [{"p": None, "q": 1}, None], "m": [("l", 2), ("m", None)]},
            ][start:]
        )


def test_stored_rows_are_normalised() -> None:
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)
    stored = pa.table(
        {
            "t": pa.array([moment], pa.timestamp("ns")),
            "n": pa.array([moment], pa.timestamp("ns")),
            "v": pa.array([1], pa.int32()),
            "gone": ["x"],
        }
    )
    schema = schema_of(t=pa.timestamp("us", tz="UTC"), n=pa.timestamp("us"), v=pa.int64(), added=pa.decimal128(5, 2))
    (row,) = read_as(stored, schema.arrow, "f.parquet").to_pylist()
    assert row == {"t": moment.replace(tzinfo=dt.timezone.utc), "n": moment, "v": 1, "added": None}


def test_stored_values_of_another_type_are_damage() -> None:
    with pytest.raises(CorruptTableError, match=r"f\.parquet"):
        read_as(pa.table({"v": ["x"]}), schema_of(v=pa.int64()).arrow, "f.parquet")


def test_decimals_keep_their_value() -> None:
    schema = schema_of(d=pa.decimal128(12, 4))
    rows = conform(pa.table({"d": pa.array([Decimal("1.25")], pa.decimal128(5, 2))}), schema.arrow)
    assert rows["d"].to_pylist() == [Decimal("1.2500")]


def test_the_schema_of_a_commit_is_parsed_once_however_many_commits_repeat_it() -> None:
    first, again = TableSchema.of_commit(JAVA), TableSchema.of_commit(str(JAVA.encode(), "utf-8"))
    assert again.arrow is first.arrow
