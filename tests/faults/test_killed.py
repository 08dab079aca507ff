"""A real process is killed at every named step; the next one finishes or removes its work by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api import LocalStorage, read_timeline
from tests.faults import test_several_tables
from tests.faults.worker import open_engine, rows
from tests.faults.world import (
    BEFORE,
    DONE,
    NEXT,
    PATIENT,
    PERSISTENT,
    UPSERT,
    ArrowWriter,
    Row,
    check_settled,
    let_heartbeats_run_out,
    next_writer,
    read_by_all,
)  # fmt: skip
from tests.sizes import but_in_ci, in_ci

from lakelock.events import Step

# step -> whether the commit was decided when the writer died
COMMIT_STEPS = {
    "heartbeat-started": False, "requested": False, "begun": False, "inflight": False, "claimed": False, "marked": False,
    "marked:2": False, "file-opened": False, "file-opened:2": False, "file-written": False, "file-written:2": False,
    "data-written": False, "reconciled": False, "locked": False, "validated": False,
    "decided": True, "published": True, "unlocked": True, "cleaned": True,
}  # fmt: skip
ROLLBACK_STEPS = [
    "rollback-decided", "rollback-data-deleted", "rollback-markers-deleted", "rollback-inflight-deleted",
    "rollback-pending-deleted", "rollback-planned", "rollback-recorded",
]  # fmt: skip
COLLECT_STEPS = ["boundary-raised", "collected"]
FINISH_STEPS = ["given-up", "finished-for-another"]
UPKEEP_STEPS = [
    "clean-planned", "clean-deleted", "clean-completed", "history-written", "history-shown", "archived",
]  # fmt: skip
SAVEPOINT_STEPS = ["savepoint-shown", "savepoint-taken"]
# The first attempt writes two files and is set aside; the second copies one of them and writes the other again.
REDO_STEPS = {
    "set-aside": False, "heartbeat-started:2": False, "requested:2": False, "begun:2": False, "inflight:2": False,
    "marked:3": False, "file-opened:3": False, "file-written:3": False, "file-opened:4": False, "file-written:4": False,
    "data-written:2": False, "reconciled:2": False, "locked:2": False, "validated": False,
    "decided": True, "published": True, "unlocked": True, "cleaned": True,
    "rollback-data-deleted": True, "rollback-markers-deleted": True, "rollback-inflight-deleted": True,
    "rollback-pending-deleted": True, "rollback-planned": True, "rollback-recorded": True,
}  # fmt: skip

RESERVING_STEPS = ["reserved"]
SMALL_INSERT_STEPS = ["marked", "inflight", "file-opened", "file-written", "data-written", "locked", "decided"]
# Those of every run; CI has all of them.
KEPT = {"claimed": False, "validated": False, "decided": True, "published": True}

# Of the versions of a row only the newest two stay.
TIDY: dict[str, object] = {
    **PATIENT, "clean.policy": "KEEP_LATEST_COMMITS", "clean.keep_commits": 1, "clean.readers_s": 0,
    "archive.min_commits": 2, "archive.max_commits": 2, "archive.min_age_s": 0,
}  # fmt: skip


METADATA_STEPS = ("metadata-logged", "metadata-kept", "metadata-planned", "metadata-compacted")
"""Of tables with Hudi's metadata table: `test_metadata_table.py` and `test_metadata_upkeep.py`."""


def test_every_named_step_has_a_process_that_is_killed_there():
    steps = {
        *COMMIT_STEPS, *ROLLBACK_STEPS, *COLLECT_STEPS, *FINISH_STEPS, *UPKEEP_STEPS, *SAVEPOINT_STEPS, *REDO_STEPS,
        *RESERVING_STEPS, *test_several_tables.STEPS, *test_several_tables.FINISH_STEPS, *METADATA_STEPS,
    }  # fmt: skip
    assert {name.partition(":")[0] for name in steps} == {step.value for step in Step}


@pytest.mark.parametrize(("step", "decided"), but_in_ci(COMMIT_STEPS.items(), KEPT.items()))
def test_a_writer_killed_at_a_step_of_its_commit_is_finished_or_removed_by_the_next(path, step, decided):
    with ArrowWriter(path, "upsert", UPSERT, crash_at=step) as victim:
        assert victim.died()
    assert read_by_all(path) in (BEFORE, DONE)
    next_writer(path)
    after = DONE if decided else BEFORE
    assert read_by_all(path) == sorted([*after, NEXT])
    check_settled(path, [*after, NEXT])


