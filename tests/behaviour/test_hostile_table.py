"""A table that an attacker made: nothing outside it is read, written or deleted, and what cannot be believed is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lakelock.errors import LakelockError
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import Settings
from lakelock.storage_local import LocalStorage
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.services import RollbackPlan
from tests.behaviour.tables import insert, new_table, visible, writer

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
