"""The file index: readers see what the commits say, whatever became of checkpoints, and whoever committed when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api import (
    Action,
    AppTransaction,
    CommitMetadata,
    Coordinator,
    EventKind,
    Instant,
    MemoryStorage,
    State,
    TableIO,
    layout,
    read_snapshot,
    read_timeline,
)
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import Recorder, insert, light_commits, new_table, put_file, writer
from tests.faulty_storage import CountingStorage, Wrapped
from tests.tuning import settings_of

from lakelock.errors import StorageError
from lakelock.settings import Settings
from lakelock.table.checkpoint import Checkpoint
from lakelock.testing import ManualRuntime

EVERY = 3
OFTEN = settings_of({"checkpoint.every_commits": EVERY})


@pytest.fixture
def storage() -> MemoryStorage:
    made = MemoryStorage()
    new_table(made)
    return made


def opened(storage, *, settings: Settings = OFTEN, listener: Recorder | None = None) -> Coordinator:
    return writer(storage, settings, listener=listener, runtime=ManualRuntime())


def files(storage, **how: object) -> list[str]:
    """Every file of the table, by a process that has seen nothing of it."""
    return [file.key for file in opened(storage, **how).snapshot().files]  # type: ignore[arg-type]


def listed(storage) -> list[str]:
    return [file.key for file in read_snapshot(TableIO(storage), read_timeline(storage)).files]


def checkpoints(storage) -> list[int]:
    return [layout.checkpoint_number(item.key) or 0 for item in storage.list(layout.CHECKPOINTS)]


def history(storage, count: int = 8) -> None:
    """Commits of several processes: new file groups, next slices, and every fourth replaces a group."""
    for number in range(count):
        mine = opened(storage)
        if number % 4 == 3:
            with mine.begin("INSERT_OVERWRITE") as tx:
                stat = put_file(tx, storage, f"month={number}", f"f{number}")
                tx.commit([stat], replaced={"month=1": [f"f{number - 2}"]})
        else:
            with mine.begin("UPSERT") as tx:
                tx.commit([put_file(tx, storage, "month=1", f"f{number}"), put_file(tx, storage, "month=2", "again")])


def test_the_index_and_a_listing_agree_and_the_newest_two_checkpoints_stay(storage) -> None:
    for count in (1, 3, 8, 9):
        history(storage, count)
        assert files(storage) == listed(storage)
    assert len(checkpoints(storage)) == 2 and min(checkpoints(storage)) > 1


def test_without_checkpoints_the_files_are_listed(storage) -> None:
    off = settings_of({"checkpoint.every_commits": 0})
    for number in range(4):
        insert(opened(storage, settings=off), storage, "month=1", f"f{number}")
    assert checkpoints(storage) == [] and files(storage, settings=off) == listed(storage)


def test_files_that_no_commit_names_are_never_shown(storage) -> None:
    history(storage, 4)
    (known, *_) = opened(storage).snapshot().in_partition("month=2")
    for name in (f"b_9-9-9_{known.instant}.parquet", f"{known.file_id}_9-9-9_{known.instant}.parquet"):
        with storage.open_output(f"month=2/{name}") as out:
            out.write(b"rows")
    before = files(storage)
    assert before == sorted(before) and all("9-9-9" not in key for key in before)
    assert known.key in before


def test_a_commit_that_completes_late_with_an_earlier_instant_is_not_missed(storage) -> None:
    peer = Peer(storage)
    late = peer.begin()
    stat = peer.write(late, "month=7", "late")
    history(storage, 5)
    assert checkpoints(storage)
    before = read_timeline(storage).commits[0]
    earlier = Instant(late, Action.COMMIT.value, State.COMPLETED, before.completion)
    storage.put(layout.timeline(earlier.file_name), CommitMetadata({"month=7": (stat,)}, "UPSERT", {}).to_bytes())
    assert stat.path in files(storage) and files(storage) == listed(storage)
    assert opened(storage).checkpoint() is not None
    assert stat.path in files(storage)


def test_a_commit_that_was_archived_before_any_checkpoint_had_it_is_not_missed(storage) -> None:
    history(storage, 3)
    assert opened(storage).checkpoint() is None, "the newest has them all"
    peer = Peer(storage)
    mine = [peer.commit("month=8", "x"), peer.commit("month=8", "y")]
    peer.commit("month=8", "z")
    peer.archive(*(i.requested for i in read_timeline(storage).commits if i.requested <= mine[-1]))
    assert [file.file_id for file in opened(storage).snapshot().in_partition("month=8")] == ["x", "y", "z"]
    opened(storage).checkpoint()
    assert [file.file_id for file in opened(storage).snapshot().in_partition("month=8")] == ["x", "y", "z"]
    assert files(storage) == listed(storage)


def test_a_transaction_sees_what_its_baseline_shows_although_checkpoints_were_made_since(storage) -> None:
    history(storage, 4)
    mine = opened(storage)
    expected = files(storage)
    with mine.begin("UPSERT") as tx:
        for number in range(2 * EVERY + 1):
            insert(opened(storage), storage, "month=9", f"n{number}")
        assert [file.key for file in tx.snapshot().files] == expected
        assert len(files(storage)) == len(expected) + 2 * EVERY + 1


def test_a_reader_that_is_open_for_long_goes_on_reading_when_it_forgets_old_commits(storage, monkeypatch) -> None:
    monkeypatch.setattr("lakelock.occ.file_index.MOST_EFFECTS", 2 * EVERY)
    mine, reader = opened(storage), opened(storage)
    for number in range(5 * EVERY):
        insert(mine, storage, "month=1", f"f{number}")
        assert len(reader.snapshot().files) == number + 1


class Meanwhile(Wrapped):
    """Another thread is faster: it does something while a commit is read."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.others: list[Callable[[], object]] = []

    def carry(self, op, key, request, *, weight=1):
        if op == "get" and key.endswith(".commit") and self.others:
            self.others.pop()()
        return super().carry(op, key, request, weight=weight)


