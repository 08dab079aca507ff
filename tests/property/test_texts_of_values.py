"""Every place that makes a text of a value which is looked up later: different values have different texts, or are refused.

The places: record keys, and the bucket that follows from one; partition folders, and what is made of them: names of claims,
and data locks in each service; what is recorded of a file's columns; application transactions; savepoints (see
`tests/behaviour/upkeep/test_savepoints.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.api import AppTransaction, BucketIndex, FileGroupId, Keyed, TableProperties, layout

from lakelock.data_locks.base import Resource
from lakelock.errors import InputError
from lakelock.occ.commit_keys import APPLICATION
from lakelock.occ.request import resources_of
from lakelock.table.commit_metadata import ColumnRange, FileStatistics, column_ranges_in, statistics_text
from lakelock.table.index import new_file_id
from lakelock.table.key_search import buckets_of, buckets_of_keys
from lakelock.table.partitions import partition_path, partition_paths, partition_texts
from lakelock.table.record_keys import record_keys

T = TypeVar("T")

# Few characters, and the pieces of which the texts consist, so that two values often come near each other.
WORDS = ["__null__", "__empty__", "__HIVE_DEFAULT_PARTITION__"]
PIECES = ["", "1", "2", ",b:", ",c:", "b:", ",", ":", "/", "a=", "b=", "%", "2F", *WORDS]
texts = st.lists(st.sampled_from([*PIECES, ".", "..", "~", "@", "+a", "A", "a", " ", "é", "\n"]), max_size=4).map("".join)
values = st.none() | texts
KEYS = ("a", "b", "c")


def different(found: Iterable[tuple[Hashable, Hashable]]) -> None:
    """No two different values have one text."""
    of: dict[Hashable, Hashable] = {}
    for value, text in found:
        assert of.setdefault(text, value) == value, f"{value!r} and {of[text]!r} are both {text!r}"


def told(make: Callable[[], T]) -> T | None:
    """The text, None where the value is refused."""
    try:
        return make()
    except InputError:
        return None


def table_of(rows: Iterable[tuple[Any, ...]], kinds: Iterable[pa.DataType] | None = None) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    types = list(kinds or [pa.string()] * len(columns))
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=list(KEYS[: len(columns)]))


@given(st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[values] * n), min_size=2, max_size=8)), st.booleans())
@example([("x,b:y", "z"), ("x", "y,b:z")], False)
@example([(None, "q"), ("__null__", "q")], False)
@example([("", "q"), ("__empty__", "q")], False)
@settings(max_examples=300)
def test_record_keys(rows: list[tuple[str | None, ...]], named: bool) -> None:
    names = KEYS[: len(rows[0])]

    def key(row: tuple[str | None, ...]) -> str:
        (found,) = record_keys(table_of([row]), names, named=named or len(names) > 1).to_pylist()
        return str(found)

    keys = [(row, told(lambda row=row: key(row))) for row in rows]  # type: ignore[misc]
    kept = [(row, text) for row, text in keys if text is not None]
    different(kept)
    if kept:  # and together they are what they are one by one
        together = record_keys(table_of([row for row, _ in kept]), names, named=named or len(names) > 1)
        assert together.to_pylist() == [text for _, text in kept]


@pytest.mark.parametrize("value", ["2026-11-29 03:34:01", "https://host:8080/a,b?c:d", "b:1", '{"a":1,"b":2}', "x, b: y"])
def test_values_with_colons_and_commas_are_keys(value: str) -> None:
    for row in ((value, "z"), ("z", value)):
        assert record_keys(table_of([row]), ("a", "b")).to_pylist() == [f"a:{row[0]},b:{row[1]}"]


TYPED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.decimal128(38, 10): st.decimals(-(10**20), 10**20, places=10, allow_nan=False).filter(lambda d: d or not d.is_signed()),
    pa.decimal128(5, 0): st.integers(-999, 999).map(Decimal),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(timezone.utc)),
    pa.string(): texts,
}


@pytest.mark.parametrize("kind", list(TYPED), ids=str)
@given(st.data())
@settings(max_examples=30)
def test_keys_and_partitions_of_every_type(kind: pa.DataType, data: st.DataObject) -> None:
    found = data.draw(st.lists(TYPED[kind], min_size=1, max_size=6))
    properties = TableProperties.new("t", ["id"], ["a"])

    def key(value: object) -> str | None:
        return told(lambda: str(record_keys(table_of([(value,)], [kind]), ("a",)).to_pylist()[0]))

    def folder(value: object) -> str | None:
        return told(lambda: str(partition_paths(table_of([(value,)], [kind]), properties).to_pylist()[0]))

    for text_of in (key, folder):
        pairs = [(value, text_of(value)) for value in found]
        different((value, text) for value, text in pairs if text is not None)


NESTED = [pa.list_(pa.int32()), pa.struct([("x", pa.int32())]), pa.map_(pa.string(), pa.int32())]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.binary(), *NESTED], ids=str)
def test_types_whose_values_have_no_text_of_their_own_are_refused(kind: pa.DataType) -> None:
    rows = table_of([(None,)], [kind])
    assert told(lambda: record_keys(rows, ("a",))) is None
    assert told(lambda: partition_paths(rows, TableProperties.new("t", ["id"], ["a"]))) is None


@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[values] * n), min_size=2, max_size=8)),
    st.booleans(),
    st.booleans(),
)
@example([("x/y", "z"), ("x", "y/z")], False, False)
@example([("x/b=y", "z"), ("x", "y/b=z")], True, False)
@example([(None,), ("",), ("__HIVE_DEFAULT_PARTITION__",)], True, True)
@settings(max_examples=300)
def test_partition_folders_claims_and_data_locks(
    rows: list[tuple[str | None, ...]], hive_style: bool, url_encode: bool
) -> None:
    names = KEYS[: len(rows[0])]
    properties = TableProperties.new("t", ["id"], names, hive_style=hive_style, url_encode=url_encode)
    style = {"hive_style": hive_style, "url_encode": url_encode}
    paths = [(row, told(lambda row=row: partition_path(row, names, **style))) for row in rows]  # type: ignore[misc]
    kept = [(row, path) for row, path in paths if path is not None]
    different(kept)
    different((row, layout.claim(FileGroupId(path, "f-0"))) for row, path in kept)
    different((row, new_file_id(1, path, "20260101000000000")) for row, path in kept)
    locks = [(row, Resource.of(path)) for row, path in kept]
    different(locks)
    for row, path in kept:
        if url_encode:
            assert partition_texts(path, properties) == list(row)
            assert resources_of(dict(zip(names, row, strict=True)), properties) == (Resource.of(path),)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=6), st.integers(1, 40))
def test_a_bucket_follows_from_the_key_alone(rows: list[tuple[str | None, str | None]], count: int) -> None:
    properties, index = TableProperties.new("t", ["a", "b"]), BucketIndex(count, ("a", "b"))
    keyed = told(lambda: Keyed.of(table_of(rows), properties))
    if keyed is not None:
        assert buckets_of(keyed, index, ("a", "b")).tolist() == buckets_of_keys(keyed.keys.to_pylist(), index)


plain = st.booleans() | st.integers() | texts | st.dates() | st.datetimes() | st.decimals(allow_nan=False, allow_infinity=False)


@given(plain, plain)
def test_what_is_recorded_of_a_column_is_read_back(
    least: bool | int | str | date | datetime | Decimal, greatest: bool | int | str | date | datetime | Decimal
) -> None:
    given_ = ColumnRange(least, greatest, 1)
    columns = json.loads(statistics_text(FileStatistics(3, None, None, {"x": given_})))[2]
    found = column_ranges_in(json.dumps(columns))["x"]
    assert found == given_
    assert [type(found.least), type(found.greatest)] == [type(given_.least), type(given_.greatest)]


@given(st.lists(st.tuples(st.text(max_size=6), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=6))
def test_application_transactions(numbered: list[tuple[str, int]]) -> None:
    different((each, AppTransaction(*each).to_json()) for each in numbered)
    for each in numbered:
        made = AppTransaction(*each)
        assert AppTransaction.from_extra({APPLICATION: made.to_json()}) == made
