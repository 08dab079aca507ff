"""What Java Hudi writers leave when they die is removed as their own tools would, and their plans are left alone."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from tests.api import LocalStorage, layout
from tests.behaviour.tables import writer
from tests.golden_tables import unpack

from lakelock.occ.rollback import RollbackOutcome
from lakelock.settings import Settings
from lakelock.table.service_metadata import RollbackMetadata


def unpacked(name: str, folder: Path) -> LocalStorage:
    """A golden table, in which everything happened an hour ago."""
    table = unpack(name, folder)
    (folder / "now").touch()
    then = (folder / "now").stat().st_mtime - 3600
    for path in table.rglob("*"):
        os.utime(path, (then, then))
    return LocalStorage(table)


def rows(storage: LocalStorage) -> list[tuple[object, ...]]:
    """The table as hudi-rs, which shares no code with lakelock, reads it."""
    table = HudiTableBuilder.from_base_uri(storage.root).build()
    return sorted((r["id"], r["v"], r["region"]) for batch in table.read() for r in pa.record_batch(batch).to_pylist())


def of_instant(storage: LocalStorage, instant: str) -> list[str]:
    found = [entry.key for prefix in ("", ".hoodie") for entry in storage.list(prefix)]
    return [key for key in found if instant in key]


def test_an_aborted_java_writer_is_rolled_back_by_the_markers_of_its_timeline_server(tmp_path: Path) -> None:
    storage = unpacked("java12_occ_conflict_left", tmp_path)
    instant = "20261121093515485"
    before = rows(storage)
    (dirty,) = [key for key in of_instant(storage, instant) if key.endswith(".parquet")]
    coordinator = writer(storage, Settings())
    (reaped,) = coordinator.reap()
    assert (reaped.instant, reaped.outcome, reaped.writer) == (instant, RollbackOutcome.ROLLED_BACK, "another Hudi writer")
    told = re.search(r"no heartbeat and was requested (\d+) s ago", reaped.evidence)
    took_s = time.time() - (tmp_path / "now").stat().st_mtime
    assert told and 3600 <= int(told[1]) <= 3600 + took_s + 1
    assert of_instant(storage, instant) == []
    assert rows(storage) == before
    (rollback,) = [r for r in coordinator.table.timeline().rollbacks if r.is_completed]
    stored = storage.get(layout.timeline(rollback.file_name))
    assert stored is not None
    metadata = RollbackMetadata.from_bytes(stored.data)
    assert metadata.target_instant == instant
    assert dirty.rpartition("/")[2] in str(metadata)


@pytest.mark.parametrize("with_heartbeat", [False, True])
def test_a_plan_that_is_not_executed_is_not_reaped_even_if_its_heartbeat_is_old(tmp_path: Path, with_heartbeat: bool) -> None:
    storage = unpacked("java12_pending_clustering", tmp_path)
    instant = "20261121095012212"
    storage.put(f"region=eu/f0-0_0-1-2_{instant}.parquet", b"half a file")
    if with_heartbeat:
        storage.put(layout.heartbeat(instant), b"")
        beat = Path(storage.root) / layout.heartbeat(instant)
        long_ago = beat.stat().st_mtime - 3600
        os.utime(beat, (long_ago, long_ago))
    before = of_instant(storage, instant)
    assert len(before) == 2 + with_heartbeat
    assert writer(storage, Settings()).reap() == []
    assert of_instant(storage, instant) == before
