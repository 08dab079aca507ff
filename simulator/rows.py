"""Rows of simulated tables, and the engine that most seeds write them with.

`LightRows` does what `ArrowRows`, the production engine, does with Parquet, with a line of JSON per file: encoding Parquet
takes longer than everything else in a transaction together. Both go through the same `Coordinator`, `Transaction`, markers,
claims and commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple, Protocol

import pyarrow as pa

from lakelock.errors import StorageError
from lakelock.markers.direct import place
from lakelock.markers.names import MarkerKind
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.footprint import AppTransaction
from lakelock.occ.reads import ReadKind
from lakelock.occ.retrying import with_retries
from lakelock.occ.transaction import Detached, Transaction
from lakelock.storage import Storage
from lakelock.table.base_reader import BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("trail", pa.string()), ("part", pa.string())])
TABLE_SCHEMA = TableSchema.from_arrow(SCHEMA)


class Row(NamedTuple):
    """One row. `trail` are the operations that wrote it, oldest first: a transfer adds itself, a blind write starts anew."""

    part: str
    key: str
    value: int
    trail: tuple[int, ...]


def partition_of(part: str) -> str:
    return f"part={part}"


@lru_cache(maxsize=1024)  # a file of a run is read many times, by the engine and by the checks, and never changes
def rows_of(key: str, data: bytes) -> tuple[Row, ...]:
    """The rows of a data file of either engine."""
    if data[:4] == b"PAR1":
        with BaseFile(BytesIO(data), key) as base:
            found = [row for batch in base.batches(TABLE_SCHEMA) for row in batch.to_pylist()]
        return tuple(Row(row["part"], row["id"], row["v"], tuple(json.loads(row["trail"]))) for row in found)
    part = key.split("/", 1)[0].partition("=")[2]
    return tuple(Row(part, name, value, tuple(trail)) for name, value, trail in json.loads(data))


Chosen = Callable[[Row], bool]


class Rows(Protocol):
    """What the actors do to a table. Every call is one transaction, with the retries that users get."""

    coordinator: Coordinator

    def insert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed: ...

    def insert_detached(self, rows: Sequence[Row], tag: str) -> tuple[Detached, list[WriteStat]]:
        """Write the files of an insert that another process is to commit."""
        ...

    def upsert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed: ...

    def delete_keys(self, part: str, keys: Sequence[str], tag: str) -> Committed: ...

    def delete_below(self, value: int, tag: str) -> Committed: ...

    def overwrite(self, rows: Sequence[Row], tag: str) -> Committed: ...

    def read(self) -> list[Row]: ...

    def read_in(self, tx: Transaction, part: str | None, keys: frozenset[str] | None) -> list[Row]:
        """Rows of one partition, or with one of these keys, read as a part of the transaction."""
        ...

    def upsert_in(self, tx: Transaction, rows: Sequence[Row]) -> Committed: ...


class LightRead:
    """A read of rows by a condition, or a look-up of keys."""

    def __init__(self, storage: Storage, chosen: Chosen, parts: frozenset[str] | None, kind: ReadKind) -> None:
        self._storage, self._chosen, self._parts, self.kind = storage, chosen, parts, kind
        self.description = f"simulated {kind.value}"

    def concerns(self, partition: str) -> bool:
        return self._parts is None or partition in self._parts

    def matches(self, files: Sequence[DataFile]) -> str | None:
        for file in files:
            try:
                with self._storage.open_input(file.key) as opened:
                    rows = rows_of(file.key, opened.read())
            except StorageError:
                return f"{file.key} is gone and cannot be looked into"
            for row in rows:
                if self._chosen(row):
                    return f"{file.partition}: {row.key}"
        return None


class LightRows:
    """Reads and writes files of one JSON line, transaction by transaction as `ArrowEngine` does."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self._storage, self._runtime = coordinator.table.storage, coordinator.table.runtime

    def insert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed:
        return self._run("INSERT", tag, lambda tx: tx.commit(self._new_files(tx, rows)), application)

    def insert_detached(self, rows: Sequence[Row], tag: str) -> tuple[Detached, list[WriteStat]]:
        with self.coordinator.begin("INSERT", tag=tag) as tx:
            stats = self._new_files(tx, rows)
            return tx.detach(), stats

    def upsert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed:
        return self._run("UPSERT", tag, lambda tx: self.upsert_in(tx, rows), application)

    def delete_keys(self, part: str, keys: Sequence[str], tag: str) -> Committed:
        wanted = frozenset(keys)

        def work(tx: Transaction) -> Committed:
            partition = partition_of(part)
            tx.reads(self._keys_read({partition: wanted}))
            found = self._holding(tx, partition, lambda row: row.key in wanted)
            tx.claim(file.group for file, _ in found)
            kept = [(file, [row for row in rows if row.key not in wanted]) for file, rows in found]
            return tx.commit([self._rewritten(tx, file, rows) for file, rows in kept])

        return self._run("DELETE", tag, work)

    def delete_below(self, value: int, tag: str) -> Committed:
        def work(tx: Transaction) -> Committed:
            tx.reads(LightRead(self._storage, lambda row: row.value < value, None, ReadKind.ROWS))
            found = self._holding(tx, None, lambda row: row.value < value)
            tx.claim(file.group for file, _ in found)
            kept = [(file, [row for row in rows if row.value >= value]) for file, rows in found]
            return tx.commit([self._rewritten(tx, file, rows) for file, rows in kept])

        return self._run("DELETE", tag, work)

    def overwrite(self, rows: Sequence[Row], tag: str) -> Committed:
        def work(tx: Transaction) -> Committed:
            partitions = sorted({partition_of(row.part) for row in rows})
            tx.overwrites(partitions)
            replaced = {p: [f.file_id for f in tx.snapshot().in_partition(p)] for p in partitions}
            tx.claim(f.group for p in partitions for f in tx.snapshot().in_partition(p))
            return tx.commit(self._new_files(tx, rows), replaced=replaced)

        return self._run("INSERT_OVERWRITE", tag, work)

    def read(self) -> list[Row]:
        return self._all_rows(self.coordinator.snapshot())

    def read_in(self, tx: Transaction, part: str | None, keys: frozenset[str] | None) -> list[Row]:
        chosen = _chooser(part, keys)
        tx.reads(LightRead(self._storage, chosen, None, ReadKind.ROWS))
        return [row for row in self._all_rows(tx.snapshot()) if chosen(row)]

    def upsert_in(self, tx: Transaction, rows: Sequence[Row]) -> Committed:
        by_partition: dict[str, dict[str, Row]] = {}
        for row in rows:
            by_partition.setdefault(partition_of(row.part), {})[row.key] = row
        tx.reads(self._keys_read({p: frozenset(found) for p, found in by_partition.items()}))
        rewrites: list[tuple[DataFile, list[Row]]] = []
        new: list[Row] = []
        for partition, wanted in by_partition.items():
            held: set[str] = set()
            for file, stored in self._holding(tx, partition, lambda row, wanted=wanted: row.key in wanted):  # type: ignore[misc]
                held.update(row.key for row in stored)
                rewrites.append((file, [wanted.get(row.key, row) for row in stored]))
            new += [row for key, row in wanted.items() if key not in held]
        tx.claim(file.group for file, _ in rewrites)
        stats = [self._rewritten(tx, file, found) for file, found in rewrites]
        return tx.commit([*stats, *self._new_files(tx, new)])

    def _run(
        self, operation: str, tag: str, work: Callable[[Transaction], Committed], application: AppTransaction | None = None
    ) -> Committed:
        return with_retries(self.coordinator, operation, work, application=application, tag=tag)

    def _keys_read(self, keys: Mapping[str, frozenset[str]]) -> LightRead:
        return LightRead(self._storage, lambda row: row.key in keys[partition_of(row.part)], frozenset(keys), ReadKind.KEYS)

    def _holding(self, tx: Transaction, partition: str | None, chosen: Chosen) -> list[tuple[DataFile, tuple[Row, ...]]]:
        """The files of the snapshot that hold such rows, with all their rows."""
        snapshot = tx.snapshot()
        files = snapshot.files if partition is None else snapshot.in_partition(partition)
        found = [(file, self._file_rows(file)) for file in files]
        return [(file, rows) for file, rows in found if any(chosen(row) for row in rows)]

    def _all_rows(self, snapshot: Snapshot) -> list[Row]:
        return [row for file in snapshot.files for row in self._file_rows(file)]

    def _file_rows(self, file: DataFile) -> tuple[Row, ...]:
        with self._storage.open_input(file.key) as opened:
            return rows_of(file.key, opened.read())

    def _new_files(self, tx: Transaction, rows: Sequence[Row]) -> list[WriteStat]:
        tx.write_context()
        stats = []
        for partition in sorted({partition_of(row.part) for row in rows}):
            mine = [row for row in rows if partition_of(row.part) == partition]
            file = DataFile(partition, f"{self._runtime.uuid()}-0", "0-0-0", tx.instant)
            size = self._put(tx, file, MarkerKind.CREATE, mine)
            stats.append(_created(file, size, len(mine)))
        return stats

    def _rewritten(self, tx: Transaction, base: DataFile, rows: Sequence[Row]) -> WriteStat:
        tx.write_context()
        attempt = 0
        if self._runtime.random() < 0.1:  # an attempt of the task that failed after its file was complete
            self._put(tx, DataFile(base.partition, base.file_id, "0-0-0", tx.instant), MarkerKind.MERGE, rows)
            attempt = 1
        file = DataFile(base.partition, base.file_id, f"0-0-{attempt}", tx.instant)
        size = self._put(tx, file, MarkerKind.MERGE, rows)
        return WriteStat(
            file_id=file.file_id, path=file.key, partition_path=base.partition, prev_commit=base.instant,
            prev_base_file=base.name, num_writes=len(rows), num_inserts=0, num_update_writes=len(rows),
            total_write_bytes=size, file_size_bytes=size,
        )  # fmt: skip

    def _put(self, tx: Transaction, file: DataFile, kind: MarkerKind, rows: Iterable[Row]) -> int:
        place(self._storage, tx.instant, file, kind)
        data = json.dumps([row[1:] for row in rows]).encode()
        with self._storage.open_output(file.key) as output:
            output.write(data)
        return len(data)


def _created(file: DataFile, size: int, rows: int) -> WriteStat:
    return WriteStat(
        file_id=file.file_id,
        path=file.key,
        partition_path=file.partition,
        num_writes=rows,
        num_inserts=rows,
        total_write_bytes=size,
        file_size_bytes=size,
    )


def _chooser(part: str | None, keys: frozenset[str] | None) -> Chosen:
    return lambda row: (part is None or row.part == part) and (keys is None or row.key in keys)


__all__ = ["LightRows", "Row", "Rows", "partition_of", "rows_of"]