def test_what_a_thread_looks_at_is_not_forgotten_by_another_that_makes_a_checkpoint(storage) -> None:
    history(storage, 2)
    shared = Meanwhile(storage)
    one = opened(shared)
    one.snapshot()
    insert(opened(storage), storage, "month=9", "n")
    timeline, expected = one.table.timeline(), files(storage)

    def checkpoints_of_another_thread() -> None:
        for number in range(2):
            insert(opened(storage), storage, "month=9", f"later{number}")
            one.table.checkpoint(at_once=True)

    shared.others = [checkpoints_of_another_thread]
    assert [file.key for file in one.table.index.snapshot_at(timeline).files] == expected and not shared.others


def test_commits_that_another_engine_has_undone_are_not_shown(storage) -> None:
    history(storage, 2 * EVERY)
    newest = read_timeline(storage).commits[-1]
    storage.delete([item.key for item in storage.list("") if newest.requested in item.key])
    storage.delete([item.key for item in storage.list(layout.TIMELINE) if newest.requested in item.key])
    assert files(storage) == listed(storage)
    assert opened(storage).checkpoint() is not None
    assert files(storage) == listed(storage)


@pytest.mark.parametrize("damaged", [1, 2])
@pytest.mark.parametrize("content", [b"torn", b""], ids=["torn", "empty"])
def test_a_damaged_checkpoint_is_passed_over_and_told(storage, damaged: int, content: bytes) -> None:
    history(storage)
    expected, recorder = files(storage), Recorder()
    for number in checkpoints(storage)[-damaged:]:
        storage.put(layout.checkpoint(number), content)
    assert files(storage, listener=recorder) == expected
    assert [event.kind for event in recorder.events] == [EventKind.ALERT] * damaged
    assert opened(storage).checkpoint() is not None
    assert files(storage, listener=(after := Recorder())) == expected and after.events == []


def test_a_checkpoint_of_a_later_version_is_ignored(storage, monkeypatch: pytest.MonkeyPatch) -> None:
    history(storage)
    expected, newest = files(storage), checkpoints(storage)[-1]
    found = Checkpoint.from_bytes(storage.get(layout.checkpoint(newest)).data)
    with monkeypatch.context() as later:
        later.setattr("lakelock.table.checkpoint.PLAIN_FORMAT", 3)
        storage.put(layout.checkpoint(newest + 1), found.to_bytes())
    assert files(storage, listener=(recorder := Recorder())) == expected and recorder.events == []
    assert opened(storage).checkpoint() == newest + 2


def test_two_that_make_the_same_checkpoint_write_the_same_bytes_and_one_is_first(storage) -> None:
    light_commits(storage, 0, 2)
    assert opened(storage).checkpoint() == 1
    first = storage.get(layout.checkpoint(1)).data
    storage.delete([layout.checkpoint(1)])
    one, other = opened(storage), opened(storage)
    assert one.checkpoint() == 1
    assert storage.get(layout.checkpoint(1)).data == first
    assert other.checkpoint() is None


