"""Which files are the table: snapshots, their past, and what changed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.api import (
    Action,
    CommitMetadata,
    DataFile,
    FileGroupId,
    Instant,
    MemoryStorage,
    State,
    SystemRuntime,
    TableIO,
    Timeline,
    WriteStat,
    layout,
    read_snapshot,
    read_timeline,
)
from tests.faulty_storage import CountingStorage

from lakelock.errors import CorruptTableError
from lakelock.storage import Listed
from lakelock.table.change_feed import read_changes
from lakelock.table.history_files import HistoryFile, HistoryRow, rows_bytes
from lakelock.table.snapshot import Snapshot


def at(second: int) -> str:
    return f"202611210000{second:02}000"


def done(second: int, action: Action = Action.COMMIT, completion: int | None = None) -> Instant:
    return Instant(at(second), action, State.COMPLETED, at(completion or second))


def file(group: str, second: int, partition: str = "p", token: str = "0-0-0", size_bytes: int = 10) -> Listed:
    return Listed(layout.in_partition(partition, f"{group}_{token}_{at(second)}.parquet"), size_bytes, 0)


def shown(snapshot: Snapshot) -> list[str]:
    return [f"{f.file_id}@{int(f.instant[12:14])}" for f in snapshot.files]


def snapshot_of(instants: Iterable[Instant], files: Iterable[Listed], replaced: dict[str, int] | None = None) -> Snapshot:
    groups = {FileGroupId("p", group): at(second) for group, second in (replaced or {}).items()}
    return Snapshot.of(Timeline.of(instants), files, groups)


def test_a_data_file_is_its_path() -> None:
    path = "region=eu/x y/458f8ba2-821f-4125-8d97-d7add8489111-0_0-191-369_20261121092737397.parquet"
    parsed = DataFile.parse(path, 7)
    assert parsed == ("region=eu/x y", "458f8ba2-821f-4125-8d97-d7add8489111-0", "0-191-369", "20261121092737397", 7, ())
    assert parsed.key == path and parsed.group == FileGroupId("region=eu/x y", "458f8ba2-821f-4125-8d97-d7add8489111-0")
    flat = DataFile.parse("a-0_0-0-0_20261121092737.parquet")
    assert flat is not None and (flat.partition, flat.key) == ("", "a-0_0-0-0_20261121092737.parquet")


@pytest.mark.parametrize(
    "path",
    [
        "part-00000-458f8ba2-c000.snappy.parquet",
        "p/a-0_0-0-0_2026.parquet",
        "p/a_b_0-0-0_20261121092737397.parquet",
        "p/_0-0-0_20261121092737397.parquet",
        "p/a-0_0-0-0_20261121092737397.parquet.tmp",
        "p/a-0_0-0-0_20261121092737397.parquet\n",
        "",
    ],
)
def test_other_files_are_no_data_files(path: str) -> None:
    assert DataFile.parse(path) is None


def test_the_newest_visible_slice_of_each_group_is_shown() -> None:
    instants = [done(2), done(4), Instant(at(5), Action.COMMIT, State.INFLIGHT)]
    files = [file("a", 1), file("a", 2), file("a", 5), file("b", 3), file("b", 4), file("c", 3), file("d", 5), file("e", 1)]
    assert shown(snapshot_of(instants, files)) == ["a@2", "b@4", "e@1"]
    assert shown(snapshot_of(instants, reversed(files))) == ["a@2", "b@4", "e@1"]


def test_the_same_file_id_in_two_partitions_is_two_groups() -> None:
    snapshot = snapshot_of([done(1), done(2)], [file("a", 1, "p=1"), file("a", 2, "p=2"), file("a", 2, "")])
    assert snapshot.partitions == ("", "p=1", "p=2") and len(snapshot.files) == 3
    assert [f.instant for f in snapshot.in_partition("p=1")] == [at(1)] and snapshot.in_partition("p=3") == ()
    found = snapshot.group(FileGroupId("p=2", "a"))
    assert found is not None and found.instant == at(2) and snapshot.group(FileGroupId("p=3", "a")) is None


def test_replaced_groups_are_hidden_once_their_replacing_instant_counts() -> None:
    instants = [done(1), done(3, Action.REPLACE_COMMIT), Instant(at(4), Action.REPLACE_COMMIT, State.INFLIGHT)]
    files = [file("a", 1), file("b", 1), file("n", 3)]
    assert shown(snapshot_of(instants, files, {"a": 3, "b": 4})) == ["b@1", "n@3"]
    past = Snapshot.of(Timeline.of(instants).as_of(at(2)), files, {FileGroupId("p", "a"): at(3)})
    assert shown(past) == ["a@1", "b@1"]


def test_two_files_of_one_group_and_instant_are_refused_where_they_count() -> None:
    twins = [file("a", 1), file("a", 1, token="1-2-3")]
    with pytest.raises(CorruptTableError, match="two files claim") as caught:
        snapshot_of([done(1)], twins)
    assert "a_0-0-0_" in str(caught.value) and "a_1-2-3_" in str(caught.value)
    assert (
        shown(snapshot_of([done(2), Instant(at(3), Action.COMMIT, State.INFLIGHT)], [file("a", 3), file("a", 3, token="x")]))
        == []
    )


def test_an_empty_file_of_a_completed_commit_is_refused() -> None:
    with pytest.raises(CorruptTableError, match="p/a_0-0-0_.* is empty"):
        snapshot_of([done(1)], [file("a", 1, size_bytes=0)])
    assert shown(snapshot_of([done(1), done(2)], [file("a", 1, size_bytes=0), file("a", 2)])) == ["a@2"]


def stored_table() -> CountingStorage:
    """Three commits: two files, one rewritten, one replaced; completed in the order 1, 3, 2."""
    storage = CountingStorage(MemoryStorage())

    def commit(instant: Instant, files: dict[str, str], replaced: tuple[str, ...] | None = None) -> None:
        stats = []
        for group, before in files.items():
            path = file(group, int(instant.requested[12:14])).key
            storage.put(path, b"rows")
            stats.append(WriteStat(group, path, before, partition_path="p", file_size_bytes=4))
        metadata = CommitMetadata({"p": tuple(stats)}, "X", {}, None if replaced is None else {"p": replaced})
        storage.put(layout.timeline(instant.file_name), metadata.to_bytes())

    commit(done(1, completion=4), {"a": "null", "b": "null"})
    commit(done(2, completion=9), {"a": at(1), "c": "null"})
    commit(done(3, Action.REPLACE_COMMIT, completion=6), {"d": "null"}, ("b",))
    storage.requests.clear()
    return storage


@pytest.mark.parametrize("at_a_time", [1, 16], ids=["one by one", "several at a time"])
def test_a_snapshot_costs_one_listing_and_one_read_per_replacecommit(at_a_time: int) -> None:
    storage = stored_table()
    timeline = read_timeline(storage)
    storage.requests.clear()
    assert shown(read_snapshot(TableIO(storage, SystemRuntime(), at_a_time), timeline)) == ["a@2", "c@2", "d@3"]
    assert storage.requests == {"list": 1, "get": 1}


def test_a_snapshot_of_the_past_goes_by_request() -> None:
    storage = stored_table()
    timeline = read_timeline(storage)
    assert shown(read_snapshot(TableIO(storage), timeline, at(1))) == ["a@1", "b@1"]
    assert shown(read_snapshot(TableIO(storage), timeline, at(2))) == ["a@2", "b@1", "c@2"]


def test_a_replacecommit_that_was_just_archived_leaves_nothing_to_hide() -> None:
    storage = stored_table()
    timeline = read_timeline(storage)
    storage.delete([layout.timeline(done(3, Action.REPLACE_COMMIT, completion=6).file_name), file("b", 1).key])
    assert shown(read_snapshot(TableIO(storage), timeline)) == ["a@2", "c@2", "d@3"]


def test_changes_go_by_completion() -> None:
    storage = stored_table()
    timeline = read_timeline(storage)
    everything = read_changes(storage, timeline, "")
    assert [i.requested for i in everything.instants] == [at(1), at(3), at(2)]
    assert [f.key for f in everything.files] == [file("a", 2).key, file("c", 2).key, file("d", 3).key]
    assert [f.key for f in read_changes(storage, timeline, at(4)).files] == [
        file("a", 2).key,
        file("c", 2).key,
        file("d", 3).key,
    ]
    middle = read_changes(storage, timeline, at(4), at(6))
    assert [i.requested for i in middle.instants] == [at(3)] and [f.file_id for f in middle.files] == ["d"]
    assert read_changes(storage, timeline, at(9)).files == ()


def test_changes_from_before_the_archive_are_read_from_it() -> None:
    storage = stored_table()
    everything = read_changes(storage, read_timeline(storage), "")
    first = next(i for i in read_timeline(storage).commits if i.requested == at(1))
    stored = storage.get(layout.timeline(first.file_name))
    assert stored is not None
    row = HistoryRow(first.requested, first.completion or "", first.action, stored.data)
    storage.put(HistoryFile(at(1), at(1), 0).key, rows_bytes([row]))
    assert read_changes(storage, read_timeline(storage), "") == everything, "while it is in both"
    storage.delete([layout.timeline(first.file_name)])
    assert read_changes(storage, read_timeline(storage), "") == everything
    assert len(read_changes(storage, read_timeline(storage), first.completion or "").instants) == 2
