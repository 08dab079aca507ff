"""Cleaning: what is deleted, what stays for whom, and what the timeline says of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.api import Action, Coordinator, FileGroupId, StorageLocation, format_instant, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import Recorder, put_file
from tests.behaviour.upkeep.upkeep_tables import KEEPING_TWO, PARTITION, AgingTable
from tests.faulty_storage import CountingStorage, FaultyStorage, Rule

from lakelock.errors import InputError, SnapshotTooOld, StorageUnavailable
from lakelock.settings import CheckpointSettings, CleanSettings, ListingSettings
from lakelock.table.service_metadata import CleanMetadata, CleanPlan
from lakelock.testing import ManualRuntime


def keeping(**clean: object) -> AgingTable:
    return AgingTable(replace(KEEPING_TWO, clean=CleanSettings(**{"policy": "KEEP_LATEST_COMMITS", "readers_s": 0, **clean})))  # type: ignore[arg-type]


def test_the_table_stays_readable_as_of_the_commits_that_are_kept_and_older_files_go() -> None:
    table = AgingTable()
    first, second, third, fourth, fifth = table.write_many(5)
    cleaned = table.coordinator().clean()
    assert table.slices() == [third, fourth, fifth]
    assert (cleaned.files, cleaned.retained, cleaned.left) == (2, fourth, 0)
    assert table.shown(fourth) == {"a": fourth} and table.shown(fifth) == {"a": fifth} == table.shown()
    assert cleaned.readable_from == third
    assert first < second < third


def test_a_group_that_was_not_rewritten_keeps_its_only_file() -> None:
    table = AgingTable()
    (old,) = table.write_many(1, "still")
    table.write_many(5)
    table.coordinator().clean()
    assert table.slices("still") == [old] and table.shown()["still"] == old


def test_hours_keep_what_the_table_looked_like_that_long_ago() -> None:
    table = keeping(policy="KEEP_LATEST_BY_HOURS", keep_hours=1)
    early = table.write_many(3)
    table.runtime.advance(3600)
    late = table.write_many(3)
    table.coordinator().clean()
    assert table.slices() == [early[-1], *late]
    table.runtime.advance(100 * 3600)
    table.coordinator().clean()
    assert table.slices() == late[-2:], "the newest commit is kept, and what it replaced"


@pytest.mark.parametrize("days", [8, -8])
def test_a_machine_whose_clock_is_wrong_removes_nothing_too_early(days: int) -> None:
    table = keeping(policy="KEEP_LATEST_BY_HOURS", keep_hours=168)
    written = table.write_many(4)
    wrong = ManualRuntime(start_ms=table.runtime.now_ms() + days * 86_400_000)
    with Coordinator.open(
        StorageLocation(table.storage.uri), table.settings, runtime=wrong, storage=table.storage
    ) as coordinator:
        assert coordinator.clean().files == 0
    assert table.slices() == written


def test_versions_keep_so_many_files_of_each_group() -> None:
    table = keeping(policy="KEEP_LATEST_FILE_VERSIONS", keep_versions=2)
    table.write("seldom")
    often = table.write_many(4)
    table.coordinator().clean()
    assert table.slices() == often[-2:] and len(table.slices("seldom")) == 1
    assert table.coordinator().clean().files == 0


def test_the_files_of_a_group_that_was_replaced_go_with_it() -> None:
    table = AgingTable()
    table.write("a", "b")
    with table.coordinator().begin("INSERT_OVERWRITE") as tx:
        tx.commit([put_file(tx, table.storage, PARTITION, "new")], replaced={PARTITION: ["a", "b"]})
    table.runtime.advance(5)
    table.write_many(3, "c")
    table.coordinator().clean()
    assert table.slices("a") == table.slices("b") == [] and set(table.shown()) == {"new", "c"}


def test_a_group_whose_replacement_is_recent_keeps_only_the_slices_that_are_needed_as_of_the_retained_commits() -> None:
    table = AgingTable()
    *_, needed, newest = table.write_many(5)
    with table.coordinator().begin("INSERT_OVERWRITE") as tx:
        tx.commit([put_file(tx, table.storage, PARTITION, "new")], replaced={PARTITION: ["a"]})
    assert table.coordinator().clean().files == 3
    assert table.slices() == [needed, newest]
    assert table.shown(needed) == {"a": needed} and table.shown(newest) == {"a": newest}


def test_what_a_running_transaction_began_with_stays_until_it_ends() -> None:
    table = AgingTable()
    table.write_many(3)
    base = table.slices()[-1]
    table.runtime.advance(5)
    slow = table.coordinator().begin("UPSERT")
    for _ in range(5):
        table.runtime.advance(1)  # its heartbeat goes on
        table.write("a")
    held = table.coordinator().clean()
    assert base in table.slices() and slow.snapshot().files[0].instant == base
    assert slow.instant in held.held_by
    slow.abort()
    freed = table.coordinator().clean()
    assert base not in table.slices() and freed.held_by == ""


def test_a_commit_that_an_earlier_transaction_made_after_a_later_one_began_holds_what_that_one_read() -> None:
    """By their instants the later transaction had seen it, by what was there it had not."""
    table = AgingTable()
    table.write("a")
    base = table.slices()[0]
    first = table.coordinator().begin("UPSERT")
    table.runtime.advance(1.5)
    other = table.coordinator().begin("UPSERT")
    table.runtime.advance(1.5)
    later = table.coordinator().begin("INSERT")
    assert later.snapshot().files[0].instant == base
    table.runtime.advance(1.5)
    first.claim([FileGroupId(PARTITION, "a")])
    first.commit([put_file(first, table.storage, PARTITION, "a")])
    other.commit([put_file(other, table.storage, PARTITION, "x")])
    for _ in range(3):
        table.runtime.advance(1.5)
        with table.coordinator().begin("INSERT") as tx:
            tx.commit([put_file(tx, table.storage, PARTITION, f"y{tx.instant}")])
    table.coordinator().clean()
    assert table.slices()[0] == base
    later.abort()


def test_files_stay_as_long_as_readers_are_given() -> None:
    table = keeping(keep_commits=1, readers_s=1800)
    table.write_many(4)
    held = table.coordinator().clean()
    assert held.files == 0 and "clean.readers_s" in held.held_by and len(table.slices()) == 4
    table.runtime.advance(1800)
    assert table.coordinator().clean().files == 2


def test_files_that_nobody_committed_are_left_alone() -> None:
    table = AgingTable()
    table.write("a")
    tx = table.coordinator().begin("UPSERT")
    put_file(tx, table.storage, PARTITION, "mine")
    table.storage.put(f"{PARTITION}/a_9-9-9_20200101000000000.parquet", b"of nobody")
    table.write_many(1)
    table.coordinator().clean()
    assert len(table.slices("mine")) == 1
    tx.abort()


def test_a_group_that_another_engine_plans_to_cluster_is_left_alone() -> None:
    table = AgingTable()
    table.write_many(4)
    Peer(table.storage).plan_clustering(FileGroupId(PARTITION, "a"))
    table.write_many(3, "b")
    table.coordinator().clean()
    assert len(table.slices("a")) == 4


def test_a_clean_is_on_the_timeline_as_javas_are() -> None:
    table = AgingTable()
    written = table.write_many(5)
    recorder = Recorder()
    cleaned = table.coordinator(listener=recorder).clean()
    (instant,) = table.timeline().cleanings
    assert instant.requested == cleaned.instant and instant.is_completed and (instant.completion or "") > instant.requested
    assert [name for name in table.names() if ".clean" in name] == [
        f"{cleaned.instant}.clean.inflight", f"{cleaned.instant}.clean.requested", instant.file_name,
    ]  # fmt: skip
    plan = CleanPlan.from_bytes(table.storage.get(layout.timeline(f"{cleaned.instant}.clean.requested")).data)
    assert (plan.policy, plan.retained, plan.action) == ("KEEP_LATEST_COMMITS", written[3], "commit")
    assert plan.newest == written[-1] and len(plan.keys) == 2
    done = CleanMetadata.from_bytes(table.storage.get(layout.timeline(instant.file_name)).data)
    assert (done.start, done.retained, done.newest, done.files) == (instant.requested, written[3], written[-1], plan.files)
    assert "cleaned" in recorder.kinds()


def test_nothing_to_clean_leaves_no_instant() -> None:
    table = AgingTable()
    table.write_many(2)
    before = table.names("")
    assert table.coordinator().clean().instant == "" and [n for n in table.names("") if "probe" not in n] == before


def test_a_dry_run_says_what_would_go_and_touches_nothing() -> None:
    table = AgingTable()
    table.write_many(6)
    before = table.names("")
    would = table.coordinator().clean(dry_run=True)
    assert would.files == 3 and would.size_bytes == 12 and table.names("") == before
    assert table.coordinator().clean().files == 3


def test_what_the_budget_does_not_allow_the_next_run_does() -> None:
    table = AgingTable()
    table.write_many(6)
    coordinator = table.coordinator()
    coordinator.clean(progress=lambda what, done, total: table.runtime.advance(100))
    for _ in range(2):
        table.coordinator().clean()
    assert len(table.slices()) == 3 and all(i.is_completed for i in table.timeline().cleanings)


def test_a_clean_that_takes_longer_than_the_budget_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files it has to delete: no run deletes again what an earlier one has deleted."""
    monkeypatch.setattr("lakelock.occ.clean.DELETED_AT_ONCE", 1)
    table = AgingTable(replace(KEEPING_TWO, listing=ListingSettings(parallel_requests=2)))
    table.write_many(9)
    runs, deleted = [], []
    for _ in range(3):
        storage = CountingStorage(table.storage)
        runs.append(table.coordinator(storage).clean(progress=lambda what, done, total: table.runtime.advance(100)))
        deleted.append(sum(op == "delete" and key.startswith(PARTITION) for op, key in storage.calls))
    assert deleted == [2, 2, 2] and [run.left for run in runs] == [4, 2, 0]
    assert len(table.slices()) == 3 and table.timeline().cleanings[0].is_completed


