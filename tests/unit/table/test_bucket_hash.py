"""The buckets of keys, as real Java Hudi 1.2.0 put them: each number is read off the file id of a table that it wrote."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from tests.api import BucketIndex, Keyed

from lakelock.errors import InputError
from lakelock.table.index import bucket_of, new_file_id, parsed_index
from lakelock.table.key_search import buckets_of, buckets_of_keys, hashed_values, list_hash, string_hashes

PLAIN = {
    "  ": 31,
    "Straße": 1013,
    "TXN-001": 77,
    "__null__": 934,
    "a": 128,
    "abc": 129,
    "ü": 283,
    "日本語": 438,
    "😀 emoji": 872,
    # A key with a colon and a comma is taken apart as if it had several columns, and whole if none is called `id`.
    "a,b": 502,
    "a:b": 936,
    "a,b:c": 927,
    "a:b,c": 799,
    "id:1,x": 476,
    "id:__null__,y": 947,
    "x,id:2": 614,
    # Numbers, dates, timestamps (microseconds), decimals, booleans, as record keys have them.
    "-1": 451,
    "0": 79,
    "42": 669,
    "2147483647": 75,
    "9223372036854775807": 65,
    "-9223372036854775808": 757,
    "1969-12-31": 71,
    "1970-01-01": 928,
    "2026-11-23": 162,
    "-1000": 555,
    "1795395723456789": 365,
    "-0.001": 901,
    "0.000": 913,
    "1.500": 471,
    "false": 322,
    "true": 429,
}
"""Of 1024 buckets, a table with the one key column `id` and Hudi's simple key generator."""

NAMED = {
    "id:  ": 734,
    "id:Straße": 820,
    "id:TXN-001": 238,
    "id:__null__": 805,
    "id:a": 481,
    "id:a,b": 502,
    "id:a,b:c": 128,
    "id:a:b": 201,
    "id:a:b,c": 799,
    "id:abc": 418,
    "id:id:1,x": 765,
    "id:id:__null__,y": 882,
    "id:x,id:2": 635,
    "id:ü": 636,
    "id:日本語": 727,
    "id:😀 emoji": 743,
}
"""The same with two partition columns: Hudi's complex key generator names the column in the key."""

INDEX = BucketIndex(1024, ("id",))


@pytest.mark.parametrize("found", [PLAIN, NAMED], ids=["simple", "complex"])
def test_keys_of_one_column_are_in_the_buckets_where_java_put_them(found: dict[str, int]) -> None:
    assert dict(zip(found, buckets_of_keys(list(found), INDEX), strict=True)) == found


def keyed(texts: list[str], named: bool) -> Keyed:
    keys = [f"id:{text}" for text in texts] if named else texts
    return Keyed(pa.table({"id": texts}), pa.chunked_array([keys], pa.string()))


@pytest.mark.parametrize(("found", "named"), [(PLAIN, False), (NAMED, True)], ids=["simple", "complex"])
def test_rows_get_the_same_buckets_a_column_at_a_time(found: dict[str, int], named: bool) -> None:
    texts = [key.removeprefix("id:") if named else key for key in found]
    assert buckets_of(keyed(texts, named), INDEX, ("id",)).tolist() == list(found.values())


VALUES = [("a", 1), ("", 2), (None, 3), ("a:b", 4), ("a,b", 5), ("b:2,c:3", 6), ("ü😀", 7), ("__null__", 8), ("__empty__", 9)]


@pytest.mark.parametrize("fields", [("a", "b"), ("a",), ("b",)], ids=",".join)
def test_rows_of_several_key_columns_get_the_buckets_of_their_record_keys(fields: tuple[str, ...]) -> None:
    columns = {"a": pa.array([a for a, _ in VALUES], pa.string()), "b": pa.array([b for _, b in VALUES], pa.int64())}
    keys = [f"a:{'__null__' if a is None else a or '__empty__'},b:{b}" for a, b in VALUES]
    rows = Keyed(pa.table(columns), pa.chunked_array([keys], pa.string()))
    index = BucketIndex(97, fields)
    assert buckets_of(rows, index, ("a", "b")).tolist() == buckets_of_keys(keys, index)


