"""Tables of version 6, as Hudi 0.14 and 0.15 have them: read as Java reads them, now and as of each commit, not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from tests.api import CommitMetadata, LocalStorage
from tests.golden_tables import VERSION_6, golden_table, opened, rows, seen_by_java, unpack
from typer.testing import CliRunner

from lakelock.cli.main import app
from lakelock.errors import CorruptTableError, TableError
from lakelock.storage import Stored
from lakelock.table.archive import archived_write, archived_writes
from lakelock.table.layout_one import LayoutOne

NAME, ARCHIVED, MERGE_ON_READ = VERSION_6


@pytest.mark.parametrize("name", [NAME, ARCHIVED])
def test_the_rows_are_those_that_java_shows_now_and_as_of_each_commit(name: str) -> None:
    seen = seen_by_java(name)
    with opened(golden_table(name)) as engine:
        assert rows(engine.read()) == seen["snapshot"]
        for moment, expected in seen["moments"].items():
            assert rows(engine.read(moment)) == expected


def test_the_history_and_the_change_feed_are_there() -> None:
    with opened(golden_table(NAME)) as engine:
        operations = " ".join(entry.operation for entry in reversed(engine.coordinator.history()))
        assert operations == "INSERT UPSERT DELETE INSERT_OVERWRITE UPSERT CLUSTER DELETE_PARTITION UPSERT"
        deleted = engine.changes().filter(pc.field("_change_type") == "delete").column("id").to_pylist()
        assert sorted(deleted) == ["b", "c", "d", "e"]


def test_the_commits_of_the_archive_are_read_where_java_put_them() -> None:
    with opened(golden_table(ARCHIVED)) as engine:
        storage = engine.coordinator.table.storage
        found = {write.requested: write for _, writes in archived_writes(storage) for write in writes}
        first = min(found)
        assert len(found) == 4 and max(found) < engine.coordinator.table.timeline().first_active
        assert found[first].completion == first and found[first].action == "commit"
        metadata = CommitMetadata.from_bytes(found[first].data)
        assert metadata.operation == "INSERT" and sum(stat.num_inserts or 0 for stat in metadata.stats) == 2
        assert archived_write(storage, first) == found[first]


def test_commits_are_found_in_archive_files_that_java_joined_whatever_numbers_are_left(tmp_path: Path) -> None:
    """With `hoodie.archive.merge.enable` Hudi 0.14 and 0.15 join old files in a new one and remove them."""
    path = unpack(ARCHIVED, tmp_path)
    old = sorted((path / ".hoodie/history").glob(".commits_.archive.*"))
    assert len(old) == 2
    archive = LayoutOne(LocalStorage(path), "history")
    before = {write for _, writes in archived_writes(archive) for write in writes}
    assert len(before) == 4
    joined = path / ".hoodie/history/.commits_.archive.11_1-0-1"
    joined.write_bytes(b"".join(file.read_bytes() for file in old))
    for file in old:
        file.unlink()
    for again in (archive, LayoutOne(LocalStorage(path), "history")):
        assert {write for _, writes in archived_writes(again) for write in writes} == before


def test_an_archive_file_that_goes_while_the_archive_is_read_is_looked_for_where_it_went(tmp_path: Path) -> None:
    path = unpack(ARCHIVED, tmp_path)
    old = next((path / ".hoodie/history").glob(".commits_.archive.1_*"))

    class Joined(LocalStorage):
        def get(self, key: str) -> Stored | None:
            if key.endswith(old.name):
                old.rename(old.with_name(".commits_.archive.11_1-0-1"))
            return super().get(key)

    found = {write.requested for _, writes in archived_writes(LayoutOne(Joined(path), "history")) for write in writes}
    assert len(found) == 4


def test_an_archive_whose_files_keep_going_is_an_error(tmp_path: Path) -> None:
    class Gone(LocalStorage):
        def get(self, key: str) -> Stored | None:
            return None if ".archive." in key else super().get(key)

    with pytest.raises(CorruptTableError, match="vanish while they are read") as caught:
        list(archived_writes(LayoutOne(Gone(unpack(ARCHIVED, tmp_path)), "history")))
    assert "run the command again" in caught.value.hint


@pytest.mark.parametrize("query_type", ["snapshot", "read_optimized"])
def test_of_a_merge_on_read_table_the_rows_are_those_that_java_shows(query_type: Any) -> None:
    with opened(golden_table(MERGE_ON_READ)) as engine:
        assert rows(engine.read(query_type=query_type)) == seen_by_java(MERGE_ON_READ)[query_type]


@pytest.mark.parametrize("payload", ["PartialUpdateAvroPayload", "AWSDmsAvroPayload"])
def test_rows_that_a_payload_class_merges_in_its_own_way_are_not_merged(payload: str, tmp_path: Path) -> None:
    path = unpack(MERGE_ON_READ, tmp_path)
    file = path / ".hoodie" / "hoodie.properties"
    file.write_text(file.read_text().replace("DefaultHoodieRecordPayload", payload))
    with opened(path) as engine, pytest.raises(TableError, match="merges rows in its own way") as caught:
        engine.read()
    assert 'query_type="read_optimized"' in caught.value.hint


def test_blocks_of_an_instant_that_is_no_commit_are_passed_over(tmp_path: Path) -> None:
    """On HDFS writers append to one file: a block of one that failed stays there, beside those of commits."""
    path = unpack(MERGE_ON_READ, tmp_path)
    log = next(file for file in path.rglob(".*.log.*") if not file.name.endswith(".crc"))
    whole = log.read_bytes()
    commit = sorted((path / ".hoodie").glob("*.deltacommit"))[-1].name.partition(".")[0]
    failed = whole.replace(commit.encode(), str(int(commit) + 1).encode()).replace(b"a", b"z")
    log.write_bytes(failed + whole)
    with opened(path) as engine:
        assert rows(engine.read()) == seen_by_java(MERGE_ON_READ)["snapshot"]


def test_nothing_is_written_and_the_error_says_how_to_upgrade(tmp_path: Path) -> None:
    path = unpack(NAME, tmp_path)
    before = sorted(path.rglob("*"))
    with opened(path) as engine:
        for write in (lambda: engine.insert(engine.read()), lambda: engine.delete_where(pc.field("v") == 1)):
            with pytest.raises(TableError, match="it has table version 6, of Hudi 0.14 and 0.15") as caught:
                write()
            assert "hoodie.write.auto.upgrade=true" in caught.value.hint
        with pytest.raises(TableError, match="it has table version 6"):
            engine.coordinator.upkeep()
    shown = LayoutOne(LocalStorage(path))
    for refused in (
        lambda: shown.put("a", b""), lambda: shown.put_if_absent("a", b""), lambda: shown.put_if_match("a", b"", "e"),
        lambda: shown.delete(["a"]), lambda: shown.delete_folder("a"), lambda: shown.open_output("a"),
    ):  # fmt: skip
        with pytest.raises(TableError, match="has an old layout, in which lakelock writes nothing"):
            refused()
    assert sorted(path.rglob("*")) == before


def test_doctor_and_the_list_of_commits_know_the_layout(tmp_path: Path) -> None:
    path = str(unpack(NAME, tmp_path))
    found = CliRunner().invoke(app, ["doctor", path]).output
    assert "can be read, but not written" in found and "8 commits in the timeline" in found
    assert "8 commits can be read" in found
    assert CliRunner().invoke(app, ["commits", "ls", path]).output.count("another Hudi writer") == 8


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"partitionToWriteStats": {"p": [1]}}', b"[" * 100_000, b"\xff"])
def test_a_commit_that_is_damaged_is_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="1.commit is not the metadata of a commit"):
        CommitMetadata.from_json(data, "1.commit", replaces=False)


def test_a_commit_that_leads_out_of_the_table_is_refused() -> None:
    stat = {"fileId": "f", "path": "../f_0-0-0_20261126013226587.parquet", "partitionPath": ".."}
    with pytest.raises(CorruptTableError):
        CommitMetadata.from_json(json.dumps({"partitionToWriteStats": {"..": [stat]}}).encode(), "1.commit", replaces=False)