def test_a_plan_is_made_and_begun_although_the_listing_before_it_spent_the_budget() -> None:
    table = AgingTable()
    table.write_many(6)
    slow = FaultyStorage(table.storage, [Rule("list", "", fault=None, meanwhile=lambda: table.runtime.advance(100))])
    assert table.coordinator(slow).clean().files == 3 and len(table.slices()) == 3


def test_as_of_a_time_whose_files_were_cleaned_is_refused_with_the_first_that_can_be_read() -> None:
    table = AgingTable()
    first, _, third, fourth, _ = table.write_many(5)
    table.coordinator().clean()
    assert table.coordinator().snapshot(third).files and table.coordinator().snapshot(fourth).files
    with pytest.raises(InputError, match=f"as of {first}: files of that time were cleaned") as caught:
        table.coordinator().snapshot(first)
    assert third in caught.value.hint
    table.write_many(3, "b")
    table.coordinator(settings=keeping(keep_commits=1).settings).clean()
    with pytest.raises(InputError):
        table.coordinator().snapshot(first)


def test_as_of_a_time_whose_files_are_being_cleaned_is_refused_too() -> None:
    table = AgingTable()
    first, _, third, *_ = table.write_many(5)
    with contextlib.suppress(StorageUnavailable):
        table.coordinator(FaultyStorage(table.storage, [Rule("put_if_absent", "*.clean")])).clean()
    assert table.slices()[0] == third and not table.timeline().cleanings[0].is_completed
    with pytest.raises(InputError, match=f"as of {first}: files of that time were cleaned"):
        table.coordinator().snapshot(first)
    assert table.coordinator().snapshot(third).files


