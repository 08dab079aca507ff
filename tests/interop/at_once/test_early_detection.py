"""Each side's early conflict detection sees the markers of the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.processes import lakelock_writer
from tests.interop.shared import EARLY, Shared
from tests.interop.witness import JavaError
from tests.sizes import in_ci
from tests.waiting import eventually

from lakelock.errors import EarlyConflictError

Share = Callable[..., Shared]


@pytest.fixture
def table(share: Share) -> Shared:
    found = share()
    found.engine().insert(found.rows(("a", 1, "eu"), ("b", 2, "us")))
    found.put(("a", 1, "eu"), ("b", 2, "us"))
    return found


def test_java_stops_early_at_the_marker_of_a_live_writer_of_lakelock(table: Shared) -> None:
    with lakelock_writer(table, ("a", 10, "eu"), stop_at="data-written") as mine:
        with pytest.raises(JavaError) as caught:
            table.java_write("upsert", ("a", 11, "eu"), **EARLY)
        assert "HoodieEarlyConflictDetectionException" in caught.value.classes
        assert "committed" in mine.go_on()
    table.put(("a", 10, "eu"))
    table.agree()
    table.java_write("upsert", ("a", 11, "eu"), **EARLY)
    table.put(("a", 11, "eu"))
    table.agree()


@pytest.mark.parametrize("markers", ["DIRECT", *in_ci("TIMELINE_SERVER_BASED")])
def test_lakelock_stops_early_at_the_marker_of_a_live_java_writer(table: Shared, tmp_path: Path, markers: str) -> None:
    gate = tmp_path / "gate"
    coordinator = table.coordinator()
    # With a metadata table it would need the lock before it writes.
    more = {"hoodie__write__markers__type": markers, "hoodie__metadata__enable": "false"}
    theirs = table.begin_java("upsert", ("a", 11, "eu"), gate=gate, **more)
    (instant,) = eventually(lambda: table.pending(), saying="the Java job has begun")
    with coordinator.table.locked():  # it cannot commit now
        gate.touch()
        eventually(lambda: merge_markers(table, instant), saying="the Java job rewrites the file group")
        with coordinator.begin("UPSERT") as tx, pytest.raises(EarlyConflictError) as caught:
            table.engine().upsert_in(tx, table.rows(("a", 12, "eu")))
        assert caught.value.conflict.other.instant == instant and "markers" in caught.value.conflict.detail
        assert not [name for name in table.traces(tx.instant) if name.endswith(".parquet")]
    theirs.result()
    table.put(("a", 11, "eu"))
    table.agree()


def merge_markers(table: Shared, instant: str) -> list[Path]:
    folder = Path(table.path) / ".hoodie" / ".temp" / instant
    direct = [p for p in folder.rglob("*.MERGE") if not p.name.startswith(".")]
    batched = [p for p in folder.glob("MARKERS[0-9]*") if ".MERGE" in p.read_text()]
    return direct + batched
