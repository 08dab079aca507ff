"""What an operation asks of storage at 10 commits and 10 files, and at 10,000 commits and 100,000 files, after upkeep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from lakelock.engine.arrow import ArrowEngine
from lakelock.markers import direct
from lakelock.markers.names import MarkerKind
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import Settings
from lakelock.storage.memory import MemoryStorage
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.instants import Action, Instant, State, format_instant
from lakelock.table.snapshot import DataFile
from lakelock.testing import ManualRuntime
from tests.behaviour.tables import SCHEMA, new_table, writer
from tests.faulty_storage import PagedStorage

FROM_MS = 1_700_000_000_000
NOW_MS = 1_900_000_000_000
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


def light_commits(storage: MemoryStorage, first: int, last: int) -> None:
    """Commits of files that nobody opens, one a second."""
    for number in range(first, last):
        instant, done = (format_instant(FROM_MS + 1_000 * number + ms) for ms in (0, 500))
        files = [DataFile(f"month={number}", f"f{each}", "0-0-0", instant, 4) for each in range(FILES)]
        stats = [
            WriteStat(file.file_id, file.key, partition_path=file.partition, num_writes=1, file_size_bytes=4) for file in files
        ]
        completed = Instant(instant, Action.COMMIT.value, State.COMPLETED, done)
        metadata = CommitMetadata({f"month={number}": tuple(stats)}, "INSERT", {"schema": ""})
        storage.put_if_absent(layout.timeline(completed.file_name), metadata.to_bytes())


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
    light_commits(storage, 0, commits - FILES)
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
    # One commit of the short history is light, too: beside another engine's commits a transaction looks at more.
    return made(FILES + 1), made(10_000)


def new_file(mine: Coordinator) -> None:
    """A transaction that adds one file, as an insert does."""
    storage = mine.table.storage
    with mine.begin("INSERT") as tx:
        file = DataFile("month=new", f"new-{tx.instant}", "0-1-0", tx.instant, 4)
        tx.write_context()
        direct.place(storage, tx.instant, file, MarkerKind.CREATE)
        with storage.open_output(file.key) as output:
            output.write(b"rows")
        stat = WriteStat(file.file_id, file.key, num_writes=1, num_inserts=1, partition_path=file.partition, file_size_bytes=4)
        assert tx.commit([stat]).lock_requests <= 6


def one_partition(mine: Coordinator) -> None:
    assert len(mine.snapshot().in_partition("month=hot")) == FILES


def upsert(mine: Coordinator) -> None:
    assert ArrowEngine(mine).upsert(rows(0, 1000, 1)).files == FILES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "before"),
    [(one_partition, None), (new_file, None), (new_file, new_file), (upsert, None), (upsert, one_partition)],
    ids=["a snapshot of one partition", "an insert", "the next insert", "an upsert", "an upsert by a process that has read"],
)
def test_a_long_history_and_many_files_cost_an_operation_at_most_two_requests(
    tables: tuple[Table, Table], action: Callable[[Coordinator], None], before: Callable[[Coordinator], None] | None
) -> None:
    few, many = (table.cost(action, before) for table in tables)
    assert many <= few + 2
