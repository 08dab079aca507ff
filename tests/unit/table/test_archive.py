"""The archive that Java Hudi makes of old instants."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api import CommitMetadata, LocalStorage, MemoryStorage, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import new_table
from tests.faulty_storage import Wrapped
from tests.golden_tables import golden_table, opened, rows, seen_by_java, unpack

from lakelock.errors import CorruptTableError
from lakelock.table.archive import archived_write, archived_writes, instants_in

FIRST, MIDDLE, CLEANING, BETWEEN = "20261121093320270", "20261121093324522", "20261121093326070", "20261121093320280"


def test_what_java_archived_is_found_with_its_files_and_nothing_else_is() -> None:
    storage = LocalStorage(golden_table("mixed_archived"))
    for instant in (FIRST, MIDDLE):
        found = archived_write(storage, instant)
        assert found is not None and found.action == "commit" and found.completion > instant
        stats = CommitMetadata.from_bytes(found.data).stats
        assert stats and all(f"_{instant}.parquet" in str(stat.path) for stat in stats)
    for nothing in (CLEANING, BETWEEN, "20200101000000000", "20300101000000000"):
        assert archived_write(storage, nothing) is None


def test_a_file_of_the_archive_that_cannot_be_read_is_named() -> None:
    storage = MemoryStorage()
    storage.put(f"{layout.HISTORY}/{FIRST}_{MIDDLE}_0.parquet", b"torn")
    with pytest.raises(CorruptTableError, match=f"{FIRST}_{MIDDLE}_0.parquet cannot be read"):
        archived_write(storage, BETWEEN)
    assert archived_write(storage, CLEANING) is None


def test_a_file_that_is_not_whole_and_that_no_manifest_lists_yet_is_passed_over(tmp_path: Path) -> None:
    """As Java's archiver leaves it on a disk where it is killed, and shows it for a moment each time."""
    path = unpack("java12_mor_archived", tmp_path)
    history, seen = path / ".hoodie/timeline/history", seen_by_java("java12_mor_archived")
    with opened(path) as engine:
        before = {write for _, writes in archived_writes(engine.coordinator.table.storage) for write in writes}
        first = engine.coordinator.table.timeline().commits[0].requested
    torn = history / f"{first}_{first}_0.parquet"
    torn.write_bytes(b"PAR1")
    with opened(path) as engine:
        storage = engine.coordinator.table.storage
        assert {write for _, writes in archived_writes(storage) for write in writes} == before
        assert archived_write(storage, first) is None and instants_in(storage, torn.name) is None
        assert rows(engine.read()) == seen["snapshot"]
        assert all(rows(engine.read(moment)) == expected for moment, expected in seen["moments"].items())
    listed = next(history.glob("*_0.parquet"))
    listed.write_bytes(b"PAR1")
    with opened(path) as engine, pytest.raises(CorruptTableError, match=f"{listed.name} cannot be read"):
        engine.read()


def test_a_file_that_java_merges_into_another_while_it_is_read_is_looked_for_again() -> None:
    inner = MemoryStorage()
    new_table(inner)
    peer = Peer(inner)
    first, last = peer.commit("p", "a"), peer.commit("p", "b")
    peer.commit("p", "c")
    peer.archive(first, last)
    small, merged = f"{layout.HISTORY}/{first}_{last}_0.parquet", f"{layout.HISTORY}/{first}_{last}_1.parquet"

    class Merging(Wrapped):
        def carry(self, op, key, request, *, weight=1):
            if op == "open_input" and key == small and inner.get(small) is not None:
                inner.put(merged, inner.get(small).data)
                inner.delete([small])
            return request()

    found = archived_write(Merging(inner), first)
    assert found is not None and found.requested == first
