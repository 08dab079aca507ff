"""A real Spark process is killed at every step of a commit, a rollback and a collection; the others go on by themselves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.api import LocalStorage, read_timeline
from tests.behaviour.tables import leftovers
from tests.faults.worker import open_engine, rows
from tests.sizes import but, long
from tests.spark.at_once.test_writers_at_once import START, content, hudi_content, with_rows
from tests.spark.processes import EXECUTOR_KILLED, PATIENT, WriterProcess
from tests.spark.writer_process import COLUMNS, frame

from lakelock.spark_plugin import LakeTable

UPSERT = [["a", 10, "1"], ["new", 11, "2"]]
DONE = with_rows(("a", 10, "1"), ("new", 11, "2"))
REDONE = [["a", 10, "1"], ["c", 30, "2"], ["d", 40, "3"]]
NEXT = ("next", 7, "3")
AN_HOUR_S = 3600
MORE_THAN_IS_KEPT = 66

# step -> whether the commit was decided when the writer died
COMMIT_STEPS = {
    "heartbeat-started": False, "requested": False, "begun": False, "claimed": False, "inflight": False,
    "data-written": False, "reconciled": False, "locked": False, "validated": False,
    "decided": True, "published": True, "unlocked": True, "cleaned": True,
}  # fmt: skip
KEPT = {"claimed": False, "data-written": False, "decided": True, "published": True}
"""The steps that are tested in the short form: `tests/faults` kills writers without Spark at every one of them."""
ROLLBACK_STEPS = [
    "rollback-decided", "rollback-data-deleted", "rollback-markers-deleted", "rollback-pending-deleted", "rollback-recorded",
]  # fmt: skip


@pytest.fixture(scope="module")
def template(spark, tmp_path_factory) -> str:
    """A table to copy for each test, so that each begins with the same files."""
    path = str(tmp_path_factory.mktemp("template") / "table")
    schema = spark.createDataFrame([], COLUMNS).schema
    with LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", options=PATIENT) as table:
        table.insert(frame(spark, START))
    return path


@pytest.fixture
def path(template, tmp_path) -> str:
    copy = str(tmp_path / "table")
    shutil.copytree(template, copy)
    return copy


def next_writer(spark, path: str) -> LakeTable:
    """Another writer begins at once and commits; nobody helps it."""
    table = LakeTable.for_path(spark, path, options=PATIENT, application="next")
    table.insert(frame(spark, [list(NEXT)]))
    return table


def check_readers_agree(spark, path: str) -> list[tuple]:
    rows = content(LakeTable.for_path(spark, path, options=PATIENT))
    assert hudi_content(path) == rows
    return rows


def let_heartbeats_run_out(path: str) -> None:
    """Make every heartbeat an hour old: nobody who left one is alive any more, and the test need not wait for that."""
    for beat in (Path(path) / ".hoodie/.heartbeat").iterdir():
        aged = beat.stat().st_mtime - AN_HOUR_S
        os.utime(beat, (aged, aged))


def check_settled(spark, path: str, expected: list[tuple]) -> None:
    """Once the dead writer's heartbeat has run out, one more write leaves the right rows and nothing else."""
    let_heartbeats_run_out(path)
    LakeTable.for_path(spark, path, options=PATIENT).delete("id = 'nobody'")
    assert check_readers_agree(spark, path) == sorted([*expected, NEXT])
    assert leftovers(LocalStorage(path)) == []


@pytest.mark.parametrize(("step", "decided"), but(COMMIT_STEPS.items(), {("decided", True)}, KEPT.items()))
def test_a_writer_killed_at_a_step_of_its_commit_is_finished_or_removed_by_the_next(spark, path, step, decided):
    own_jvm = step == "decided"  # with the writer its JVM goes, once
    with WriterProcess(path, "upsert", UPSERT, options=PATIENT, own_jvm=own_jvm, crash_at=step) as victim:
        assert victim.died()
    assert check_readers_agree(spark, path) in (with_rows(), DONE)
    next_writer(spark, path)
    assert check_readers_agree(spark, path) == sorted([*(DONE if decided else with_rows()), NEXT])
    check_settled(spark, path, DONE if decided else with_rows())


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("operation", "argument", "done"),
    [("merge", UPSERT, DONE), ("update", [{"v": "v + 7"}, "id = 'a'"], with_rows(("a", 8, "1")))],
)
@pytest.mark.parametrize(("step", "decided"), [*long(("claimed", False), ("data-written", False)), ("decided", True)])
def test_a_merge_or_update_that_is_killed_is_finished_or_removed_by_the_next(
    spark, path, operation, argument, done, step, decided
):
    with WriterProcess(path, operation, argument, options=PATIENT, crash_at=step) as victim:
        assert victim.died()
    next_writer(spark, path)
    check_settled(spark, path, done if decided else with_rows())


@pytest.mark.in_ci
def test_a_writer_killed_when_its_redo_is_decided_leaves_two_instants_of_which_the_next_finishes_one_and_removes_one(
    spark, path
):
    late = {**PATIENT, "retry.attempts": 2, "concurrency.early_conflict_detection": False}
    with WriterProcess(path, "upsert", REDONE, options=late, stop_at="data-written", crash_at="decided") as victim:
        victim.wait_until_stopped()
        open_engine(path, PATIENT, "other").upsert(rows([["b", 20, "1"]]))
        victim.go_on()
        assert victim.died()
    done = with_rows(("b", 20, "1"), *(tuple(row) for row in REDONE))
    assert len(read_timeline(LocalStorage(path)).pending) == 2
    next_writer(spark, path)
    assert check_readers_agree(spark, path) == sorted([*done, NEXT])
    check_settled(spark, path, done)


@pytest.mark.in_ci
@pytest.mark.sampled(promise=EXECUTOR_KILLED, one_in=2)
def test_an_executor_killed_while_it_writes_leaves_no_file(spark, path):
    options = {**PATIENT, "write.driver_rows": 0}
    with WriterProcess(path, "upsert", UPSERT, options=options, own_jvm=True, crash_at="marked") as victim:
        answer = victim.answer()
    assert answer["outcome"] == "write-failed"
    next_writer(spark, path)
    check_settled(spark, path, with_rows())


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("step", but(ROLLBACK_STEPS, ROLLBACK_STEPS[:2]))
def test_a_writer_killed_while_it_removes_a_dead_ones_work_is_followed_by_the_next(spark, path, step):
    with WriterProcess(path, "upsert", UPSERT, options=PATIENT, crash_at="reconciled") as victim:
        assert victim.died()
    let_heartbeats_run_out(path)
    with WriterProcess(path, "insert", [["x", 1, "1"]], options=PATIENT, crash_at=step) as reaper:
        assert reaper.died()
    assert check_readers_agree(spark, path) == with_rows()
    next_writer(spark, path)
    check_settled(spark, path, with_rows())


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("step", ["boundary-raised", "collected"])
def test_a_writer_killed_while_it_collects_decisions_leaves_a_table_that_works(spark, path, step):
    engine = open_engine(path, {**PATIENT, "upkeep.auto": False, "decisions.collect_above": 1_000})
    for value in range(MORE_THAN_IS_KEPT):
        engine.upsert(rows([["a", value, "1"]]))
    with WriterProcess(path, "insert", [["x", 1, "1"]], options=PATIENT, crash_at=step) as victim:
        assert victim.died()
    next_writer(spark, path)
    check_settled(spark, path, with_rows(("a", MORE_THAN_IS_KEPT - 1, "1")))