@pytest.mark.parametrize("state", ["planned", "completed"])
def test_another_engines_clean_that_kept_versions_leaves_no_time_readable_of_which_it_deleted_files(state: str) -> None:
    table = AgingTable()
    first, second, third = table.write_many(3)
    files = {PARTITION: [name for name in table.names(PARTITION) if first in name or second in name]}
    plan = CleanPlan("KEEP_LATEST_FILE_VERSIONS", "", "", third, files)
    theirs = Peer(table.storage).begin(Action.CLEAN, plan=plan.to_bytes())
    table.storage.delete(plan.keys)
    if state == "completed":
        completed = f"{theirs}_{Peer(table.storage).later()}.clean"
        table.storage.put(layout.timeline(completed), CleanMetadata.of(theirs, 1, plan).to_bytes())
    table.write("b")
    for as_of in (first, second):
        with pytest.raises(InputError, match=f"as of {as_of}: files of that time were cleaned"):
            table.coordinator().snapshot(as_of)
    assert [file.instant for file in table.coordinator().snapshot(third).files] == [third]


def test_what_an_archived_clean_deleted_leaves_no_archived_time_readable() -> None:
    """Java's archiver moves cleans with the commits before which they were, the newest one, too."""
    table = keeping(keep_commits=1)
    first, second, third = table.write_many(3)
    assert table.coordinator().clean().readable_from == second
    (clean,) = (instant.requested for instant in table.timeline().cleanings)
    later = table.write_many(3, "b")
    Peer(table.storage).archive(first, second, third, clean, later[0])
    assert not table.timeline().cleanings
    with pytest.raises(InputError, match=f"as of {first}: files of that time were cleaned"):
        table.coordinator().snapshot(first)
    for as_of in (second, third):
        assert [file.instant for file in table.coordinator().snapshot(as_of).files] == [as_of]