class _NoRoom(Wrapped):
    def carry(self, op, key, request, *, weight=1):
        if op == "put_if_absent" and key.startswith(layout.CHECKPOINTS):
            raise StorageError("the disk is full", hint="make room")
        return request()


def test_a_commit_stands_when_its_checkpoint_cannot_be_written(storage) -> None:
    full, recorder = _NoRoom(storage), Recorder()
    for number in range(EVERY + 1):
        insert(opened(full, listener=recorder), storage, "month=1", f"f{number}")
    assert len(files(storage)) == EVERY + 1 and checkpoints(storage) == []
    problems = [event.facts["problem"] for event in recorder.events if event.kind is EventKind.ALERT]
    assert len(problems) >= 1 and all("disk is full" in str(problem) for problem in problems)


def test_a_replayed_batch_is_known_after_its_commit_was_archived(storage) -> None:
    batch = AppTransaction("stream", 4)
    insert(opened(storage), storage, "month=1", "a", application=batch)
    for number in range(2 * EVERY):
        insert(opened(storage), storage, "month=1", f"f{number}")
    done = read_timeline(storage).commits
    Peer(storage).archive(*(i.requested for i in done[:-1]))
    applied = opened(storage).applied_by(batch)
    assert applied is not None and applied.instant == done[0].requested and applied.writer is not None
    assert opened(storage).applied_by(AppTransaction("stream", 5)) is None


def test_a_large_checkpoint_is_read_in_part_and_does_without_when_it_is_removed_meanwhile(storage, monkeypatch) -> None:
    monkeypatch.setattr("lakelock.occ.file_index.READ_WHOLE_BYTES", 100)
    history(storage)
    expected = listed(storage)
    reader = opened(storage).snapshot()
    assert [file.key for file in reader.in_partition("month=2")] == [key for key in expected if key.startswith("month=2/")]
    assert [file.key for file in reader.files] == expected
    other = opened(storage).snapshot()
    for number in checkpoints(storage):
        storage.put(layout.checkpoint(number), storage.get(layout.checkpoint(number)).data[:-9] + b"torntorn!")
    assert [file.key for file in other.files] == expected


def requests_of_a_snapshot(storage, settings: Settings) -> int:
    counting = CountingStorage(storage)
    reader = writer(counting, settings, runtime=ManualRuntime())
    counting.reset()
    assert reader.snapshot().in_partition("month=3")
    return counting.total


def test_a_snapshot_takes_as_many_requests_after_1_000_commits_as_after_35(storage) -> None:
    counts, made = [], 0
    # A longer timeline is listed twice, see `listing.at_once`; that is the timeline's cost and ends with archiving.
    settings = settings_of({"listing.at_once": 1000})
    for count in (25, 990):
        light_commits(storage, made, count)
        writer(storage, settings, runtime=ManualRuntime()).checkpoint()
        light_commits(storage, count, count + 10)
        made = count + 10
        counts.append(requests_of_a_snapshot(storage, settings))
    assert counts == [4 + 10, 4 + 10]


def test_a_process_that_stays_open_reads_each_commit_once_and_its_own_not_at_all(storage) -> None:
    light_commits(storage, 0, 20)
    counting = CountingStorage(storage)
    reader = writer(counting, Settings(), runtime=ManualRuntime())
    reader.snapshot()
    light_commits(storage, 20, 23)
    for expected in (1 + 3, 1):
        counting.reset()
        assert len(reader.snapshot().files) == 23
        assert counting.total == expected, counting.calls
    insert(reader, storage, "month=1", "mine")
    counting.reset()
    assert len(reader.snapshot().files) == 24
    assert counting.total == 1, counting.calls


def test_the_doctor_compares_the_index_with_a_listing(storage) -> None:
    from lakelock.cli.doctor_contents import check_index
    from lakelock.cli.doctor_services import DoctorContext
    from lakelock.settings.resolver import Resolved

    context = DoctorContext("memory:", Resolved(OFTEN, {}), storage, ManualRuntime())
    history(storage)
    (check,) = check_index(context)
    assert check.status == "ok" and f"{len(listed(storage))} files" in check.found
    gone = files(storage)[0]
    storage.delete([gone])
    (check,) = check_index(context)
    assert check.status == "failed" and gone in check.found
