"""Record keys as Hudi's key generators write them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.api import TableProperties

from lakelock.errors import SchemaError
from lakelock.table.record_keys import names_fields, record_keys


def test_a_single_key_is_its_value() -> None:
    assert record_keys(pa.table({"id": ["a", "ü/=%,:"], "v": [1, 2]}), ["id"]).to_pylist() == ["a", "ü/=%,:"]


def test_several_keys_name_their_fields() -> None:
    rows = pa.table({"b": pa.array([1, 2, 3], pa.int16()), "a": ["x", None, ""]})
    assert record_keys(rows, ["a", "b"]).to_pylist() == ["a:x,b:1", "a:__null__,b:2", "a:__empty__,b:3"]
    assert record_keys(rows.to_batches()[0], ["b"], named=True).to_pylist() == ["b:1", "b:2", "b:3"]


def test_every_key_type_has_hudis_text() -> None:
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)
    rows = pa.table(
        {
            "s": pa.array(["x"], pa.dictionary(pa.int8(), pa.string())),
            "l": pa.array(["y"], pa.large_string()),
            "i": [-5],
            "b": [True],
            "d": [dt.date(1999, 12, 31)],
            "t": pa.array([moment], pa.timestamp("us", tz="Europe/Berlin")),
            "n": pa.array([moment.replace(microsecond=0)], pa.timestamp("ns")),
            "ms": pa.array([1700000000123], pa.timestamp("ms", tz="UTC")),
            "e": [Decimal("1.50")],
            "z": pa.array([Decimal("0E-10")], pa.decimal128(20, 10)),
        }
    )
    fields = list(rows.column_names)
    assert record_keys(rows, fields).to_pylist() == [
        "s:x,l:y,i:-5,b:true,d:1999-12-31,t:1704164645678901,n:1704164645000000,ms:1700000000123,e:1.50,z:0E-10"
    ]


@pytest.mark.parametrize(
    ("rows", "fields", "says"),
    [
        ({"id": ["a", None, None]}, ["id"], "id is null in 2 rows"),
        ({"id": ["a", ""]}, ["id"], "empty string"),
        ({"a": ["x", None], "b": ["y", ""]}, ["a", "b"], "all null or empty in 1 row"),
        ({"Id": ["a"]}, ["id"], "did you mean 'Id'"),
        ({"id": [1.5]}, ["id"], "double cannot be part of a record key"),
        ({"id": [[1]]}, ["id"], "cannot be part of a record key"),
        ({"id": ["a"]}, [], "no record key"),
    ],
)
def test_a_row_without_a_key_is_refused(rows: dict[str, list[object]], fields: list[str], says: str) -> None:
    with pytest.raises(SchemaError) as refused:
        record_keys(pa.table(rows), fields)
    assert says in str(refused.value)


def test_no_rows_have_no_keys() -> None:
    rows = pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.int64())})
    assert record_keys(rows, ["a"]).to_pylist() == record_keys(rows, ["a", "b"]).to_pylist() == []


@pytest.mark.parametrize(
    ("keys", "partitions", "named"),
    [
        (["id"], [], False),
        (["id"], ["p"], False),
        (["id"], ["p", "q"], True),
        (["a", "b"], [], True),
        (["a", "b"], ["p"], True),
    ],
)
def test_keys_are_named_where_hudi_infers_its_complex_generator(keys: list[str], partitions: list[str], named: bool) -> None:
    assert names_fields(TableProperties.new("t", keys, partitions)) is named