def test_a_clean_that_is_withdrawn_while_a_reader_looks_for_its_plan_refuses_no_time() -> None:
    table = AgingTable()
    first, *_ = table.write_many(3)
    requested = layout.timeline(f"{Peer(table.storage).plan_cleaning(PARTITION)}.clean.requested")

    def withdraw() -> None:
        table.storage.delete([requested])

    slow = FaultyStorage(table.storage, [Rule("get", "*.clean.requested", fault=None, meanwhile=withdraw)])
    assert [file.instant for file in table.coordinator(slow).snapshot(first).files] == [first]


def test_as_of_a_time_whose_files_are_cleaned_while_they_are_listed_is_refused() -> None:
    table = AgingTable()
    _, second, *_ = table.write_many(5)
    table.write("b")

    def clean() -> None:
        table.coordinator().clean()

    faulty = FaultyStorage(table.storage, [Rule("list", "", fault=None, meanwhile=clean)])
    with pytest.raises(InputError, match=f"as of {second}: files of that time were cleaned"):
        table.coordinator(faulty).snapshot(second)


@pytest.mark.parametrize("archived", [False, True])
def test_what_became_visible_while_files_of_the_past_were_listed_does_not_hide_what_it_superseded(archived: bool) -> None:
    """A commit that began before that time supersedes files, which a cleaner deletes before the reader lists them."""
    table = AgingTable()
    table.write("a", "b")
    early = table.coordinator().begin("UPSERT")
    second = table.write("c")

    def supersede_and_clean() -> None:
        early.commit([put_file(early, table.storage, PARTITION, file_id) for file_id in "ab"])
        table.write_many(3 if archived else 1, "d")
        assert table.coordinator(settings=keeping(keep_commits=4 if archived else 2).settings).clean().files
        if archived:
            assert table.coordinator().archive().instants

    slow = FaultyStorage(table.storage, [Rule("list", "", fault=None, meanwhile=supersede_and_clean)])
    seen = {file.file_id: file.instant for file in table.coordinator(slow).snapshot(second).files}
    assert seen == {"a": early.instant, "b": early.instant, "c": second}


def test_a_reader_as_of_a_time_to_come_is_not_kept_waiting_by_writers() -> None:
    table = AgingTable()
    first = table.write("a")
    busy = FaultyStorage(table.storage, [Rule("list", "", nth=None, fault=None, meanwhile=lambda: table.write("a"))])
    assert [file.instant for file in table.coordinator(busy).snapshot("9" * 17).files] == [first]


def overtaken(table: AgingTable, times: int, work: Callable[[], object]) -> FaultyStorage:
    """Storage of a slow process: before it lists the files, somebody else does this work and cleans, so many times."""

    def meanwhile() -> None:
        work()
        assert table.coordinator().clean().files

    return FaultyStorage(table.storage, [Rule("list", "", fault=None, meanwhile=meanwhile)] * times)


def without_an_index() -> AgingTable:
    return AgingTable(replace(KEEPING_TWO, checkpoint=CheckpointSettings(every_commits=0)))


