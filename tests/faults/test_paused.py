"""A real process is stopped (SIGSTOP) across its lease and its heartbeat, others go on, and it wakes up later."""

from __future__ import annotations

import time

import pytest
from tests.faults.worker import open_engine, rows
from tests.faults.world import (
    BEFORE,
    DONE,
    NEXT,
    PATIENT,
    PERSISTENT,
    UPSERT,
    ArrowWriter,
    check_settled,
    let_heartbeats_run_out,
    next_writer,
    read_by_all,
)  # fmt: skip
from tests.sizes import but, in_ci

HEARTBEAT_S = 4.0
# What the sleeper believes of itself: that its heartbeat is good for four seconds. A busy machine may hold it up for two.
SHORT_LIVED = {**PATIENT, "heartbeat.interval_s": HEARTBEAT_S / 2, "heartbeat.tolerable_misses": 2}

# step -> whether the commit was decided when the writer stopped
STEPS = {"begun": False, "data-written": False, "locked": False, "validated": False, "decided": True, "published": True}
KEPT = {step: STEPS[step] for step in ("begun", "validated", "decided")}


def sleep_past_its_heartbeat(since_s: float) -> None:
    """Its own clock must pass the limit, too; there is nothing to wait for but the time itself."""
    time.sleep(max(0.0, since_s + HEARTBEAT_S + 0.1 - time.monotonic()))


@pytest.mark.parametrize(("step", "decided"), but(STEPS.items(), {("validated", False)}, KEPT.items()))
def test_a_writer_stopped_beyond_lease_and_heartbeat_is_told_the_truth_when_it_wakes(path, step, decided):
    with ArrowWriter(path, "upsert", UPSERT, options=SHORT_LIVED, stop_at=step) as sleeper:
        sleeper.wait_until_stopped()
        since_s = time.monotonic()
        let_heartbeats_run_out(path)
        next_writer(path)
        after = [*(DONE if decided else BEFORE), NEXT]
        assert read_by_all(path) == sorted(after)
        sleep_past_its_heartbeat(since_s)
        sleeper.go_on()
        assert sleeper.answer()["outcome"] == ("committed" if decided else "rolled-back")
    check_settled(path, after)


@pytest.mark.parametrize(("step", "decided"), [("validated", False), *in_ci(("locked", False), ("decided", True))])
def test_a_writer_that_was_judged_dead_too_early_is_told_the_truth_too(path, step, decided):
    """Its own clock says that it lives, and so its lock is all that it doubts."""
    with ArrowWriter(path, "upsert", UPSERT, stop_at=step) as sleeper:
        sleeper.wait_until_stopped()
        let_heartbeats_run_out(path)
        next_writer(path)
        sleeper.go_on()
        assert sleeper.answer()["outcome"] == ("committed" if decided else "rolled-back")
    check_settled(path, [*(DONE if decided else BEFORE), NEXT])


@pytest.mark.parametrize(("step", "decided"), [("validated", False), *in_ci(("decided", True))])
def test_a_writer_stopped_until_its_decisions_were_collected_goes_by_the_timeline(path, step, decided):
    with ArrowWriter(path, "upsert", UPSERT, stop_at=step) as sleeper:
        sleeper.wait_until_stopped()
        let_heartbeats_run_out(path)
        other = open_engine(path, {**PERSISTENT, "decisions.collect_above": 2}, "other")
        for value in range(4):
            other.upsert(rows([["b", value, "1"]]))
        other.coordinator.collect()
        assert other.coordinator.table.log.boundary() > 2
        sleeper.go_on()
        assert sleeper.answer()["outcome"] == ("committed" if decided else "rolled-back")
    check_settled(path, [("b", 3, "1") if r[0] == "b" else r for r in (DONE if decided else BEFORE)])


@pytest.mark.parametrize(
    "step", ["rollback-decided", *in_ci("rollback-data-deleted", "rollback-pending-deleted", "rollback-planned")]
)
def test_a_reaper_that_wakes_up_late_removes_nothing_that_is_alive(path, step):
    with ArrowWriter(path, "upsert", UPSERT, crash_at="reconciled") as victim:
        assert victim.died()
    let_heartbeats_run_out(path)
    with ArrowWriter(path, "reap", None, stop_at=step) as reaper:
        reaper.wait_until_stopped()
        let_heartbeats_run_out(path)
        engine = open_engine(path, PERSISTENT, "next")
        engine.upsert(rows(UPSERT))
        engine.insert(rows([list(NEXT)]))
        reaper.go_on()
        assert reaper.answer()["outcome"] == "done"
    check_settled(path, [*DONE, NEXT])


def test_two_writers_asleep_at_the_commit_wake_up_and_only_one_has_committed(path):
    """Both have validated under the same lock, which the second took over: the log decides."""
    with (
        ArrowWriter(path, "upsert", [["a", 100, "1"]], name="one", stop_at="validated") as one,
        ArrowWriter(path, "upsert", [["k", 1, "2"]], name="two", stop_at="validated") as two,
    ):
        one.wait_until_stopped()
        two.wait_until_stopped()
        one.go_on()
        two.go_on()
        answers = [one.answer()["outcome"], two.answer()["outcome"]]
    assert answers == ["committed", "committed"]
    check_settled(path, [("a", 100, "1"), ("b", 2, "1"), ("c", 3, "2"), ("k", 1, "2")])


def test_two_writers_of_one_row_asleep_at_the_commit_do_not_both_commit(path):
    no_claims = {**PATIENT, "concurrency.early_conflict_detection": False}
    with (
        ArrowWriter(path, "upsert", [["a", 100, "1"]], options=no_claims, stop_at="validated") as one,
        ArrowWriter(path, "upsert", [["a", 200, "1"]], options=no_claims, stop_at="validated") as two,
    ):
        one.wait_until_stopped()
        two.wait_until_stopped()
        one.go_on()
        two.go_on()
        answers = [one.answer()["outcome"], two.answer()["outcome"]]
    assert sorted(answers) == ["committed", "conflict"]
    won = 100 if answers[0] == "committed" else 200
    check_settled(path, [("a", won, "1"), ("b", 2, "1"), ("c", 3, "2")])