@pytest.mark.parametrize(
    ("key", "fields", "values"),
    [
        ("a:1,b:2", ("a", "b"), ["1", "2"]),
        ("a:1,b:2", ("b",), ["2"]),
        ("a:x,y,b:2", ("a",), ["x,y"]),
        ("a:__null__,b:__empty__", ("a", "b"), [None, ""]),
        ("a:1,b:2014-10-22 13:50:42", ("a", "b"), ["1", "2014-10-22 13:50:42"]),
        ("a:2014-10-22 13:50:42,b:1", ("a", "b"), ["2014-10-22 13:50:42", "1"]),
        ("a:1,b:13:50", ("a",), ["1"]),
        ("a:1,b:2", ("c",), ["a:1,b:2"]),
    ],
)
def test_a_record_key_is_taken_apart_as_hudi_does(key: str, fields: tuple[str, ...], values: list[str | None]) -> None:
    assert hashed_values(key, fields) == values


def test_texts_and_lists_hash_as_in_java() -> None:
    texts = ["", "a", "abc", "polygenelubricants", "😀", "\x00", None]
    known = [0, 97, 96354, 0x80000000, 1772899, 0, 0]
    assert string_hashes(pa.array(texts)).tolist() == known
    assert string_hashes(pa.array([], pa.string())).tolist() == []
    assert [list_hash([text]) for text in texts] == [31 + value for value in known]
    assert list_hash(["a", None]) == (31 + 97) * 31


def test_a_new_file_id_has_the_form_of_hudis_and_is_the_same_for_all_attempts_of_a_transaction() -> None:
    found = new_file_id(5, "region=eu", "20261121092737397")
    assert re.fullmatch(r"00000005-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-0", found) and bucket_of(found) == 5
    assert found == new_file_id(5, "region=eu", "20261121092737397")
    assert found != new_file_id(5, "region=eu", "20261121092737398")
    assert found != new_file_id(5, "region=us", "20261121092737397")
    # Java's bulk insert leaves the last part out.
    assert bucket_of("00000012-1347-4187-8af3-1c83a1831000") == 12
    assert bucket_of("1af00c8f-1347-4187-8af3-1c83a1831000-0") is None


def test_an_index_is_written_as_its_number_of_buckets_and_the_columns_to_hash() -> None:
    assert BucketIndex.parse("bucket:16") == BucketIndex(16)
    assert BucketIndex.parse(" bucket: 16 : b , a ").hashing(("a", "b", "c")) == BucketIndex(16, ("a", "b"))
    assert BucketIndex.parse("bucket:16").hashing(("a", "b")) == BucketIndex(16, ("a", "b"))
    assert BucketIndex.from_bytes(INDEX.to_bytes()) == INDEX
    assert BucketIndex.parse(str(INDEX)) == INDEX


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("buckets:16", 'did you mean "bucket"'),
        ("bloom", "no index that lakelock knows"),
        ("bucket", "from 1 to 1,000,000"),
        ("bucket:0", "from 1 to 1,000,000"),
        ("bucket:-1", "from 1 to 1,000,000"),
        ("bucket:1000001", "from 1 to 1,000,000"),
        ("bucket:many", "from 1 to 1,000,000"),
        (16, "not a text"),
        ("globall", 'did you mean "global"'),
        ("global:3", "takes nothing after its name"),
    ],
)
def test_what_is_no_index_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parsed_index(text)


def test_only_key_columns_are_hashed() -> None:
    with pytest.raises(InputError, match='no key column; did you mean "customer"'):
        BucketIndex.parse("bucket:4:custmer").hashing(("customer", "day"))