@pytest.mark.parametrize("step", but_in_ci(SMALL_INSERT_STEPS, SMALL_INSERT_STEPS[:1]))
def test_a_writer_killed_in_its_second_small_insert_is_finished_or_removed_by_the_next(path, step):
    first, second = ("one", 1, "1"), ("two", 2, "1")
    with ArrowWriter(path, "insert_each", [[*first], [*second]], crash_at=f"{step}:2") as victim:
        assert victim.died()
    next_writer(path)
    check_settled(path, [*BEFORE, first, NEXT, *([second] if step == "decided" else [])])


@pytest.mark.parametrize("step", ["decided", *in_ci("file-written", "data-written", "validated", "published")])
def test_an_overwrite_of_partitions_killed_at_a_step_is_there_whole_or_not_at_all(path, step):
    with ArrowWriter(path, "overwrite_partitions", [["z", 9, "1"], ["y", 8, "2"]], crash_at=step) as victim:
        assert victim.died()
    after = [("y", 8, "2"), ("z", 9, "1")] if step in ("decided", "published") else BEFORE
    next_writer(path)
    check_settled(path, [*after, NEXT])


@pytest.mark.parametrize("step", but_in_ci(ROLLBACK_STEPS, ROLLBACK_STEPS[:1]))
def test_a_writer_killed_while_it_removes_a_dead_ones_work_is_followed_by_the_next(path, step):
    with ArrowWriter(path, "upsert", UPSERT, crash_at="reconciled") as victim:
        assert victim.died()
    let_heartbeats_run_out(path)
    with ArrowWriter(path, "insert", [["x", 1, "1"]], crash_at=step) as reaper:
        assert reaper.died()
    assert read_by_all(path) == BEFORE
    next_writer(path)
    check_settled(path, [*BEFORE, NEXT])


@pytest.mark.parametrize("step", ["rollback-data-deleted", *in_ci("rollback-pending-deleted", "rollback-planned")])
def test_a_loser_killed_while_it_removes_its_own_work_is_followed_by_the_next(path, step):
    blocker = open_engine(path, PERSISTENT, "holder").coordinator.begin("UPSERT")
    with blocker:
        blocker.claim(f.group for f in blocker.snapshot().files)
        with ArrowWriter(path, "upsert", UPSERT, crash_at=step) as loser:
            assert loser.died()
    next_writer(path)
    check_settled(path, [*BEFORE, NEXT])


@pytest.mark.parametrize("step", but_in_ci(FINISH_STEPS, FINISH_STEPS[:1]))
def test_a_writer_killed_while_it_finishes_anothers_commit_is_followed_by_the_next(path, step):
    with ArrowWriter(path, "upsert", UPSERT, crash_at="decided") as victim:
        assert victim.died()
    with ArrowWriter(path, "insert", [["x", 1, "1"]], crash_at=step) as helper:
        assert helper.died()
    next_writer(path)
    check_settled(path, [*DONE, NEXT])


@pytest.mark.parametrize("step", but_in_ci(COLLECT_STEPS, COLLECT_STEPS[-1:]))
def test_a_writer_killed_while_it_collects_decisions_leaves_a_table_that_works(path, step):
    engine = open_engine(path, PERSISTENT)
    for value in (1, 2, 3):
        engine.upsert(rows([["a", value, "1"]]))
    collecting = {**PATIENT, "decisions.collect_above": 2}
    with ArrowWriter(path, "insert", [["x", 1, "1"]], options=collecting, crash_at=step) as victim:
        assert victim.died()
    next_writer(path)
    check_settled(path, [("a", 3, "1"), ("b", 2, "1"), ("c", 3, "2"), NEXT])


@pytest.mark.in_ci
def test_five_writers_killed_one_after_another_do_not_keep_the_sixth_from_its_work(path):
    steps = ["begun", "claimed", "file-written", "reconciled", "locked"]
    for step in steps:
        with ArrowWriter(path, "upsert", UPSERT, crash_at=step) as victim:
            assert victim.died()
        let_heartbeats_run_out(path)
    open_engine(path, PERSISTENT).upsert(rows(UPSERT))
    check_settled(path, DONE)


