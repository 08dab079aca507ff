"""Clocks that are wrong, and clocks that are set while a real process is in the middle of a transaction."""

from __future__ import annotations

import time

import pytest
from tests.faults.clocks import Clock
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
)
from tests.sizes import in_ci

MINUTE_S, DAY_S = 60, 86_400


@pytest.fixture
def clock(tmp_path):
    return lambda offset_s: Clock(tmp_path / "clock", offset_s)


@pytest.mark.in_ci
def test_writers_whose_clocks_are_minutes_and_days_apart_take_turns_in_order(path, clock):
    for value, offset_s in enumerate([5 * MINUTE_S, -5 * MINUTE_S, 0, DAY_S, -DAY_S], start=100):
        with ArrowWriter(path, "upsert", [["a", value, "1"]], env=clock(offset_s).env) as writer:
            assert writer.answer()["outcome"] == "committed"
        assert read_by_all(path) == [("a", value, "1"), *BEFORE[1:]]
    history = open_engine(path, PERSISTENT).coordinator.history()
    assert [entry.decision for entry in history] == sorted((entry.decision for entry in history), reverse=True)
    assert int(history[0].instant[:8]) > int(time.strftime("%Y%m%d", time.gmtime()))
    next_writer(path)
    check_settled(path, [("a", 104, "1"), *BEFORE[1:], NEXT])


@pytest.mark.parametrize("jump_s", [-10 * MINUTE_S, *in_ci(10 * MINUTE_S)], ids=["back", "forward"])
@pytest.mark.parametrize("step", ["decided", *in_ci("begun", "locked")])
def test_a_clock_that_is_set_in_the_middle_of_a_transaction_changes_nothing(path, clock, step, jump_s):
    mine = clock(0)
    with ArrowWriter(path, "upsert", UPSERT, env=mine.env, stop_at=step) as writer:
        writer.wait_until_stopped()
        mine.set(jump_s)
        writer.go_on()
        answer = writer.answer()
    assert answer["outcome"] == "committed"
    timeline = open_engine(path, PATIENT).coordinator.table.timeline()
    done = next(i for i in timeline.commits if i.requested == answer["instant"])
    assert done.completion is not None and done.completion > done.requested
    check_settled(path, DONE)


@pytest.mark.parametrize("offset_s", [-DAY_S, *in_ci(DAY_S)], ids=["slow", "fast"])
def test_nobody_is_taken_for_dead_because_clocks_differ(path, clock, offset_s):
    """The heartbeat's age is told by the storage's clock alone."""
    with ArrowWriter(path, "upsert", UPSERT, stop_at="data-written") as writer:
        writer.wait_until_stopped()
        with ArrowWriter(path, "reap", None, env=clock(offset_s).env) as other:
            assert other.answer()["outcome"] == "done"
        writer.go_on()
        assert writer.answer()["outcome"] == "committed"
    check_settled(path, DONE)


@pytest.mark.parametrize(("step", "decided"), [("decided", True), *in_ci(("data-written", False))])
def test_a_writer_of_tomorrow_that_dies_is_finished_or_removed_today(path, clock, step, decided):
    with ArrowWriter(path, "upsert", UPSERT, env=clock(DAY_S).env, crash_at=step) as writer:
        assert writer.died()
    let_heartbeats_run_out(path)
    after = DONE if decided else BEFORE
    open_engine(path, PERSISTENT).upsert(rows([["b", 20, "1"]]))
    next_writer(path)
    check_settled(path, [("b", 20, "1") if row[0] == "b" else row for row in after] + [NEXT])
