"""Several tables in memory on simulated time, and a transaction that rewrites one file group of each and adds another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.api import (
    AppTransaction,
    Committed,
    Coordinator,
    MemoryStorage,
    Storage,
    StorageLocation,
    TableIO,
    WriteRequest,
    layout,
    read_snapshot,
    read_timeline,
)
from tests.behaviour.tables import QUICK, Recorder, new_table, put_file

from lakelock.errors import StorageUnavailable
from lakelock.occ.multi_table import MultiTableTransaction
from lakelock.settings import Settings
from lakelock.testing import ManualRuntime

SETTINGS = replace(QUICK, retry=replace(QUICK.retry, attempts=1))
NAMES = ("orders", "stock")


class Shop:
    """Tables with the file groups a and b. The first name in canonical order is the home of every transaction over all."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.runtime = ManualRuntime()
        self.tables: dict[str, Storage] = {f"memory://{name}": MemoryStorage(self.runtime.now_ms, name=name) for name in names}
        self.names = tuple(sorted(names))
        self.recorder = Recorder()
        for name in self.names:
            new_table(self.tables[f"memory://{name}"])
            for file_id in "ab":
                self.insert(name, file_id)

    def table(self, name: str) -> Storage:
        return self.tables[f"memory://{name}"]

    def coordinator(self, name: str, tables: Mapping[str, Storage] | None = None, settings: Settings = SETTINGS) -> Coordinator:
        """One more process with a table open; it sees all of them through `tables`."""
        tables = tables or self.tables

        def neighbours(uri: str) -> Storage:
            if uri not in tables:
                raise StorageUnavailable(f"{uri} cannot be reached")
            return tables[uri]

        storage = tables[f"memory://{name}"]
        return Coordinator.open(
            StorageLocation(storage.uri), settings, runtime=self.runtime, storage=storage, neighbours=neighbours,
            listeners=(self.recorder,),
        )  # fmt: skip

    def insert(self, name: str, file_id: str, partition: str = "month=1") -> Committed:
        with self.coordinator(name).begin("INSERT") as tx:
            return tx.commit([put_file(tx, self.table(name), partition, file_id)])

    def begin(
        self,
        tables: Mapping[str, Storage] | None = None,
        names: Sequence[str] = (),
        settings: Settings = SETTINGS,
        application: AppTransaction | None = None,
    ) -> MultiTableTransaction:
        coordinators = [self.coordinator(name, tables, settings) for name in names or self.names]
        return MultiTableTransaction.begin(coordinators, WriteRequest("UPSERT", application=application))

    def write(self, tx: MultiTableTransaction, name: str, rewrites: str = "a", adds: str = "c") -> None:
        """Rewrite one group of the table and add another, within the transaction."""
        part = next(part for part in tx.parts if part.uri == f"memory://{name}")
        storage = part.table.storage
        part.claim([f.group for f in part.snapshot().files if f.file_id in rewrites])
        part.commit([put_file(part, storage, "month=1", file_id) for file_id in (*rewrites, *adds)])

    def rewrite(
        self,
        tables: Mapping[str, Storage] | None = None,
        meanwhile: Callable[[], object] | None = None,
        settings: Settings = SETTINGS,
        application: AppTransaction | None = None,
    ) -> str:
        """Rewrite group a and add group c in every table; the id of the transaction."""
        with self.begin(tables, settings=settings, application=application) as tx:
            for name in self.names:
                self.write(tx, name)
            if meanwhile is not None:
                meanwhile()
            tx.commit()
            assert tx.name is not None
            return tx.name.id

    def shown(self, name: str) -> dict[str, str]:
        """The instant of each visible file group, as any Hudi reader sees it."""
        storage = self.table(name)
        return {f.file_id: f.instant for f in read_snapshot(TableIO(storage), read_timeline(storage)).files}

    def has(self, name: str, file_id: str = "c") -> bool:
        """Whether the table shows what a transaction added to it, which is so if and only if it shows what that rewrote."""
        shown = self.shown(name)
        assert (file_id in shown) == (shown["a"] == shown.get(file_id)), shown
        return file_id in shown

    def seen(self) -> set[bool]:
        """Whether the tables show the transaction: one answer once all have ended it."""
        return {self.has(name) for name in self.names}

    def settle(self, names: Sequence[str] = ()) -> None:
        """Let leases and heartbeats run out, and let another writer pass in each table, in this order."""
        self.runtime.stop_repeating()
        for name in names or self.names:
            self.runtime.advance(30)
            self.insert(name, "next", "month=2")
        for name in self.names:
            self.runtime.advance(30)
            self.coordinator(name).reap()
            self.coordinator(name).upkeep()

    def left(self) -> list[str]:
        """What should be gone once all is quiet."""
        found = []
        for name in self.names:
            storage = self.table(name)
            timeline = read_timeline(storage)
            shown = timeline.completed_instants
            found += [f"{name}: {i.file_name}" for i in (*timeline.pending, *timeline.rollbacks) if not i.is_completed]
            for folder in (layout.TEMP, layout.HEARTBEATS, layout.CLAIMS, layout.OUTCOMES):
                found += [f"{name}: {item.key}" for item in storage.list(folder)]
            data = [item.key for item in storage.list("") if item.key.endswith(".parquet")]
            found += [f"{name}: {key}" for key in data if key[-25:-8] not in shown]
        return found
