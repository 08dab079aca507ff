"""Savepoints: the table as of one commit, kept until somebody deletes the savepoint."""

from __future__ import annotations

import contextlib

import pytest
from tests.api import Action, Coordinator, Instant, State, layout
from tests.behaviour.tables import put_file
from tests.behaviour.upkeep.upkeep_tables import PARTITION, AgingTable
from tests.faulty_storage import FaultyStorage, RepeatingStorage, Rule

from lakelock.errors import CorruptTableError, InputError, LeaseLost
from lakelock.table.service_metadata import SAVEPOINTS, CleanMetadata, CleanPlan, SavepointMetadata

pytestmark = pytest.mark.usefixtures("both_types")


def test_a_savepoint_keeps_its_files_until_it_is_deleted() -> None:
    table = AgingTable()
    saved = table.write("a", "b")
    coordinator = table.coordinator()
    taken = coordinator.savepoint("before the migration")
    assert (taken.instant, taken.files, taken.name) == (saved, 2, "before the migration")
    table.write_many(6, "a", "b")
    coordinator.clean()
    assert table.shown(saved) == {"a": saved, "b": saved} and len(table.slices()) == 4
    assert coordinator.snapshot(saved).files
    assert [s.name for s in coordinator.savepoints()] == ["before the migration"]
    assert coordinator.delete_savepoint("before the migration").instant == saved
    assert coordinator.savepoints() == [] and table.timeline().savepoints == ()
    coordinator.clean()
    assert saved not in table.slices()
    with pytest.raises(InputError, match="were cleaned"):
        coordinator.snapshot(saved)


def test_a_savepoint_of_an_earlier_commit_keeps_the_table_as_of_that() -> None:
    table = AgingTable()
    first, second, *_ = table.write_many(5)
    table.coordinator().savepoint("second", as_of=second)
    table.coordinator().clean()
    assert first not in table.slices() and table.shown(second) == {"a": second}
    clean = table.timeline().cleanings[0]
    stored = table.storage.get(layout.timeline(clean.file_name))
    assert stored is not None and CleanMetadata.from_bytes(stored.data).extra[SAVEPOINTS] == second
    # Java carries out what a plan says without looking at savepoints.
    planned = table.storage.get(layout.timeline(f"{clean.requested}.clean.requested"))
    assert planned is not None and not any(second in key for key in CleanPlan.from_bytes(planned.data).keys)


def test_what_became_visible_after_the_savepoint_is_not_read_in_part_although_it_was_requested_earlier() -> None:
    table = AgingTable()
    first = table.write("a", "b")
    early = table.coordinator().begin("UPSERT")
    second = table.write("c")
    coordinator = table.coordinator()
    coordinator.savepoint("s")
    early.commit([put_file(early, table.storage, PARTITION, file_id) for file_id in "ab"])
    assert {f.file_id: f.instant for f in coordinator.snapshot(second).files} == {
        "a": early.instant,
        "b": early.instant,
        "c": second,
    }
    table.write_many(6, "a")
    assert coordinator.clean().files
    assert early.instant in table.slices("b") and early.instant not in table.slices("a")
    assert {f.file_id: f.instant for f in coordinator.snapshot(second).files} == {"a": first, "b": first, "c": second}


def test_a_savepoint_is_on_the_timeline_as_javas_are() -> None:
    table = AgingTable()
    saved = table.write("a")
    table.coordinator().savepoint("s")
    (instant,) = table.timeline().savepoints
    assert instant.requested == saved and instant.is_completed
    assert f"{saved}.savepoint.inflight" in table.names()
    stored = table.storage.get(layout.timeline(instant.file_name))
    assert stored is not None
    metadata = SavepointMetadata.from_bytes(stored.data)
    assert metadata.comments == "s" and metadata.files == {PARTITION: (f"a_0-1-0_{saved}.parquet",)}
    assert metadata.at_ms == table.runtime.now_ms()


