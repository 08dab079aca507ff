"""Which files a commit deletes first, and which reports it refuses."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lakelock.errors import CorruptTableError, WriteFailed
from lakelock.markers.data_files import Marker, MarkerKind, MarkerSet, files_to_delete

INSTANT = "20261121093515485"


@dataclass
class Stat:
    path: str | None


def name(file_id: str, token: str) -> str:
    return f"{file_id}_{token}_{INSTANT}.parquet"


def markers(*files: tuple[str, str], unreadable: tuple[str, ...] = ()) -> MarkerSet:
    found = frozenset(Marker(partition, file, MarkerKind.MERGE) for partition, file in files)
    return MarkerSet(INSTANT, found, (), unreadable)


def test_a_file_that_nobody_reported_goes_and_the_reported_one_stays() -> None:
    failed, good, speculative = name("a", "0-1-1"), name("a", "0-1-2"), name("a", "0-1-3")
    found = markers(("p", failed), ("p", good), ("p", speculative), ("q", name("b", "0-1-4")))
    assert files_to_delete(found, [Stat(f"p/{good}")]) == (f"p/{failed}", f"p/{speculative}", f"q/{name('b', '0-1-4')}")


def test_nothing_goes_when_everything_was_reported() -> None:
    assert files_to_delete(markers(("", name("a", "t"))), [Stat(name("a", "t"))]) == ()
    assert files_to_delete(markers(), []) == ()


@pytest.mark.parametrize("path", [f"p/{name('x', 't')}", f"q/{name('a', 't')}", "", None])
def test_a_report_without_a_marker_is_refused(path: str | None) -> None:
    with pytest.raises(WriteFailed, match="has no marker"):
        files_to_delete(markers(("p", name("a", "t"))), [Stat(path)])


def test_two_reports_for_one_file_group_are_refused() -> None:
    found = markers(("p", name("a", "t1")), ("p", name("a", "t2")))
    with pytest.raises(WriteFailed, match="two files were reported for file group p/a"):
        files_to_delete(found, [Stat(f"p/{name('a', 't1')}"), Stat(f"p/{name('a', 't2')}")])


def test_one_file_id_in_two_partitions_is_two_file_groups() -> None:
    found = markers(("p", name("a", "t1")), ("q", name("a", "t2")))
    assert files_to_delete(found, [Stat(f"p/{name('a', 't1')}"), Stat(f"q/{name('a', 't2')}")]) == ()


def test_strange_entries_among_the_markers_stop_the_commit() -> None:
    with pytest.raises(CorruptTableError, match=r"junk\.txt"):
        files_to_delete(markers(unreadable=("junk.txt",)), [])
