"""Files of tasks that were killed when their commit no longer looked for them: they go, and no file of the commit does."""

from __future__ import annotations

import pytest
from tests.api import Coordinator, DataFile, StorageLocation, TableIO, layout, read_snapshot, read_timeline
from tests.behaviour.foreign import Peer
from tests.behaviour.simulated_time.writers import writer
from tests.behaviour.tables import QUICK, Recorder, groups, leftovers, put_file
from tests.faulty_storage import CountingStorage, Wrapped

from lakelock.errors import StorageUnavailable
from lakelock.markers import data_files as direct
from lakelock.markers.data_files import MarkerKind
from lakelock.markers.liveness import CLOCK_GRAIN_MS

LIMIT_S = QUICK.heartbeat.interval_s * QUICK.heartbeat.tolerable_misses + CLOCK_GRAIN_MS / 1000


def commit(storage, runtime, file_id: str) -> str:
    """A commit of a new file group, or of the next slice of one that there is; its instant."""
    with writer(storage, runtime).begin("UPSERT") as tx:
        return tx.commit([put_file(tx, storage, "month=1", file_id)]).instant


def stray(storage, instant: str, file_id: str, *, token: str = "9-9-9", kind: MarkerKind = MarkerKind.CREATE) -> str:
    """What an attempt leaves that marked after the commit had looked, and was killed with its file complete."""
    file = DataFile("month=1", file_id, token, instant, 4)
    direct.place(storage, instant, file, kind)
    with storage.open_output(file.key) as out:
        out.write(b"rows")
    return file.key


def data_files(storage) -> list[str]:
    return [item.key for item in storage.list("") if item.key.endswith(".parquet")]


def shown_by_names(storage) -> list[str]:
    """What readers show that know nothing of the index: they go by the names of files."""
    return [str(file.group) for file in read_snapshot(TableIO(storage), read_timeline(storage)).files]


def settle(storage, runtime, *listeners) -> None:
    """Whoever may be about to write has been killed long ago, and somebody sweeps."""
    runtime.advance(LIMIT_S + 1)
    writer(storage, runtime, QUICK, *listeners).reap()


def test_a_stray_file_group_is_removed_by_the_sweep_and_told(storage, runtime):
    instant = commit(storage, runtime, "a")
    gone, recorder = stray(storage, instant, "b"), Recorder()
    assert shown_by_names(storage) == ["month=1/a", "month=1/b"], "until then other readers see its rows twice"
    assert groups(storage) == ["month=1/a"], "no commit names it"
    settle(storage, runtime, recorder)
    assert groups(storage) == shown_by_names(storage) == ["month=1/a"] and gone not in data_files(storage)
    assert leftovers(storage) == []
    assert [event.instant for event in recorder.events if event.kind.value == "alert"] == [instant]


def test_of_two_slices_of_one_instant_the_one_stays_that_the_commit_names_however_many_there_are(storage, runtime):
    commit(storage, runtime, "a")
    instant = commit(storage, runtime, "a")
    before = data_files(storage)
    for token in ("0-0-0", "9-9-9", "9-9-10"):
        stray(storage, instant, "a", token=token, kind=MarkerKind.MERGE)
    settle(storage, runtime)
    assert data_files(storage) == before and leftovers(storage) == []


def test_readers_and_writers_take_the_slice_that_the_commit_names_before_anybody_sweeps(storage, runtime):
    """Every reader failed, and so did every writer that had to read; nothing but a command got the table going again."""
    commit(storage, runtime, "a")
    instant = commit(storage, runtime, "a")
    (named,) = [key for key in data_files(storage) if instant in key]
    for token in ("0-0-0", "9-9-9"):
        stray(storage, instant, "a", token=token, kind=MarkerKind.MERGE)
    assert [file.key for file in writer(storage, runtime).snapshot().files] == [named]
    assert commit(storage, runtime, "a") > instant
    assert groups(storage) == ["month=1/a"]


def test_a_marker_of_a_file_that_the_commit_names_goes_and_the_file_stays(storage, runtime):
    """Its writer died before it tidied up."""
    with writer(storage, runtime).begin("UPSERT") as tx:
        stat = put_file(tx, storage, "month=1", "a")
        tx.commit([stat])
    direct.place(storage, tx.instant, DataFile.parse(stat.path), MarkerKind.CREATE)
    writer(storage, runtime).reap()
    assert groups(storage) == ["month=1/a"] and leftovers(storage) == []


def test_the_file_of_a_task_that_is_still_at_work_is_removed_when_it_comes_although_the_task_is_killed_then(storage, runtime):
    """The sweep keeps the marker for as long as its writer may live, so it is not forgotten that a file may come."""
    instant = commit(storage, runtime, "a")
    key = stray(storage, instant, "b")
    storage.delete([key])
    runtime.advance(LIMIT_S / 2)
    writer(storage, runtime).reap()
    with storage.open_output(key) as out:
        out.write(b"rows")
    settle(storage, runtime)
    assert groups(storage) == ["month=1/a"] and leftovers(storage) == []


