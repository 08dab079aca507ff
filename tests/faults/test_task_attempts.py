"""Executors as processes of their own: attempts that are killed, doubled, or wake up when the commit is long made."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import time
from pathlib import Path

import pytest
from tests.api import Coordinator, Transaction, WriteStat
from tests.faults.task import Task
from tests.faults.worker import open_engine, rows
from tests.faults.world import BEFORE, PERSISTENT, check_settled, read_by_all
from tests.sizes import in_ci, long
from tests.spark.processes import WriterProcess

from lakelock.markers.data_files import TaskToken

KINDS = ["rewrite", *in_ci("new")]
AFTER = {
    "new": sorted([*BEFORE, ("n", 7, "1")]),
    "rewrite": [("a", 10, "1"), *BEFORE[1:]],
}


class Executor(WriterProcess):
    """One attempt of the one task of a transaction."""

    numbers = itertools.count()

    def __init__(self, tx: Transaction, kind: str, folder: Path, **steps: str) -> None:
        number = next(self.numbers)
        order, self.result = folder / f"task-{number}", folder / f"result-{number}"
        values = [["n", 7, "1"]] if kind == "new" else [["a", 10, "1"]]
        base = None if kind == "new" else tx.snapshot().in_partition("month=1")[0]
        token = TaskToken(0, 0, number)
        order.write_bytes(pickle.dumps(Task(tx.write_context(), token, rows(values), str(self.result), "month=1", base)))
        self.start([sys.executable, "-m", "tests.faults.task", str(order)], **steps)

    def stats(self) -> list[WriteStat]:
        assert self.answer() == {"outcome": "written"}
        return pickle.loads(self.result.read_bytes())


def driver(path: str) -> Coordinator:
    return open_engine(path, PERSISTENT, "driver").coordinator


def files_by_group_and_instant(path: str) -> list[str]:
    names = [file.name for file in Path(path).glob("month=*/*.parquet")]
    return [f"{name.split('_')[0]}@{name.split('_')[-1]}" for name in names]


def check(path: str, kind: str) -> None:
    assert read_by_all(path) == AFTER[kind]
    slices = files_by_group_and_instant(path)
    assert len(slices) == len(set(slices)) == 3
    check_settled(path, AFTER[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [*long("marked", "file-opened"), "file-written"])
def test_an_attempt_that_is_killed_leaves_nothing_beside_the_one_that_follows(path, tmp_path, kind, step):
    with driver(path).begin("UPSERT") as tx:
        with Executor(tx, kind, tmp_path, crash_at=step) as first:
            assert first.died()
        with Executor(tx, kind, tmp_path) as second:
            tx.commit(second.stats())
    check(path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_attempts_that_both_finish_only_the_reported_one_counts(path, tmp_path, kind):
    with driver(path).begin("UPSERT") as tx, Executor(tx, kind, tmp_path) as one, Executor(tx, kind, tmp_path) as two:
        one.stats()
        tx.commit(two.stats())
    check(path, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [*in_ci("marked"), "file-opened"])
def test_an_attempt_that_wakes_up_after_the_commit_takes_its_file_back(path, tmp_path, kind, step):
    """An executor that was taken for lost: its task was run again elsewhere, and the transaction has committed."""
    with driver(path).begin("UPSERT") as tx, Executor(tx, kind, tmp_path, stop_at=step) as zombie:
        zombie.wait_until_stopped()
        asleep_s = time.monotonic()
        with Executor(tx, kind, tmp_path) as second:
            tx.commit(second.stats())
        time.sleep(max(0.0, asleep_s + 0.6 - time.monotonic()))
        zombie.go_on()
        assert zombie.answer()["outcome"] == "write-failed"
    check(path, kind)


@pytest.mark.parametrize("step", [*in_ci("marked"), "file-opened"])
def test_an_attempt_that_wakes_up_between_reconciling_and_the_commit_takes_its_file_back(path, tmp_path, step):
    with driver(path).begin("UPSERT") as tx, Executor(tx, "new", tmp_path, stop_at=step) as zombie:
        zombie.wait_until_stopped()
        asleep_s = time.monotonic()
        with Executor(tx, "new", tmp_path) as second:
            stats = second.stats()
        time.sleep(max(0.0, asleep_s + 0.6 - time.monotonic()))
        commit, told = tx.check_alive, []

        def wake_up() -> None:
            """Called under the lock, right before the decision."""
            if tx.reconciled and not told:
                zombie.go_on()
                told.append(zombie.answer()["outcome"])
            commit()

        tx.check_alive = wake_up  # type: ignore[method-assign]
        tx.commit(stats)
    assert told == ["write-failed"]
    check(path, "new")


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_that_begins_after_reconciling_and_is_killed_with_its_file_complete_leaves_nothing(path, tmp_path, kind):
    """Nobody knows of it but its marker: the commit has looked, and the attempt could not look any more."""
    with driver(path).begin("UPSERT") as tx, Executor(tx, kind, tmp_path) as counting:
        stats = counting.stats()
        commit, died = tx.check_alive, []

        def straggle() -> None:
            """Called under the lock, right before the decision."""
            if tx.reconciled and not died:
                with Executor(tx, kind, tmp_path, crash_at="file-written") as late:
                    died.append(late.died())
            commit()

        tx.check_alive = straggle  # type: ignore[method-assign]
        tx.commit(stats)
    assert died == [True]
    slices = files_by_group_and_instant(path)
    assert len(slices) == 4 and len(set(slices)) == (4 if kind == "new" else 3)
    for marker in Path(path).glob(".hoodie/.temp/**/*.marker.*"):
        os.utime(marker, (1_700_000_000, 1_700_000_000))  # whoever placed it is dead by now
    driver(path).reap()
    check(path, kind)


def test_an_attempt_that_wakes_up_after_the_transaction_was_given_up_takes_its_file_back(path, tmp_path):
    tx = driver(path).begin("UPSERT")
    with Executor(tx, "new", tmp_path, stop_at="marked") as zombie:
        zombie.wait_until_stopped()
        tx.abort("the job was cancelled")
        time.sleep(0.6)
        zombie.go_on()
        assert zombie.answer()["outcome"] == "write-failed"
    check_settled(path, BEFORE)
