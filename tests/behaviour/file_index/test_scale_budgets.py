"""What an operation asks of storage at 10 commits and 10 files, and at many times as many, after upkeep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Coordinator, MemoryStorage
from tests.behaviour.tables import SCHEMA, light_commits, new_file, new_table, writer
from tests.faulty_storage import PagedStorage
from tests.sizes import examples

from lakelock.settings import Settings
from lakelock.testing import ManualRuntime

NOW_MS = 1_900_000_000_000
RETAINED = 7
"""Beside another engine the first write of a process reads each commit that upkeep has left on the timeline: in a long history
so many more than the two of every operation."""
FILES = 10
"""Files of each commit of the history; they are in a partition of their own."""
SETTINGS = Settings.resolve(
    {
        "clean.policy": "KEEP_LATEST_COMMITS",
        "clean.readers_s": "0",
        "archive.min_age_s": "0",
        "upkeep.auto": "false",
        "upkeep.budget_s": "3600",
    }
).settings


@dataclass
class Table:
    """A table, and its requests counted as an object store answers them: a listing by its pages."""

    inner: MemoryStorage
    runtime: ManualRuntime

    def cost(self, action: Callable[[Coordinator], object], before: Callable[[Coordinator], object] | None = None) -> int:
        """The requests of an action by a process that has done only `before` with the table."""
        storage = PagedStorage(self.inner)
        mine = writer(storage, SETTINGS, runtime=self.runtime)
        if before is not None:
            before(mine)
        self.runtime.sleep(1)
        storage.reset()
        action(mine)
        return storage.total + storage.requests["open_input"]


def rows(first: int, count: int, value: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"id": [f"k{number:06}" for number in numbers], "v": [value] * count, "month": ["hot"] * count}, schema=SCHEMA
    )


def made(commits: int) -> Table:
    """A table with such a history, kept up, whose last ten commits each added a file of a hundred rows to one partition."""
    runtime = ManualRuntime(start_ms=NOW_MS)
    storage = MemoryStorage(runtime.now_ms)
    new_table(storage)
    light_commits(storage, 0, commits - FILES, files=FILES, partitions=commits)
    engine = ArrowEngine(writer(storage, SETTINGS, runtime=runtime))
    engine.coordinator.table.checkpoint(at_once=True)
    done = engine.coordinator.upkeep()
    assert done.problems == () and not done.spent
    for number in range(FILES):
        runtime.sleep(1)
        engine.insert(rows(100 * number, 100, 0))
    engine.coordinator.table.checkpoint(at_once=True)
    return Table(storage, runtime)


@pytest.fixture(scope="module")
def tables() -> tuple[Table, Table]:
    """One has 11 commits, each of ten files; the other has 2,000, and 10,000 in the long form."""
    # One commit of the short history is light, too: beside another engine's commits a transaction looks at more.
    return made(FILES + 1), made(examples(2_000, 10_000))


def insert(mine: Coordinator) -> None:
    """A transaction that adds one file, as an insert does. Beside another engine it looks once more, at timeline and file."""
    with mine.begin("INSERT") as tx:
        assert tx.commit([new_file(tx, mine.table.storage, f"new-{tx.instant}")]).lock_requests <= 8


def one_partition(mine: Coordinator) -> None:
    assert len(mine.snapshot().in_partition("month=hot")) == FILES


def upsert(mine: Coordinator) -> None:
    assert ArrowEngine(mine).upsert(rows(0, 1000, 1)).files == FILES


def cleaned_and_changed(mine: Coordinator) -> None:
    """Everything is cleaned; then more commits than are kept rewrite the files of one partition."""
    mine.clean()
    for value in range(SETTINGS.clean.keep_commits + 2):
        mine.table.runtime.sleep(2)
        ArrowEngine(mine).upsert(rows(0, 1000, value))


def clean(mine: Coordinator) -> None:
    assert mine.clean().files > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "before"),
    [
        (one_partition, None),
        (insert, None),
        (insert, insert),
        (upsert, None),
        (upsert, one_partition),
        (clean, cleaned_and_changed),
    ],
    ids=[
        "a snapshot of one partition", "an insert", "the next insert", "an upsert", "an upsert by a process that has read",
        "a clean",
    ],
)  # fmt: skip
def test_a_long_history_and_many_files_cost_an_operation_at_most_two_requests(
    tables: tuple[Table, Table], action: Callable[[Coordinator], None], before: Callable[[Coordinator], None] | None
) -> None:
    few, many = (table.cost(action, before) for table in tables)
    is_first_write = (action, before) in ((insert, None), (upsert, one_partition))
    assert many <= few + 2 + (RETAINED if is_first_write else 0)