def rewritten_often(path: str) -> list[Row]:
    """One row is written five times more; the rows at the end."""
    for value in range(100, 105):
        open_engine(path, PERSISTENT).upsert(rows([["a", value, "1"]]))
    return sorted([("a", 104, "1"), *BEFORE[1:]])


@pytest.mark.parametrize("step", but_in_ci(UPKEEP_STEPS, UPKEEP_STEPS[:1]))
def test_upkeep_that_is_killed_at_a_step_changes_no_row_and_the_next_run_goes_on(path, step):
    after = rewritten_often(path)
    with ArrowWriter(path, "upkeep", None, options=TIDY, crash_at=step) as victim:
        assert victim.died()
    assert read_by_all(path) == after
    open_engine(path, TIDY, "next").coordinator.upkeep()
    timeline = read_timeline(LocalStorage(path))
    assert timeline.cleanings and all(clean.is_completed for clean in timeline.cleanings) and len(timeline.commits) == 2
    assert len(list(Path(path).glob("month=1/*.parquet"))) == 2
    check_settled(path, after)


@pytest.mark.parametrize("step", but_in_ci(SAVEPOINT_STEPS, SAVEPOINT_STEPS[:1]))
def test_a_savepoint_whose_writer_is_killed_is_whole_or_not_there_at_all(path, step):
    with ArrowWriter(path, "savepoint", "kept", options=TIDY, crash_at=step) as victim:
        assert victim.died()
    after = rewritten_often(path)
    let_heartbeats_run_out(path)
    coordinator = open_engine(path, TIDY, "next").coordinator
    coordinator.upkeep()
    kept = [point.name for point in coordinator.savepoints()]
    assert kept == (["kept"] if step == "savepoint-taken" else [])
    for point in coordinator.savepoints():
        assert all(Path(path, file.key).exists() for file in coordinator.snapshot(point.instant).files)
    assert read_by_all(path) == after


@pytest.mark.parametrize("step", RESERVING_STEPS)
def test_the_reservation_of_a_killed_writer_ends_with_its_heartbeat(path, step):
    late = {
        **PATIENT, "retry.attempts": 2, "retry.reserve_after": 1, "retry.redo_attempts": 0,
        "concurrency.early_conflict_detection": False,
    }  # fmt: skip
    with ArrowWriter(path, "upsert", [["a", 10, "1"]], options=late, stop_at="data-written", crash_at=step) as victim:
        victim.wait_until_stopped()
        other = open_engine(path, PERSISTENT, "other")
        other.upsert(rows([["b", 20, "1"]]))
        victim.go_on()
        assert victim.died()
    assert len(other.coordinator.table.log.reservations()) == 1
    next_writer(path)
    expected: list[Row] = [("a", 1, "1"), ("b", 20, "1"), ("c", 3, "2"), NEXT]
    check_settled(path, expected)
    other.coordinator.reap()
    assert other.coordinator.table.log.reservations() == ()


@pytest.mark.parametrize(("step", "decided"), but_in_ci(REDO_STEPS.items(), {("decided", True)}))
def test_a_writer_killed_at_a_step_of_its_redo_leaves_two_instants_that_the_next_finishes_or_removes(path, step, decided):
    late = {**PATIENT, "retry.attempts": 2, "concurrency.early_conflict_detection": False}
    redone = [["a", 10, "1"], ["c", 30, "2"]]
    with ArrowWriter(path, "upsert", redone, options=late, stop_at="data-written", crash_at=step) as victim:
        victim.wait_until_stopped()
        open_engine(path, PERSISTENT, "other").upsert(rows([["b", 20, "1"]]))
        victim.go_on()
        assert victim.died()
    others: list[Row] = [("a", 1, "1"), ("b", 20, "1"), ("c", 3, "2")]
    done: list[Row] = [("a", 10, "1"), ("b", 20, "1"), ("c", 30, "2")]
    assert read_by_all(path) in (others, done)
    next_writer(path)
    after = done if decided else others
    assert read_by_all(path) == sorted([*after, NEXT])
    check_settled(path, [*after, NEXT])
