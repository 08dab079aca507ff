"""Markers survive the way to a name and back, and no text can make one that points out of the table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.api import MemoryStorage

from lakelock.errors import CorruptTableError
from lakelock.markers.data_files import Marker, MarkerKind, listed, parse_batch, parse_marker, place
from lakelock.markers.leftovers import is_data_file_of

characters = st.characters(exclude_categories=["Cs"], exclude_characters="/\0\n\r")
awkward = st.sampled_from([".marker.CREATE", "a.marker.MERGE", "MARKERS0", "MARKERS.type", "x=%2F", "..x", "_", "a b"])
segments = st.one_of(awkward, st.text(characters, min_size=1, max_size=12)).filter(lambda s: s not in (".", ".."))
partitions = st.lists(segments, max_size=3).map("/".join).filter(lambda p: p.split("/")[0] != ".hoodie")
markers = st.builds(Marker, partitions, segments.filter(lambda s: not s.startswith(".")), st.sampled_from(MarkerKind))


@given(markers)
def test_every_marker_is_read_back_from_its_name(marker: Marker) -> None:
    assert parse_marker(str(marker), "here") == marker


@given(st.lists(markers))
def test_every_batch_of_markers_is_read_back(batch: list[Marker]) -> None:
    data = "".join(f"{marker}\n" for marker in batch).encode()
    assert parse_batch(data, "here") == (batch, [])


@given(st.lists(markers, max_size=5), st.sampled_from(["20261121093515485", "20261121093515486"]))
def test_placed_markers_are_listed_with_partition_name_and_kind(batch: list[Marker], instant: str) -> None:
    storage = MemoryStorage()
    for marker in batch:
        place(storage, instant, _Named(marker), marker.kind)
    assert listed(storage, instant).markers == frozenset(batch)
    assert listed(storage, "20261121093515487").markers == frozenset()


@given(st.one_of(st.text(max_size=40), st.builds("{}.marker.{}".format, st.text(max_size=20), st.sampled_from(MarkerKind))))
def test_any_other_text_is_refused_or_stays_inside_the_table(text: str) -> None:
    try:
        marker = parse_marker(text, "here")
    except CorruptTableError:
        return
    assert str(marker) == text
    assert not marker.data_key.startswith(("/", ".hoodie/"))
    assert ".." not in marker.data_key.split("/")


@given(st.text(max_size=30))
def test_only_names_that_carry_the_instant_are_its_data(prefix: str) -> None:
    key = f"{prefix}_20261121093515485.parquet"
    assert not is_data_file_of(key, "20261121093515486")
    if is_data_file_of(key, "20261121093515485"):
        assert not key.startswith(("/", ".hoodie/"))
        assert ".." not in key.split("/")


class _Named:
    def __init__(self, marker: Marker) -> None:
        self.partition, self.name = marker.partition, marker.file_name
