"""A task that ends when nobody wants its files any more takes them back; the functions that tasks run, without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.api import DataFile, Keyed, LocalStorage, Transaction, WriteStat
from tests.behaviour.tables import leftovers
from tests.faults.worker import open_engine, rows
from tests.faults.world import BEFORE, PERSISTENT, make_table, read_by_all

from lakelock.engine.file_tasks import FileTasks
from lakelock.errors import WriteFailed
from lakelock.markers.data_files import TaskToken
from lakelock.occ.begin import WriteContext
from lakelock.spark_plugin.write_stages import while_wanted


@pytest.fixture
def path(tmp_path: Path) -> str:
    return make_table(tmp_path)


def begin(path: str) -> Transaction:
    return open_engine(path, PERSISTENT, "driver").coordinator.begin("UPSERT")


def written(context: WriteContext, base: DataFile, attempt: int) -> list[WriteStat]:
    """What one attempt of a task writes: a new file, and the next slice of another."""
    task, tasks = TaskToken(0, 0, attempt), FileTasks.of(context)
    new = tasks.write_new_files("month=1", [rows([["n", 7, "1"]])], task)
    return [*new, tasks.rewrite_group(base, task, upserts=Keyed.of(rows([["a", 10, "1"]]), context.properties))]


def test_files_that_are_wanted_stay(path: str) -> None:
    with begin(path) as tx:
        context, base = tx.write_context(), tx.snapshot().in_partition("month=1")[0]
        tx.commit(list(while_wanted(context, iter(written(context, base, 1)))))
    assert read_by_all(path) == sorted([("a", 10, "1"), ("n", 7, "1"), *BEFORE[1:]])


def test_files_of_an_attempt_that_was_killed_after_the_commit_are_removed_by_the_next_sweep(path: str) -> None:
    """It was killed before it could take them back."""
    with begin(path) as tx:
        context, base = tx.write_context(), tx.snapshot().in_partition("month=1")[0]
        tx.commit(list(while_wanted(context, iter(written(context, base, 1)))))
    late = written(context, base, 2)
    for stat in late:
        kind = "CREATE" if stat.is_new_group else "MERGE"
        os.utime(Path(path) / f".hoodie/.temp/{tx.instant}/{stat.path}.marker.{kind}", (1_700_000_000, 1_700_000_000))
    open_engine(path, PERSISTENT, "sweeper").coordinator.reap()
    assert not any((Path(path) / str(stat.path)).exists() for stat in late)
    assert read_by_all(path) == sorted([("a", 10, "1"), ("n", 7, "1"), *BEFORE[1:]])
    assert leftovers(LocalStorage(path)) == []


@pytest.mark.parametrize("begun", ["before", "after"])
def test_an_attempt_that_ends_after_the_commit_takes_its_files_and_markers_back(path: str, begun: str) -> None:
    with begin(path) as tx:
        context, base = tx.write_context(), tx.snapshot().in_partition("month=1")[0]
        stats = written(context, base, 1)
        late = written(context, base, 2) if begun == "before" else None
        tx.commit(stats)
    late = late or written(context, base, 2)
    files = {stat.path for stat in late}
    with pytest.raises(WriteFailed, match="was late"):
        list(while_wanted(context, iter(late)))
    assert not any((Path(path) / str(file)).exists() for file in files)
    assert read_by_all(path) == sorted([("a", 10, "1"), ("n", 7, "1"), *BEFORE[1:]])
    assert leftovers(LocalStorage(path)) == []


def test_an_attempt_whose_marker_the_commit_has_removed_takes_its_files_back_before_the_commit(path: str) -> None:
    with begin(path) as tx:
        context, base = tx.write_context(), tx.snapshot().in_partition("month=1")[0]
        stats, late = written(context, base, 1), written(context, base, 2)
        for marker in Path(path).glob(f".hoodie/.temp/{tx.instant}/month=1/*_0-0-2_*.marker.CREATE"):
            marker.unlink()
        with pytest.raises(WriteFailed, match="was late"):
            list(while_wanted(context, iter(late)))
        tx.commit(stats)
    assert read_by_all(path) == sorted([("a", 10, "1"), ("n", 7, "1"), *BEFORE[1:]])
    assert leftovers(LocalStorage(path)) == []