def test_what_cannot_be_saved_is_refused_and_leaves_nothing() -> None:
    table = AgingTable()
    coordinator = table.coordinator()
    with pytest.raises(InputError, match="no commit to save"):
        coordinator.savepoint("s")
    first, second, *_ = table.write_many(5)
    coordinator.savepoint("kept", as_of=second)
    with pytest.raises(InputError, match="a savepoint 'kept' of"):
        coordinator.savepoint("kept")
    with pytest.raises(InputError, match="a savepoint 'kept' of"):
        coordinator.savepoint("other", as_of=second)
    with pytest.raises(InputError, match="is not a commit"):
        coordinator.savepoint("other", as_of="20200101000000000")
    with pytest.raises(InputError, match="reads as the time of a commit"):
        coordinator.savepoint("20200101000000000")
    with pytest.raises(InputError, match="is not a valid savepoint name"):
        coordinator.savepoint(" ")
    coordinator.clean()
    with pytest.raises(InputError, match="were cleaned"):
        coordinator.savepoint("too late", as_of=first)
    with pytest.raises(InputError, match="no savepoint 'nobody'") as caught:
        coordinator.delete_savepoint("nobody")
    assert "'kept'" in caught.value.hint
    assert [s.instant for s in coordinator.savepoints()] == [second] == [i.requested for i in table.timeline().savepoints]


def test_an_archived_commit_cannot_be_saved_and_the_first_that_can_is_named() -> None:
    table = AgingTable()
    written = table.write_many(9)
    coordinator = table.coordinator()
    coordinator.upkeep()
    first = table.timeline().commits[0].requested
    assert written[0] < first
    with pytest.raises(InputError, match="what was committed before is archived") as refused:
        coordinator.savepoint("s", as_of=written[0])
    assert refused.value.hint == f"use {first}, the first one there, or a later one"
    assert coordinator.savepoint("s", as_of=written[-1]).instant == written[-1]


def test_files_that_a_pending_clean_names_cannot_be_saved() -> None:
    """The clean of an old release that keeps a number of versions does not say as of when the table stays readable."""
    table = AgingTable()
    written = table.write_many(5)
    coordinator = table.coordinator()
    name = f"a_0-1-0_{written[1]}.parquet"
    plan = CleanPlan("KEEP_LATEST_FILE_VERSIONS", "", "", "", {PARTITION: (name,)})
    clean = Instant("20990101000000000", Action.CLEAN.value, State.REQUESTED)
    table.storage.put(layout.timeline(clean.file_name), plan.to_bytes())
    with pytest.raises(InputError, match=f"are being cleaned by {clean.requested}"):
        coordinator.savepoint("s", as_of=written[1])
    with pytest.raises(InputError, match="files of that time were cleaned"):
        coordinator.savepoint("s", as_of=written[0])
    assert table.timeline().savepoints == ()
    coordinator.savepoint("s", as_of=written[3])


def test_a_clean_whose_plan_met_a_savepoint_on_its_way_is_planned_again() -> None:
    """The savepoint is taken when the plan is made and not shown yet."""
    table = AgingTable()
    _, second, *_ = table.write_many(5)

    def save() -> None:
        table.coordinator().savepoint("meanwhile", as_of=second)

    faulty = FaultyStorage(table.storage, [Rule("list", "", fault=None, meanwhile=save)])
    table.coordinator(faulty).clean()
    assert second in table.slices() and table.shown(second) == {"a": second}


def with_the_lock_broken(table: AgingTable) -> Coordinator:
    """One more process, which works although somebody holds the lock."""
    other = table.coordinator()
    provider = other.table.provider
    assert provider is not None
    provider.break_lock(provider.inspect().token, force=True)
    return other