@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_that_a_cleaner_overtakes_looks_again_and_misses_no_slice(times: int) -> None:
    """It has listed the timeline; a file that this shows is superseded and cleaned before it lists the files."""
    table = without_an_index()
    table.write_many(3, "a", "b")
    slow = overtaken(table, times, lambda: table.write_many(3, "a"))
    assert {file.file_id: file.instant for file in table.coordinator(slow).snapshot().files} == table.shown()


def test_a_reader_that_cleaners_overtake_again_and_again_is_told() -> None:
    table = without_an_index()
    table.write_many(3, "a", "b")
    slow = overtaken(table, 3, lambda: table.write_many(3, "a"))
    with pytest.raises(SnapshotTooOld, match="/a_0-1-0_.* was cleaned while the table's files were listed") as told:
        table.coordinator(slow).snapshot()
    assert told.value.retryable


def test_a_reader_sees_a_group_that_was_replaced_and_cleaned_before_it_listed_the_files_no_more() -> None:
    table = without_an_index()
    table.write_many(3, "a", "b")

    def replace_a() -> None:
        with table.coordinator().begin("INSERT_OVERWRITE") as tx:
            group = next(f.group for f in tx.snapshot().files if f.file_id == "a")
            tx.commit([put_file(tx, table.storage, PARTITION, "c")], replaced={PARTITION: [group.file_id]})
        table.write_many(3, "b")

    slow = overtaken(table, 1, replace_a)
    assert sorted(file.file_id for file in table.coordinator(slow).snapshot().files) == ["b", "c"]


def test_a_clean_that_nobody_finishes_keeps_no_reader_from_its_snapshot() -> None:
    table = without_an_index()
    table.write_many(5, "a", "b")
    with contextlib.suppress(StorageUnavailable):
        table.coordinator(FaultyStorage(table.storage, [Rule("put_if_absent", "*.clean")])).clean()
    assert not table.timeline().cleanings[0].is_completed
    assert {file.file_id: file.instant for file in table.coordinator().snapshot().files} == table.shown()


@pytest.mark.parametrize("state", ["requested", "inflight", "half deleted"])
def test_a_plan_that_somebody_left_is_finished_before_a_new_one_is_made(state: str) -> None:
    table = AgingTable()
    written = table.write_many(5)
    table.coordinator().clean()
    clean = table.timeline().cleanings[0]
    table.storage.delete([layout.timeline(clean.file_name)])
    if state == "requested":
        table.storage.delete([layout.timeline(f"{clean.requested}.clean.inflight")])
    if state != "half deleted":
        table.storage.put(f"{PARTITION}/a_0-1-0_{written[0]}.parquet", b"rows")
    later = table.write_many(2)
    done = table.coordinator().clean()
    assert done.finished == (clean.requested,) and table.slices() == [written[4], *later]
    assert [i.is_completed for i in table.timeline().cleanings] == [True, True]


def test_a_clean_of_another_engine_that_is_under_way_is_left_to_it_and_finished_when_it_has_died() -> None:
    table = AgingTable()
    written = table.write_many(5)
    files = {PARTITION: (f"a_0-1-0_{written[0]}.parquet",)}
    theirs = Peer(table.storage).begin(Action.CLEAN, plan=CleanPlan("P", written[3], "commit", written[4], files).to_bytes())
    assert table.coordinator().clean().yielded_to == theirs and written[0] in table.slices()
    table.runtime.advance(60)
    done = table.coordinator().clean()
    assert done.finished == (theirs,) and table.slices() == written[2:]


def test_a_plan_of_another_engine_that_removes_folders_is_never_carried_out() -> None:
    table = AgingTable()
    table.write_many(3)
    theirs = Peer(table.storage).plan_cleaning(PARTITION)
    table.runtime.advance(10_000)
    assert table.coordinator().clean().yielded_to == theirs and len(table.slices()) == 3


def test_an_inflight_clean_without_a_plan_stops_no_later_clean() -> None:
    """What remains of a cleaner that died while it carried out a plan which was withdrawn."""
    table = AgingTable()
    table.write_many(5)
    table.storage.put(layout.timeline(f"{format_instant(table.runtime.now_ms())}.clean.inflight"), b"")
    assert table.coordinator().clean().yielded_to and len(table.slices()) == 5
    table.runtime.advance(24 * 3600)
    assert table.coordinator().clean().files == 2
    assert [clean.is_completed for clean in table.timeline().cleanings] == [True]
