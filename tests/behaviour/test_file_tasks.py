"""What tasks leave on storage, seen by other readers and after failures."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTable
from tests.api import (
    CommitMetadata,
    DataFile,
    Keyed,
    LocalStorage,
    MemoryStorage,
    Storage,
    StorageLocation,
    TableProperties,
    TableSchema,
    WriterIdentity,
    WriteStat,
    layout,
)
from tests.faulty_storage import FaultyStorage, Rule

from lakelock.engine.file_tasks import FileTasks
from lakelock.errors import StorageError, TransactionStateError
from lakelock.markers.data_files import TaskToken, listed
from lakelock.occ.begin import WriteContext
from lakelock.settings import Settings, WriteSettings
from lakelock.table import rewriting
from lakelock.table.rewriting import keys_among

FIRST, SECOND = "20260101000000000", "20260102000000000"
SCHEMA = TableSchema.from_arrow(pa.schema([("id", pa.string()), ("v", pa.int64()), ("region", pa.string())]))
PROPERTIES = TableProperties.new("t", ["id"], ["region"], create_schema=SCHEMA.to_avro_json("t", null_first=False))
WRITER = WriterIdentity("w1", "job", "host", 1, "me")
EU = "region=eu"
TOKEN = TaskToken(3, 1, 9)


def context(root: str, instant: str = FIRST, **write: object) -> WriteContext:
    settings = Settings(write=WriteSettings(**write))  # type: ignore[arg-type]
    return WriteContext(StorageLocation.of(root), instant, "UPSERT", WRITER, PROPERTIES, SCHEMA, settings)


def rows(*values: tuple[str, int], region: str = "eu") -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "v": v, "region": region} for key, v in values], SCHEMA.arrow)


def data_file(stat: WriteStat) -> DataFile:
    file = DataFile.parse(stat.path or "", stat.file_size_bytes or 0)
    assert file is not None
    return file


def commit(storage: Storage, instant: str, stats: list[WriteStat]) -> None:
    by_partition: dict[str, tuple[WriteStat, ...]] = {}
    for stat in stats:
        partition = stat.partition_path or ""
        by_partition[partition] = (*by_partition.get(partition, ()), stat)
    extra = {"schema": SCHEMA.to_avro_json("t")}
    metadata = CommitMetadata(by_partition, "UPSERT", extra)
    for name, data in ((f"{instant}.commit.requested", b""), (f"{instant}.inflight", b"")):
        storage.put_if_absent(layout.timeline(name), data)
    storage.put_if_absent(layout.timeline(f"{instant}_{int(instant) + 1}.commit"), metadata.to_bytes())


def read_by_hudi(path: Path) -> list[tuple[str, int, str]]:
    found = pa.Table.from_batches(HudiTable(str(path)).read()).to_pylist()
    return sorted((row["id"], row["v"], row["region"]) for row in found)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    LocalStorage(tmp_path).put_if_absent(layout.PROPERTIES, PROPERTIES.serialize(1_700_000_000_000))
    return tmp_path


def test_hudi_reads_what_tasks_wrote(table: Path) -> None:
    storage = LocalStorage(table)
    first = FileTasks.of(context(str(table), target_file_rows=3))
    stats = first.write_new_files(EU, [rows(("a", 1), ("b", 2)), rows(("c", 3), ("d", 4))], TOKEN)
    stats += first.write_new_files("region=us", [rows(("e", 5), region="us")], TOKEN)
    commit(storage, FIRST, stats)
    assert read_by_hudi(table) == [("a", 1, "eu"), ("b", 2, "eu"), ("c", 3, "eu"), ("d", 4, "eu"), ("e", 5, "us")]

    second = FileTasks.of(context(str(table), SECOND))
    upserts = Keyed.of(rows(("a", 10), ("new", 11)), PROPERTIES)
    changed = [
        second.rewrite_group(data_file(stats[0]), TOKEN, upserts=upserts, delete_mask=keys_among(pa.array(["b"]))),
        second.rewrite_group(data_file(stats[2]), TOKEN, delete_mask=keys_among(pa.array(["e"]))),
    ]
    commit(storage, SECOND, changed)
    assert read_by_hudi(table) == [("a", 10, "eu"), ("c", 3, "eu"), ("d", 4, "eu"), ("new", 11, "eu")]
    emptied = pq.read_metadata(table / (changed[1].path or ""))
    assert emptied.num_rows == 0 and b"hoodie_min_record_key" not in emptied.metadata


def test_new_files_are_rolled_announced_and_counted(table: Path) -> None:
    storage = LocalStorage(table)
    stats = FileTasks.of(context(str(table), target_file_rows=3)).write_new_files(
        EU, [rows(*((f"k{i}", i) for i in range(7)))], TOKEN
    )
    assert [stat.num_writes for stat in stats] == [3, 3, 1] == [stat.num_inserts for stat in stats]
    assert len({(stat.file_id or "").rpartition("-")[0] for stat in stats}) == 1
    assert [(stat.file_id or "").rpartition("-")[2] for stat in stats] == ["0", "1", "2"]
    for stat in stats:
        assert stat.path == f"{EU}/{stat.file_id}_3-1-9_{FIRST}.parquet" and stat.partition_path == EU
        assert stat.file_size_bytes == stat.total_write_bytes == (table / stat.path).stat().st_size
        assert stat.is_new_group and stat.prev_base_file is None
    markers = listed(storage, FIRST).markers
    assert {str(marker) for marker in markers} == {f"{stat.path}.marker.CREATE" for stat in stats}
    assert b"partitionDepth=1" in (table / EU / ".hoodie_partition_metadata").read_bytes()


def test_a_new_file_begins_where_wide_rows_fill_one(table: Path) -> None:
    wide = rows(*((random.Random(n).randbytes(32).hex(), n) for n in range(4_000)))
    narrow = FileTasks.of(context(str(table), target_file_bytes=64 << 10, row_group_rows=1_000))
    stats = narrow.write_new_files(EU, [wide.slice(start, 500) for start in range(0, 4_000, 500)], TOKEN)
    assert [stat.num_writes for stat in stats] == [1_000] * 4
    assert all((64 << 10) <= (stat.file_size_bytes or 0) < (128 << 10) for stat in stats)


def test_one_table_of_many_wide_rows_is_written_in_pieces(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = rows(*((random.Random(n).randbytes(500).hex(), n) for n in range(1_000)))
    monkeypatch.setattr(rewriting, "BATCH_BYTES", 100 << 10)  # some hundred of these rows
    stats = FileTasks.of(context(str(table), target_file_bytes=200 << 10, row_group_rows=100)).write_new_files(
        EU, [wide], TOKEN
    )
    assert [stat.num_writes for stat in stats][:-1] == [stats[0].num_writes] * (len(stats) - 1)
    assert 3 <= len(stats) <= 5
    assert sum(stat.num_writes for stat in stats) == 1_000


def test_no_rows_leave_nothing() -> None:
    storage = MemoryStorage()
    assert FileTasks.of(context("/unused"), storage).write_new_files(EU, [rows(), rows()], TOKEN) == []
    assert list(storage.list("")) == list(storage.list(layout.TEMP)) == []


def test_a_rewrite_names_what_it_replaces(table: Path) -> None:
    (stat,) = FileTasks.of(context(str(table))).write_new_files(EU, [rows(("a", 1), ("b", 2), ("c", 3))], TOKEN)
    base = data_file(stat)
    upserts = Keyed.of(rows(("a", 10), ("d", 4)), PROPERTIES)
    new = FileTasks.of(context(str(table), SECOND)).rewrite_group(
        base, TOKEN, upserts=upserts, delete_mask=keys_among(pa.array(["c", "x"]))
    )
    assert (new.file_id, new.prev_commit, new.prev_base_file) == (base.file_id, FIRST, base.name)
    assert (new.num_writes, new.num_inserts, new.num_update_writes, new.num_deletes) == (3, 1, 1, 1)
    assert new.group == base.group and not new.is_new_group
    assert {str(marker) for marker in listed(LocalStorage(table), SECOND).markers} == {f"{new.path}.marker.MERGE"}
    assert new.runtime is not None and new.runtime.create_ms == 0


def test_a_group_that_is_not_older_is_refused() -> None:
    storage = MemoryStorage()
    (stat,) = FileTasks.of(context("/unused", SECOND), storage).write_new_files(EU, [rows(("a", 1))], TOKEN)
    with pytest.raises(TransactionStateError, match="not older than this transaction"):
        FileTasks.of(context("/unused", FIRST), storage).rewrite_group(data_file(stat), TOKEN)


def test_contexts_travel_to_executors() -> None:
    original = context("/unused")
    assert pickle.loads(pickle.dumps(original)) == original


class TestFailures:
    def test_a_full_disk_leaves_markers_only_and_says_so(self) -> None:
        inner = MemoryStorage()
        full = StorageError("disk full", hint="free some space")
        storage = FaultyStorage(inner, [Rule("open_output", nth=2, error=full)])
        small = FileTasks.of(context("/unused", target_file_rows=1), storage)
        with pytest.raises(StorageError, match="disk full") as failed:
            small.write_new_files(EU, [rows(("a", 1), ("b", 2))], TOKEN)
        assert str(pickle.loads(pickle.dumps(failed.value))) == str(full)
        assert [entry.key for entry in inner.list("")] == []
        assert len(listed(inner, FIRST).markers) == 2

    def test_an_error_in_the_rows_leaves_no_data_file(self, table: Path) -> None:
        def torn() -> Iterator[pa.Table]:
            yield rows(("a", 1))
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError, match="the source broke"):
            FileTasks.of(context(str(table))).write_new_files(EU, torn(), TOKEN)
        assert list(table.glob("*/*.parquet")) == []
        assert len(listed(LocalStorage(table), FIRST).markers) == 1

    def test_a_data_file_that_cannot_be_deleted_does_not_hide_the_error(self) -> None:
        full = StorageError("disk full")
        storage = FaultyStorage(
            MemoryStorage(), [Rule("open_output", error=full), Rule("delete", error=StorageError("read-only"), nth=None)]
        )
        with pytest.raises(StorageError, match="disk full"):
            FileTasks.of(context("/unused"), storage).write_new_files(EU, [rows(("a", 1))], TOKEN)
