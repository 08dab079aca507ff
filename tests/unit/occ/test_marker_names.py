"""Markers as names: examples from real tables."""

from __future__ import annotations

import pytest
from tests.api import FileGroupId, MemoryStorage
from tests.faulty_storage import CountingStorage

from lakelock.errors import CorruptTableError
from lakelock.markers.data_files import Marker, MarkerKind, listed, parse_batch, parse_marker, place

INSTANT = "20261121093515485"
FILE = f"2d22e70d-fdd1-447c-b599-63b4c0871fc8-0_0-14-16_{INSTANT}.parquet"
FOLDER = f".hoodie/.temp/{INSTANT}"


def test_a_marker_lies_where_java_puts_it() -> None:
    marker = Marker("region=eu", FILE, MarkerKind.MERGE)
    assert marker.key(INSTANT) == f"{FOLDER}/region=eu/{FILE}.marker.MERGE"
    assert marker.data_key == f"region=eu/{FILE}"
    assert marker.group == FileGroupId("region=eu", "2d22e70d-fdd1-447c-b599-63b4c0871fc8-0")


def test_a_table_without_partitions_has_its_markers_directly_in_the_folder() -> None:
    marker = Marker("", FILE, MarkerKind.CREATE)
    assert marker.key(INSTANT) == f"{FOLDER}/{FILE}.marker.CREATE"
    assert parse_marker(str(marker), "here") == marker


@pytest.mark.parametrize(
    "text",
    ["", "a/b", "a/b.marker.", "a/b.marker.create", "a/.marker.CREATE", "../x.marker.CREATE", "/x.marker.CREATE",
     "a//x.marker.MERGE", ".hoodie/timeline/x.marker.CREATE", "a/../../x.marker.CREATE"],
)  # fmt: skip
def test_what_is_no_marker_or_points_out_of_the_table_is_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match="MARKERS7"):
        parse_marker(text, "MARKERS7")


def test_placing_a_marker_twice_costs_two_requests_and_leaves_one_marker() -> None:
    storage = CountingStorage(MemoryStorage())
    marker = Marker("a b/c=%2F", FILE, MarkerKind.CREATE)
    for _ in range(2):
        place(storage, INSTANT, NamedFile("a b/c=%2F", FILE), MarkerKind.CREATE)
    assert dict(storage.requests) == {"put_if_absent": 2}
    storage.reset()
    found = listed(storage, INSTANT)
    assert (found.markers, found.keys, found.unreadable) == (frozenset({marker}), (marker.key(INSTANT),), ())
    assert dict(storage.requests) == {"list": 1}


def test_markers_of_javas_timeline_server_are_read_from_their_batches() -> None:
    storage = MemoryStorage()
    storage.put(f"{FOLDER}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.put(f"{FOLDER}/MARKERS0", f"region=eu/{FILE}.marker.MERGE\n".encode())
    storage.put(f"{FOLDER}/MARKERS19", f"region=us/{FILE}.marker.CREATE\nregion=ap/{FILE}.marker.CREATE\n".encode())
    found = listed(storage, INSTANT)
    assert found.partitions == ("region=ap", "region=eu", "region=us")
    assert found.rewritten_groups == (FileGroupId("region=eu", "2d22e70d-fdd1-447c-b599-63b4c0871fc8-0"),)
    assert [key.rpartition("/")[2] for key in found.keys] == ["MARKERS.type", "MARKERS0", "MARKERS19"]
    assert found.unreadable == ()


def test_a_torn_batch_gives_what_it_has_and_says_that_it_is_torn() -> None:
    markers, unreadable = parse_batch(f"region=eu/{FILE}.marker.MERGE\nregion=us/{FILE}.mark".encode(), "MARKERS0")
    assert markers == [Marker("region=eu", FILE, MarkerKind.MERGE)]
    assert unreadable == [f"region=us/{FILE}.mark"]


def test_an_unknown_style_of_batches_is_told_and_its_batches_are_read_all_the_same() -> None:
    storage = MemoryStorage()
    storage.put(f"{FOLDER}/MARKERS.type", b"SOMETHING_NEW")
    storage.put(f"{FOLDER}/MARKERS0", f"region=eu/{FILE}.marker.MERGE\n".encode())
    found = listed(storage, INSTANT)
    assert found.partitions == ("region=eu",)
    assert found.unreadable == ("MARKERS.type: SOMETHING_NEW",)


class NamedFile:
    def __init__(self, partition: str, name: str) -> None:
        self.partition, self.name = partition, name
