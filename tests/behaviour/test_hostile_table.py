"""A table that an attacker made: nothing outside it is read, written or deleted, and what cannot be believed is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFile, CommitMetadata, Coordinator, LocalStorage, RollbackPlan, TableSchema, WriteStat, layout
from tests.behaviour.tables import insert, new_table, visible, writer
from tests.sizes import in_ci

from lakelock.errors import LakelockError
from lakelock.settings import Settings
from lakelock.table.schema import META_COLUMNS

DEAD, ROLLBACK = "20200101000000000", "20200101000000001"
OUTSIDE = f"a-0_0-1-0_{DEAD}.parquet"


class Trap:
    """A table with one honest row, and a precious folder beside it that bears the name of a dead writer's file."""

    def __init__(self, folder: Path) -> None:
        self.root, self.precious = folder / "table", folder / "precious"
        self.precious.mkdir()
        (self.precious / OUTSIDE).write_text("precious")
        self.storage = LocalStorage(self.root)
        new_table(self.storage)
        insert(writer(self.storage), self.storage, "p", "f")

    def plant(self, key: str, data: bytes = b"") -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (1_577_836_800, 1_577_836_800))

    def dead_writer(self) -> None:
        for suffix in ("commit.requested", "inflight"):
            self.plant(f"{layout.TIMELINE}/{DEAD}.{suffix}")

    def use(self) -> Coordinator:
        """Everything that a careful user would do with it; errors are allowed, harm is not."""
        coordinator = writer(self.storage, Settings())
        for step in (
            coordinator.reap,
            coordinator.snapshot,
            coordinator.history,
            coordinator.collect,
            lambda: insert(writer(self.storage), self.storage, "p", "g"),
        ):
            with suppress(LakelockError):
                step()
        return coordinator

    def assert_unharmed(self) -> None:
        assert [path.name for path in self.precious.iterdir()] == [OUTSIDE]
        assert (self.precious / OUTSIDE).read_text() == "precious"


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def marker_batch(trap: Trap) -> None:
    trap.dead_writer()
    lines = [f"../precious/{OUTSIDE}.marker.CREATE", f"p/../../precious/{OUTSIDE}.marker.CREATE", f"/{OUTSIDE}.marker.CREATE"]
    trap.plant(f".hoodie/.temp/{DEAD}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    trap.plant(f".hoodie/.temp/{DEAD}/MARKERS0", "\n".join(lines).encode())


def linked_partition(trap: Trap) -> None:
    trap.dead_writer()
    trap.plant(f".hoodie/.temp/{DEAD}/link/{OUTSIDE}.marker.CREATE")
    (trap.root / "link").symlink_to(trap.precious)


def linked_file(trap: Trap) -> None:
    (trap.root / "p" / OUTSIDE).symlink_to(trap.precious / OUTSIDE)
    trap.dead_writer()
    trap.plant(f".hoodie/.temp/{DEAD}/p/{OUTSIDE}.marker.CREATE")


def rollback_plan(trap: Trap) -> None:
    trap.dead_writer()
    plan = RollbackPlan(DEAD, "commit", {"../precious": (OUTSIDE,)}, root=str(trap.root)).to_bytes()
    trap.plant(f"{layout.TIMELINE}/{ROLLBACK}.rollback.requested", plan)
    trap.plant(f"{layout.TIMELINE}/{ROLLBACK}.rollback.inflight")


def committed_path(trap: Trap) -> None:
    stat = WriteStat("a-0", f"../precious/{OUTSIDE}", partition_path="../precious", num_writes=1, file_size_bytes=8)
    metadata = CommitMetadata({"../precious": (stat,)}, "INSERT_OVERWRITE", {"schema": "{}"}, {"../precious": ("a-0",)})
    for suffix in ("replacecommit.requested", "replacecommit.inflight"):
        trap.plant(f"{layout.TIMELINE}/{DEAD}.{suffix}")
    trap.plant(f"{layout.TIMELINE}/{DEAD}_{ROLLBACK}.replacecommit", metadata.to_bytes())


def claim_of_a_path(trap: Trap) -> None:
    (trap.root / ".hoodie" / ".lakelock" / "claims").mkdir(parents=True, exist_ok=True)
    (trap.root / ".hoodie" / ".lakelock" / "claims" / "link").symlink_to(trap.precious)


@pytest.mark.parametrize(
    "bait",
    [marker_batch, linked_partition, linked_file, rollback_plan, committed_path, claim_of_a_path],
    ids=lambda f: f.__name__,
)
def test_nothing_outside_the_table_is_touched(trap: Trap, bait: Callable[[Trap], None]) -> None:
    bait(trap)
    trap.use()
    trap.assert_unharmed()
    assert all(name.startswith("p/") for name in visible_or_refused(trap))


def visible_or_refused(trap: Trap) -> list[str]:
    try:
        return visible(trap.storage)
    except LakelockError:
        return []


def test_a_dead_writers_files_in_the_table_are_removed_all_the_same(trap: Trap) -> None:
    marker_batch(trap)
    inside = f"p/{OUTSIDE}"
    trap.plant(inside, b"half a file")
    batch = trap.root / f".hoodie/.temp/{DEAD}/MARKERS0"
    batch.write_text(f"{inside}.marker.CREATE\n")
    trap.use()
    assert not (trap.root / inside).exists()
    trap.assert_unharmed()


BOMB_ROWS, BOMB_KEY = 1_500_000, "k" * 400


def parquet_bomb(path: Path) -> None:
    """One row group of 1.5 million equal keys: 600 MB of text in a file of 0.4 MB."""
    key = pa.DictionaryArray.from_arrays(pa.array(np.zeros(BOMB_ROWS, np.int32)), pa.array([BOMB_KEY]))
    pq.write_table(pa.table(dict.fromkeys((*META_COLUMNS, "id"), key)), path, row_group_size=BOMB_ROWS, store_schema=False)
    assert path.stat().st_size < 1_000_000 and pq.read_metadata(path).num_row_groups == 1


@contextmanager
def counted_memory() -> Iterator[pa.MemoryPool]:
    """Arrow's allocations from here on, and their peak."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


@pytest.mark.parametrize("reading", ["rewrite", *in_ci("keys", "rows")])
def test_a_small_file_of_very_many_rows_takes_the_memory_of_some_batches(tmp_path: Path, reading: str) -> None:
    parquet_bomb(tmp_path / "bomb.parquet")
    schema = TableSchema.from_arrow(pa.schema([("id", pa.string())]))
    with counted_memory() as pool, BaseFile(LocalStorage(tmp_path).open_input("bomb.parquet"), "bomb.parquet") as base:
        batches: dict[str, Callable[[], Iterator[pa.Table | pa.ChunkedArray]]] = {
            "keys": base.key_batches,
            "rows": lambda: base.batches(schema),
            "rewrite": lambda: base.stamped_batches(schema),
        }
        assert sum(len(batch) for batch in batches[reading]()) == BOMB_ROWS
        peak = pool.max_memory()
    assert peak is not None and 10 << 20 < peak < 450 << 20
