"""Partition paths as Hudi's key generators make them, and the keys of a table's objects."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.api import FileGroupId, TableProperties, layout

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.table.partitions import partition_metadata, partition_path, partition_paths


def table(*fields: str, hive_style: bool = True, url_encode: bool = True) -> TableProperties:
    return TableProperties.new("t", ["id"], fields, hive_style=hive_style, url_encode=url_encode)


def path_of(value: str | None, *, hive_style: bool = False, url_encode: bool = True) -> str:
    return partition_path([value], ["f"], hive_style=hive_style, url_encode=url_encode)


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("plain", "plain"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("a b", "a b"),
        ("é😀", "é😀"),
        ("a=b:c?d*e", "a%3Db%3Ac%3Fd%2Ae"),
        ("\"#'{[]^\\", "%22%23%27%7B%5B%5D%5E%5C"),
        ("}&+,;@!~", "}&+,;@!~"),
        ("\x00\n\x7f", "%00%0A%7F"),
        ("2026-11-21 09:27", "2026-11-21 09%3A27"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_values_are_escaped_as_hive_and_hudi_escape_them(value: str | None, folder: str) -> None:
    assert path_of(value) == folder
    assert path_of(value, hive_style=True) == f"f={folder}"


def test_without_escaping_a_slash_is_a_folder_as_in_hudi() -> None:
    assert path_of("2026/11/21", url_encode=False) == "2026/11/21"
    assert path_of("100%", hive_style=True, url_encode=False) == "f=100%"


@pytest.mark.parametrize("value", ["..", "/etc", "a/../b", "a//b", "a/", ".", ".hoodie", ".hoodie/timeline", "a\0b"])
def test_values_that_lead_out_of_the_table_are_refused(value: str) -> None:
    with pytest.raises(SchemaError, match="not inside the table"):
        path_of(value, url_encode=False)


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize("url_encode", [True, False])
def test_a_text_that_has_the_folder_of_null_is_refused(value: str, url_encode: bool) -> None:
    with pytest.raises(SchemaError, match=f"the partition column f holds '{value}', which would be taken for null"):
        path_of(value, url_encode=url_encode)


def test_a_slash_that_is_not_escaped_is_refused_where_another_column_follows() -> None:
    with pytest.raises(SchemaError, match="the partition column a holds 'x/y', which reads as the folders of several columns"):
        partition_path(["x/y", "z"], ("a", "b"), hive_style=False, url_encode=False)
    assert partition_path(["x", "y/z"], ("a", "b"), hive_style=False, url_encode=False) == "x/y/z"


@pytest.mark.parametrize("value", ["a\tb", "\n", "\x01", "\x1f", "\x7f"])
@pytest.mark.parametrize("hive_style", [True, False])
def test_a_control_character_that_is_not_escaped_is_refused(value: str, hive_style: bool) -> None:
    with pytest.raises(SchemaError, match="f holds .*: object stores take no control character") as refused:
        path_of(value, hive_style=hive_style, url_encode=False)
    assert repr(value) in str(refused.value)
    assert "urlencode=true" in refused.value.hint
    assert path_of("\u0085 \u2028", url_encode=False) == "\u0085 \u2028"


def test_several_fields_nest_in_their_order() -> None:
    fields = ("month", "carrier")
    assert partition_path(["1", None], fields, hive_style=True, url_encode=True) == "month=1/carrier=__HIVE_DEFAULT_PARTITION__"
    assert partition_path(["1", "U A"], fields, hive_style=False, url_encode=True) == "1/U A"
    assert partition_path([], (), hive_style=True, url_encode=True) == ""


def test_a_whole_table_of_rows_gets_its_paths() -> None:
    rows = pa.table({"a": ["x/y", None, None, "x/y"], "b": pa.array([1, 2, 2, 1], pa.int8()), "id": [1, 2, 3, 4]})
    paths = partition_paths(rows, table("a", "b"))
    null = "a=__HIVE_DEFAULT_PARTITION__/b=2"
    assert paths.to_pylist() == ["a=x%2Fy/b=1", null, null, "a=x%2Fy/b=1"]
    assert paths.type == pa.dictionary(pa.int32(), pa.string()) and len(paths.dictionary) == 2
    batch = rows.to_batches()[0].slice(1)
    assert partition_paths(batch, table("b")).to_pylist() == ["b=2", "b=2", "b=1"]


def test_rows_of_a_table_without_partitions_are_in_its_root() -> None:
    rows = pa.table({"a": [1, 2]})
    assert partition_paths(rows, table()).to_pylist() == ["", ""]
    assert (
        partition_paths(rows.slice(0, 0), table()).to_pylist()
        == []
        == partition_paths(rows.slice(0, 0), table("a")).to_pylist()
    )


def test_every_type_reads_as_in_hudi() -> None:
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, dt.timezone.utc)
    rows = pa.table(
        {
            "s": pa.array(["x"], pa.dictionary(pa.int8(), pa.string())),
            "l": pa.array(["y"], pa.large_string()),
            "i": pa.array([-5], pa.int64()),
            "b": [True],
            "d": [dt.date(1999, 12, 31)],
            "t": pa.array([moment], pa.timestamp("us", tz="UTC")),
            "e": [Decimal("1.50")],
        }
    )
    fields = tuple(rows.schema.names)
    assert partition_paths(rows, table(*fields, hive_style=False)).to_pylist() == [
        "x/y/-5/true/1999-12-31/1704164645678901/1.50"
    ]


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([b"x"]), pa.array([[1]]), pa.array([{"a": 1}])])
def test_types_that_make_no_folder_are_refused(column: pa.Array) -> None:
    with pytest.raises(SchemaError, match="column f of type .* cannot partition"):
        partition_paths(pa.table({"f": column}), table("f"))


def test_a_missing_partition_column_is_named() -> None:
    with pytest.raises(SchemaError, match="'month' is missing"):
        partition_paths(pa.table({"day": [1]}), table("month"))


def test_many_columns_with_many_values_do_not_mix_up() -> None:
    count = 2000
    rows = pa.table({f"c{i}": [f"{(row * (i + 3)) % 1999}" for row in range(count)] for i in range(8)})
    paths = partition_paths(rows, table(*rows.schema.names, hive_style=False)).to_pylist()
    assert paths == ["/".join(row.values()) for row in rows.to_pylist()]


def test_partition_metadata_counts_the_folders() -> None:
    assert partition_metadata("20261121092737397", "a=1/b=2").decode().splitlines() == [
        "#partition metadata",
        "#Sat Nov 21 09:27:37 UTC 2026",
        "commitTime=20261121092737397",
        "partitionDepth=2",
    ]
    assert b"partitionDepth=0\n" in partition_metadata("20261121092737397", "")


def test_keys_are_where_hudi_has_them() -> None:
    assert layout.timeline("x.commit") == ".hoodie/timeline/x.commit"
    assert layout.heartbeat("1") == ".hoodie/.heartbeat/1"
    assert layout.marker("1", "a=1", "f.parquet", "CREATE") == ".hoodie/.temp/1/a=1/f.parquet.marker.CREATE"
    assert layout.marker("1", "", "f.parquet", "MERGE") == ".hoodie/.temp/1/f.parquet.marker.MERGE"
    assert layout.claim(FileGroupId("a=1/b=2", "f-0")) == ".hoodie/.lakelock/claims/a=1/b=2/f-0"
    assert layout.claim(FileGroupId("", "f-0")) == ".hoodie/.lakelock/claims/f-0"
    assert layout.partition_metadata("a=1") == "a=1/.hoodie_partition_metadata"
    assert layout.partition_metadata("") == ".hoodie_partition_metadata"
    assert layout.split_path("a/b/c") == ("a/b", "c") and layout.split_path("c") == ("", "c")


def test_decision_keys_sort_by_number() -> None:
    assert layout.decision(7) == ".hoodie/.lakelock/decisions/00000000000000000007"
    assert layout.decision(9) < layout.decision(10) and layout.decision_number(layout.decision(10)) == 10
    for number in (-1, 10**20):
        with pytest.raises(ValueError, match="decision number"):
            layout.decision(number)
    with pytest.raises(CorruptTableError, match="is not a decision"):
        layout.decision_number(".hoodie/.lakelock/decisions/7")
