"""A table on simulated time whose file groups are rewritten again and again, for tests of upkeep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.api import (
    Coordinator,
    DataFile,
    MemoryStorage,
    Storage,
    StorageLocation,
    TableIO,
    Timeline,
    read_snapshot,
    read_timeline,
)
from tests.behaviour.tables import QUICK, Recorder, new_table, put_file

from lakelock.settings import ArchiveSettings, CleanSettings, Settings, UpkeepSettings
from lakelock.testing import ManualRuntime

KEEPING_TWO = replace(
    QUICK,
    clean=CleanSettings(policy="KEEP_LATEST_COMMITS", keep_commits=2, readers_s=0),
    archive=ArchiveSettings(min_commits=3, max_commits=4, min_age_s=0, merge_files=3),
    upkeep=UpkeepSettings(auto=False, budget_s=60),
)
PARTITION = "month=1"


class AgingTable:
    """One table; each commit is some seconds after the one before, so that a storage that rounds times tells them apart."""

    def __init__(self, settings: Settings = KEEPING_TWO) -> None:
        self.runtime, self.settings = ManualRuntime(), settings
        self.storage = MemoryStorage(self.runtime.now_ms)
        new_table(self.storage)

    def coordinator(
        self, storage: Storage | None = None, settings: Settings | None = None, listener: Recorder | None = None
    ) -> Coordinator:
        """One more process that has the table open."""
        storage = storage or self.storage
        return Coordinator.open(
            StorageLocation(storage.uri), settings or self.settings, runtime=self.runtime, storage=storage,
            listeners=(listener,) if listener else (),
        )  # fmt: skip

    def write(self, *file_ids: str, partition: str = PARTITION) -> str:
        """A commit that adds these file groups, or rewrites those that are there; its instant."""
        self.runtime.advance(5)
        with self.coordinator().begin("UPSERT") as tx:
            there = [f.group for f in tx.snapshot().files if f.partition == partition and f.file_id in file_ids]
            tx.claim(there)
            instant = tx.commit([put_file(tx, self.storage, partition, file_id) for file_id in file_ids]).instant
        self.runtime.advance(5)
        return instant

    def write_many(self, count: int, *file_ids: str) -> list[str]:
        return [self.write(*file_ids or ("a",)) for _ in range(count)]

    def timeline(self) -> Timeline:
        return read_timeline(self.storage)

    def slices(self, file_id: str = "a", partition: str = PARTITION) -> list[str]:
        """The instants of the files that a file group has on storage, oldest first."""
        files = (DataFile.parse(item.key) for item in self.storage.list(partition))
        return sorted(file.instant for file in files if file is not None and file.file_id == file_id)

    def shown(self, as_of: str | None = None) -> dict[str, str]:
        """The instant of each visible file by file id, as names tell it to any reader of Hudi's."""
        snapshot = read_snapshot(TableIO(self.storage), self.timeline(), as_of)
        stored = {item.key for item in self.storage.list("")}
        assert {file.key for file in snapshot.files} <= stored
        return {file.file_id: file.instant for file in snapshot.files}

    def names(self, prefix: str = ".hoodie/timeline") -> Sequence[str]:
        return [item.key.removeprefix(f"{prefix}/") for item in self.storage.list(prefix)]