def test_stray_files_of_a_commit_that_java_has_archived_are_removed_too(storage, runtime):
    first = commit(storage, runtime, "a")
    commit(storage, runtime, "b")
    Peer(storage).archive(first)
    stray(storage, first, "c")
    settle(storage, runtime)
    assert groups(storage) == ["month=1/a", "month=1/b"] and leftovers(storage) == []


@pytest.mark.parametrize("archive", [b"torn", None], ids=["the archive is torn", "the archive lacks it"])
def test_where_the_commit_cannot_be_read_markers_and_files_stay_and_the_sweep_goes_on(storage, runtime, archive):
    first, second = commit(storage, runtime, "a"), commit(storage, runtime, "b")
    commit(storage, runtime, "c")
    Peer(storage).archive(first)
    (key,) = [item.key for item in storage.list(layout.HISTORY)]
    if archive is None:
        storage.delete([key])
        storage.put(f"{layout.HISTORY}/_version_", b"1")
    else:
        storage.put(key, archive)
    kept, gone = stray(storage, first, "x"), stray(storage, second, "y")
    settle(storage, runtime)
    assert kept in data_files(storage) and gone not in data_files(storage)
    assert [item.key for item in storage.list(layout.TEMP)] == [f"{layout.marker_folder(first)}/{kept}.marker.CREATE"]


def test_a_sweep_lists_the_timeline_as_often_for_several_commits_as_for_one_and_each_marker_folder_once(storage, runtime):
    counting, listings = CountingStorage(storage), []
    for instants in ([commit(storage, runtime, "a")], [commit(storage, runtime, "a") for _ in range(3)]):
        for instant in instants:
            stray(storage, instant, "b")
        counting.reset()
        settle(counting, runtime)
        listed = [key for op, key in counting.calls if op == "list"]
        assert [listed.count(layout.marker_folder(instant)) for instant in instants] == [1] * len(instants)
        listings.append(listed.count(layout.TIMELINE))
    assert listings[0] == listings[1]
    assert groups(storage) == ["month=1/a"] and leftovers(storage) == []


def test_files_of_another_engines_commit_are_left_to_that_engine(storage, runtime):
    """It reconciles before it commits, by rules of its own."""
    instant = Peer(storage).commit("month=1", "a")
    stray(storage, instant, "b")
    settle(storage, runtime)
    assert shown_by_names(storage) == ["month=1/a", "month=1/b"] and leftovers(storage) == []


def test_cleaning_up_after_a_writer_that_died_once_it_had_committed_removes_stray_files_too(storage, runtime):
    class DiesAfterwards(Wrapped):
        published = False

        def carry(self, op, key, request, *, weight=1):
            if self.published and op in ("delete", "put"):
                raise StorageUnavailable("it is dead", hint="")
            result = request()
            self.published = self.published or (op == "put_if_absent" and key.endswith(".commit"))
            return result

    dead = Coordinator.open(StorageLocation(storage.uri), QUICK, runtime=runtime, storage=DiesAfterwards(storage))
    with dead.begin("UPSERT") as tx:
        stat = put_file(tx, storage, "month=1", "a")
        tx.commit([stat])
    assert [item.key for item in storage.list(layout.HEARTBEATS)], "it could not tidy up"
    stray(storage, tx.instant, "b")
    settle(storage, runtime)
    assert groups(storage) == ["month=1/a"] and leftovers(storage) == []


def rolled_back(storage, runtime) -> str:
    """The instant of a writer that others have rolled back, while it stood still, to the end."""
    tx = writer(storage, runtime).begin("INSERT")
    runtime.stop_repeating()
    runtime.advance(LIMIT_S + 1)
    writer(storage, runtime).reap()
    assert leftovers(storage) == []
    return tx.instant


def test_a_file_that_a_rolled_back_writer_announced_late_is_removed_when_it_comes_although_its_writer_dies(storage, runtime):
    """It goes on until it finds out. A sweep that removed its marker before the file came would leave the file for ever."""
    instant = rolled_back(storage, runtime)
    key = stray(storage, instant, "late")
    storage.delete([key])
    writer(storage, runtime).reap()
    with storage.open_output(key) as out:
        out.write(b"rows")
    settle(storage, runtime)
    assert key not in data_files(storage) and leftovers(storage) == []


def test_a_writer_that_was_rolled_back_leaves_the_markers_of_its_tasks_that_still_run(storage, runtime):
    """A task finds its marker, so it takes its file for one that counts, and is killed."""
    begun = writer(storage, runtime).begin("INSERT")
    job = writer(storage, runtime).adopt(begun.detach())
    runtime.stop_repeating()
    runtime.advance(LIMIT_S + 1)
    writer(storage, runtime).reap()
    key = stray(storage, begun.instant, "late")
    storage.delete([key])
    job.abort("the job failed")
    with storage.open_output(key) as out:
        out.write(b"rows")
    settle(storage, runtime)
    assert key not in data_files(storage) and leftovers(storage) == []
