"""What an instant left behind: all of it is found, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api import FileGroupId, LocalStorage, MemoryStorage, Storage, SystemRuntime, TableIO, WriterIdentity, layout
from tests.faulty_storage import CountingStorage

from lakelock.markers.claims import Claim
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.markers.leftovers import find_leftovers

DEAD, ALIVE = "20261121093515485", "20261121093515486"
WRITER = WriterIdentity("w", "a", "h", 1, "u")
RUNTIME = SystemRuntime()


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CountingStorage:
    return CountingStorage(MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path))


def base_file(partition: str, file_id: str, instant: str) -> str:
    return layout.in_partition(partition, f"{file_id}_0-1-2_{instant}.parquet")


def write(storage: Storage, partition: str, file_id: str, instant: str, *, marker: str | None = "MERGE") -> str:
    key = base_file(partition, file_id, instant)
    if marker is not None:
        storage.put(f".hoodie/.temp/{instant}/{key}.marker.{marker}", b"")
    storage.put(key, b"rows")
    return key


def beat(storage: Storage, instant: str, *, ours: bool = True) -> None:
    record = HeartbeatRecord(instant, WRITER, "UPSERT", 1, 60, 2)
    storage.put(layout.heartbeat(instant), record.to_bytes() if ours else b"")


def everything(storage: Storage) -> set[str]:
    return {entry.key for prefix in ("", ".hoodie") for entry in storage.list(prefix)}


def test_all_traces_of_one_instant_go_and_those_of_the_others_stay(storage: CountingStorage) -> None:
    for instant in (DEAD, ALIVE):
        for partition, file_id in (("month=1", "a"), ("month=2", "b")):
            write(storage, partition, file_id, instant)
            storage.put(layout.claim(FileGroupId(partition, file_id + instant)), Claim(instant, WRITER, "UPSERT").to_bytes())
        beat(storage, instant)
    before = everything(storage)
    left = find_leftovers(TableIO(storage, RUNTIME), DEAD)
    storage.delete(left.data_files)
    storage.delete(left.control_files)
    assert before - everything(storage) == {key for key in before if DEAD in key}
    assert {key for key in before if ALIVE in key} <= everything(storage)
    assert left.by_partition == {"month=1": (f"a_0-1-2_{DEAD}.parquet",), "month=2": (f"b_0-1-2_{DEAD}.parquet",)}


def test_the_heartbeat_goes_last_and_the_markers_first(storage: CountingStorage) -> None:
    write(storage, "p", "a", DEAD)
    storage.put(layout.claim(FileGroupId("p", "a")), Claim(DEAD, WRITER, "UPSERT").to_bytes())
    control = find_leftovers(TableIO(storage, RUNTIME), DEAD).control_files
    assert [key.split("/")[1] for key in control] == [".temp", ".lakelock", ".heartbeat"]


def test_a_file_without_a_marker_is_found_beside_one_that_has_one(storage: CountingStorage) -> None:
    marked = write(storage, "p", "a", DEAD)
    forgotten = write(storage, "p", "b", DEAD, marker=None)
    assert find_leftovers(TableIO(storage, RUNTIME), DEAD).data_files == (marked, forgotten)


def test_a_marked_file_that_was_never_written_is_deleted_all_the_same(storage: CountingStorage) -> None:
    storage.put(f".hoodie/.temp/{DEAD}/{base_file('p', 'a', DEAD)}.marker.CREATE", b"")
    assert find_leftovers(TableIO(storage, RUNTIME), DEAD).data_files == (base_file("p", "a", DEAD),)


def test_the_whole_table_is_searched_for_a_foreign_writer_without_markers(storage: CountingStorage) -> None:
    forgotten = write(storage, "year=2026/month=1", "a", DEAD, marker=None)
    root = write(storage, "", "b", DEAD, marker=None)
    write(storage, "p", "c", ALIVE, marker=None)
    beat(storage, DEAD, ours=False)
    assert set(find_leftovers(TableIO(storage, RUNTIME), DEAD).data_files) == {forgotten, root}


def test_a_writer_of_ours_that_placed_no_marker_wrote_nothing_and_nothing_is_searched(storage: CountingStorage) -> None:
    write(storage, "p", "c", ALIVE)
    beat(storage, DEAD)
    storage.reset()
    assert find_leftovers(TableIO(storage, RUNTIME), DEAD).data_files == ()
    assert ("list", "") not in storage.calls


def test_a_marker_that_names_a_file_of_another_instant_deletes_nothing_of_it(storage: CountingStorage) -> None:
    committed = write(storage, "p", "a", ALIVE, marker=None)
    storage.put(f".hoodie/.temp/{DEAD}/{committed}.marker.MERGE", b"")
    hidden = write(storage, "q", "b", DEAD, marker=None)
    left = find_leftovers(TableIO(storage, RUNTIME), DEAD)
    assert left.data_files == (hidden,)
    assert left.unreadable == (f"{committed}.marker.MERGE",)


def test_markers_that_point_out_of_the_table_are_not_followed(storage: CountingStorage) -> None:
    storage.put(f".hoodie/.temp/{DEAD}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    lines = [
        f"../x_1_{DEAD}.parquet.marker.CREATE",
        f".hoodie/timeline/x_1_{DEAD}.parquet.marker.CREATE",
        f"/x_1_{DEAD}.parquet.marker.CREATE",
    ]
    storage.put(f".hoodie/.temp/{DEAD}/MARKERS0", "\n".join(lines).encode())
    left = find_leftovers(TableIO(storage, RUNTIME), DEAD)
    assert left.data_files == ()
    assert len(left.unreadable) == 3
    assert len(left.markers) == 2


def test_a_torn_batch_of_markers_makes_the_whole_table_be_searched(storage: CountingStorage) -> None:
    storage.put(f".hoodie/.temp/{DEAD}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.put(f".hoodie/.temp/{DEAD}/MARKERS0", f"{base_file('p', 'a', DEAD)}.marker.CREATE\nq/{'b' * 10}".encode())
    other = write(storage, "q", "b", DEAD, marker=None)
    assert find_leftovers(TableIO(storage, RUNTIME), DEAD).data_files == (base_file("p", "a", DEAD), other)


def test_after_a_commit_only_the_bookkeeping_is_found(storage: CountingStorage) -> None:
    write(storage, "p", "a", DEAD)
    left = find_leftovers(TableIO(storage, RUNTIME), DEAD, data=False)
    assert left.data_files == ()
    assert len(left.markers) == 1


@pytest.mark.parametrize("interrupted_after", range(6))
def test_removal_can_be_interrupted_anywhere_and_done_again(storage: CountingStorage, interrupted_after: int) -> None:
    for number in range(3):
        write(storage, "p", f"f{number}", DEAD)
    beat(storage, DEAD)
    write(storage, "p", "f0", ALIVE)
    left = find_leftovers(TableIO(storage, RUNTIME), DEAD)
    storage.delete([*left.data_files, *left.control_files][:interrupted_after])
    again = find_leftovers(TableIO(storage, RUNTIME), DEAD)
    storage.delete(again.data_files)
    storage.delete(again.control_files)
    assert not [key for key in everything(storage) if DEAD in key]
    assert len([key for key in everything(storage) if ALIVE in key]) == 2
