"""Merge-on-read tables of Java Hudi 1.2: lakelock shows the rows that Java itself showed, now and as of each commit."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests import over_engines
from tests.golden_tables import HAND_WRITTEN, MERGE_ON_READ, golden_table, hand_written, opened, rows, seen_by_java, unpack

from lakelock.errors import CorruptTableError, StorageError, TableError
from lakelock.table import layout
from lakelock.table.checkpoint import Checkpoint, IndexState
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import with_logs

LOGS = ".*.log.*"


@cache
def _columns(name: str, moment: str) -> frozenset[str]:
    return frozenset(json.loads(seen_by_java(name)["moments"][moment][0]))


@pytest.mark.parametrize("query_type", ["snapshot", "read_optimized"])
@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_the_rows_are_those_that_java_shows(name: str, query_type: Any) -> None:
    with opened(golden_table(name)) as engine:
        assert rows(engine.read(query_type=query_type)) == seen_by_java(name)[query_type]


@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_the_rows_as_of_each_commit_are_those_that_java_showed_then(name: str) -> None:
    with opened(golden_table(name)) as engine:
        for moment, expected in seen_by_java(name)["moments"].items():
            then = engine.read(moment)
            # Columns that were added later are shown as of earlier times, too.
            assert rows(then.select([column for column in then.column_names if column in _columns(name, moment)])) == expected


BY_NAME = "stray_file_of_a_commit_C"
"""There Java and hudi-rs show the row of a file that the commit does not name."""


def values(table: pa.Table) -> list[list[object]]:
    return sorted([row["id"], row["v"]] for row in table.to_pylist())


@pytest.mark.parametrize("case", [case for case in HAND_WRITTEN if case != BY_NAME])
def test_a_hand_written_history_shows_what_java_shows_now_and_as_of_each_time(case: str) -> None:
    expected = HAND_WRITTEN[case]
    with opened(hand_written(case)) as engine:
        assert values(engine.read()) == expected["snapshot"]
        assert values(engine.read(query_type="read_optimized")) == expected["read_optimized"]
        found = {moment: values(engine.read(moment)) for moment in expected["moments"]}
    assert found == expected["moments"]


@pytest.mark.parametrize("name", [*MERGE_ON_READ, *(case for case in HAND_WRITTEN if "rewrite" in case or "compact" in case)])
def test_a_checkpoint_knows_the_log_files_that_lie_on_base_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    shutil.copytree(hand_written(name) if name in HAND_WRITTEN else golden_table(name), path)
    with opened(path) as engine:
        expected, found = rows(engine.read()), engine.coordinator.shown().logged
        assert engine.coordinator.checkpoint() == 1
        table = engine.coordinator.table
        stored = Checkpoint.from_bytes(table.storage.get(layout.checkpoint(1)).data)  # type: ignore[union-attr]
        assert with_logs(table.shown_now()[0], IndexState.after(stored, []).logs()) == found
    with opened(path) as again:
        assert rows(again.read()) == expected


def test_a_damaged_checkpoint_costs_no_log_file(tmp_path: Path) -> None:
    name = "java12_mor_archived"
    path = unpack(name, tmp_path)
    with opened(path) as engine:
        assert engine.coordinator.checkpoint() == 1
    (checkpoint,) = (path / ".hoodie" / ".lakelock" / "checkpoints").iterdir()
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with opened(path) as engine:
        assert rows(engine.read()) == seen_by_java(name)["snapshot"]


def test_a_file_that_its_commit_does_not_name_has_no_rows() -> None:
    with opened(hand_written(BY_NAME)) as engine:
        assert values(engine.read()) == [["a", 10], ["b", 0], ["c", 0]]
    assert HAND_WRITTEN[BY_NAME]["snapshot"] == [["a", 20], ["b", 0], ["c", 0]]


def test_a_condition_chooses_among_merged_rows() -> None:
    with opened(golden_table("java12_mor_events")) as engine:
        assert engine.read(where=pc.field("v") == 2).sort_by("id").column("id").to_pylist() == ["a", "c"]
        with engine.reading("region=us", pc.field("v") == 2) as found:
            assert found.column("id").to_pylist() == ["c"]


def test_whoever_reads_base_files_only_has_to_say_so() -> None:
    with opened(golden_table("java12_mor_compaction")) as engine:
        merged, bases = rows(engine.read()), rows(engine.read(query_type="read_optimized"))
    assert merged != bases


@pytest.mark.parametrize("name", ["java12_mor_events", "java12_mor_version_8"])
def test_nobody_writes_a_table_by_event_time(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    before = sorted(path.rglob("*"))
    with opened(path) as engine:
        with pytest.raises(TableError, match="orders the versions of a row by event time") as caught:
            engine.delete_where(pc.field("v") == 1)
        assert caught.value.hint.endswith("it can be read meanwhile")
        with pytest.raises(TableError, match="by event time"):
            engine.coordinator.upkeep()
    assert sorted(path.rglob("*")) == before


def test_what_would_be_but_the_base_files_is_refused() -> None:
    with opened(golden_table("java12_mor_events")) as engine:
        with pytest.raises(TableError, match="a change feed is not available for java12_mor_events"):
            engine.changes()
        with (
            pytest.raises(TableError, match="a snapshot of several tables is not available"),
            over_engines.snapshot(engine) as now,
        ):
            now[engine].read()


def with_property(name: str, folder: Path, line: str) -> Path:
    path = unpack(name, folder)
    file = path / ".hoodie" / "hoodie.properties"
    file.write_text(f"{file.read_text()}\n{line}\n")
    return path


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hoodie.record.merge.mode=CUSTOM", "merges rows in its own way"),
        ("hoodie.table.partial.update.mode=IGNORE_DEFAULTS", "merges rows in its own way"),
        ("hoodie.record.merge.property.hoodie.payload.delete.field=Op", "marks deleted rows in a way of its own"),
        ("hoodie.table.ordering.fields=ts,v", "several columns"),
        ("hoodie.table.ordering.fields=place.ts", "place.ts, a field of another column"),
        ("hoodie.populate.meta.fields=false", "no record keys"),
    ],
)
def test_rows_that_lakelock_cannot_merge_as_hudi_does_are_not_merged(line: str, reason: str, tmp_path: Path) -> None:
    name = "java12_mor_events"
    with opened(with_property(name, tmp_path, line)) as engine:
        with pytest.raises(TableError, match=reason) as caught:
            engine.read()
        assert 'read(query_type="read_optimized")' in caught.value.hint
        assert rows(engine.read(query_type="read_optimized")) == seen_by_java(name)["read_optimized"]


def test_a_log_file_that_is_gone_or_damaged_is_an_error_and_never_a_row_less(tmp_path: Path) -> None:
    path = unpack("java12_mor_events", tmp_path)
    log = next(file for file in sorted(path.rglob(LOGS)) if not file.name.endswith(".crc"))
    whole = log.read_bytes()
    with opened(path) as engine:
        for cut in (1, 13, len(whole) // 2, len(whole) - 1):
            log.write_bytes(whole[:cut])
            with pytest.raises(CorruptTableError, match=r"the log file .* cannot be read"):
                engine.read()
        log.unlink()
        with pytest.raises(StorageError, match="no such file"):
            engine.read()


def test_parts_of_rows_are_not_merged_where_event_time_orders_versions(tmp_path: Path) -> None:
    name = "java12_mor_partial"
    path = with_property(name, tmp_path, "hoodie.record.merge.mode=EVENT_TIME_ORDERING\nhoodie.table.ordering.fields=v")
    with opened(path) as engine, pytest.raises(TableError, match="parts of rows where versions are ordered by event time"):
        engine.read()


def test_only_the_log_files_of_the_groups_that_are_read_are_opened(tmp_path: Path) -> None:
    path = unpack("java12_mor_events", tmp_path)
    shutil.rmtree(path / "region=us")
    with opened(path) as engine:
        assert set(engine.read(where=pc.field("region") == "eu").column("region").to_pylist()) == {"eu"}
        with pytest.raises(StorageError, match="no such file"):
            engine.read()


def test_a_log_file_that_no_commit_names_is_not_read(tmp_path: Path) -> None:
    """What a failed task attempt, or a writer that is still at it, has left."""
    name = "java12_mor_deletes"
    path = unpack(name, tmp_path)
    log = next(file for file in sorted(path.rglob(LOGS)) if not file.name.endswith(".crc"))
    shutil.copy(log, log.with_name(log.name.replace(".log.1_", ".log.2_")))
    with opened(path) as engine:
        assert rows(engine.read()) == seen_by_java(name)["snapshot"]


def test_names_of_log_files() -> None:
    log = LogFile.parse("p=1/.f-0_20261126010238301.log.12_0-46-58", 5)
    assert log == LogFile("p=1", "f-0", "20261126010238301", 12, "0-46-58", 5)
    assert log.key == "p=1/.f-0_20261126010238301.log.12_0-46-58"
    assert LogFile.parse(".f-0_20261126010238301.log.1") == LogFile("", "f-0", "20261126010238301", 1, "")
    for other in ("f-0_0-0-0_20261126010238301.parquet", "p/.f-0_20261126010238301.log.1_0-1-2.cdc.x/y", ".f-0_1.log.1_0-1-2"):
        assert LogFile.parse(other) is None