def test_a_commit_that_was_cleaned_while_its_savepoint_was_on_its_way_is_not_saved() -> None:
    table = AgingTable()
    _, second, *_ = table.write_many(5)

    def clean() -> None:
        assert with_the_lock_broken(table).clean().files == 2

    faulty = FaultyStorage(table.storage, [Rule("put_if_absent", "*.savepoint.inflight", fault=None, meanwhile=clean)])
    with pytest.raises(InputError, match="files of that time were cleaned"):
        table.coordinator(faulty).savepoint("late", as_of=second)
    assert table.timeline().savepoints == ()


def test_a_savepoint_that_others_withdrew_and_cleaned_while_it_stood_still_is_not_taken() -> None:
    """It was completed all the same: reads as of it showed what was left of its files."""
    table = AgingTable()
    _, second, *_ = table.write_many(5)

    def withdraw_and_clean() -> None:
        inflight = Instant(second, Action.SAVEPOINT.value, State.INFLIGHT)
        table.storage.delete([layout.timeline(inflight.file_name)])
        assert with_the_lock_broken(table).clean().files == 2

    faulty = FaultyStorage(table.storage, [Rule("put_if_absent", "*.savepoint", fault=None, meanwhile=withdraw_and_clean)])
    with pytest.raises(InputError, match="files of that time were cleaned"):
        table.coordinator(faulty).savepoint("late", as_of=second)
    assert table.timeline().savepoints == ()


def test_a_read_as_of_a_savepoint_whose_files_are_gone_says_so() -> None:
    table = AgingTable()
    _, second, *_ = table.write_many(6)
    coordinator = table.coordinator()
    coordinator.savepoint("kept", as_of=second)
    coordinator.clean()
    (file,) = coordinator.snapshot(second).files
    table.storage.delete([file.key])
    with pytest.raises(CorruptTableError, match=f"its savepoint names {file.key}, which is gone"):
        coordinator.snapshot(second)


def test_a_plan_that_met_a_savepoint_is_carried_out_without_what_that_keeps() -> None:
    """The savepoint looked for plans before this one was stored. Another cleaner may have the plan, so it is not withdrawn."""
    table = AgingTable()
    first, second, *_ = table.write_many(5)

    def save() -> None:
        with_the_lock_broken(table).savepoint("meanwhile", as_of=second)

    faulty = FaultyStorage(table.storage, [Rule("put_if_absent", "*.clean.requested", fault=None, meanwhile=save)])
    with contextlib.suppress(LeaseLost):
        table.coordinator(faulty).clean()
    table.coordinator().clean()
    assert second in table.slices() and first not in table.slices()
    assert [clean.is_completed for clean in table.timeline().cleanings] == [True]


def test_a_clean_deletes_nothing_of_a_savepoint_that_was_taken_without_the_lock_after_its_plan() -> None:
    """What the lock should have kept apart: the savepoint shows itself between the plan and the deletions."""
    table = AgingTable()
    _, second, *_ = table.write_many(5)

    def save() -> None:
        inflight = Instant(second, Action.SAVEPOINT.value, State.INFLIGHT)
        table.storage.put(layout.timeline(inflight.file_name), b"")

    faulty = FaultyStorage(table.storage, [Rule("put_if_absent", "*.clean.inflight", fault=None, meanwhile=save)])
    left = table.coordinator(faulty).clean()
    assert left.left and second in table.slices()


def test_a_savepoint_whose_request_was_sent_twice_is_taken() -> None:
    table = AgingTable()
    saved = table.write("a")
    assert table.coordinator(RepeatingStorage(table.storage)).savepoint("s").instant == saved
    assert [s.instant for s in table.coordinator().savepoints()] == [saved]


def test_java_commits_and_pending_writers_do_not_stop_a_savepoint() -> None:
    table = AgingTable()
    table.write("a")
    tx = table.coordinator().begin("INSERT")
    put_file(tx, table.storage, PARTITION, "x")
    taken = table.coordinator().savepoint("s")
    assert taken.files == 1
    tx.abort()
