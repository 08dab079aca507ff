"""The engine without Spark: the same transactions and kernels on Arrow tables, in one process.

What Spark distributes is done here by plain loops. The rows to write are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.clock import Runtime
from lakelock.data_locks import Resource
from lakelock.occ.arrow_reads import KeysRead, RowsRead
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.file_tasks import TaskToken, WriteContext, rewrite_group, write_new_files
from lakelock.occ.footprint import AppTransaction
from lakelock.occ.retrying import with_retries
from lakelock.occ.targets import Targets, resources_of, target_of_expression, within
from lakelock.occ.transaction import Transaction
from lakelock.storage import Storage
from lakelock.table.base_reader import BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import tag
from lakelock.table.keyed import Keyed, dedupe
from lakelock.table.merge import Doomed, keys_among
from lakelock.table.partitions import partition_paths
from lakelock.table.schema import TableSchema, check_write
from lakelock.table.snapshot import DataFile, Snapshot


class ArrowEngine:
    """Writes and reads one table with Arrow tables. Conflicts are retried as in Spark."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def insert(
        self, rows: pa.Table, *, application: AppTransaction | None = None, tag: str = "", partition: Targets = None
    ) -> Committed:
        """Append the rows; keys are not looked up. Rows outside of `partition`, if it is named, are an `InputError`."""

        def work(tx: Transaction) -> Committed:
            batch = self._batch(tx, rows)
            return tx.commit(batch.new_files(batch.by_partition()), schema=batch.schema)

        return with_retries(self._coordinator, "INSERT", work, application=application, tag=tag, partition=partition)

    def upsert(
        self, rows: pa.Table, *, application: AppTransaction | None = None, tag: str = "", partition: Targets = None
    ) -> Committed:
        """Insert the rows whose keys the table lacks and replace the others; the newest by the ordering column wins."""

        def work(tx: Transaction) -> Committed:
            return self.upsert_in(tx, rows)

        return with_retries(self._coordinator, "UPSERT", work, application=application, tag=tag, partition=partition)

    def upsert_in(self, tx: Transaction, rows: pa.Table) -> Committed:
        """Upsert as the only write of a transaction that may have read before."""
        batch = self._batch(tx, rows)
        settings = self._coordinator.table.settings.write
        keyed = {
            partition: dedupe(found, batch.ordering, take_any=settings.duplicates == "any")
            for partition, found in batch.by_partition().items()
        }
        tx.reads(KeysRead(batch.storage, {p: k.keys for p, k in keyed.items()}, "keys of the upsert"))
        known, new = batch.tagged(keyed)
        tx.claim(file.group for file, _ in known)
        stats = [batch.rewritten(file, upserts=changes) for file, changes in known]
        return tx.commit([*stats, *batch.new_files(new)], schema=batch.schema)

    def delete(self, what: pc.Expression | pa.Table, *, tag: str = "", partition: Targets = None) -> Committed:
        """Delete the rows that satisfy a condition, or those whose key and partition columns are in a table."""
        work = self._delete_keys if isinstance(what, pa.Table) else self._delete_where
        coordinator = self._coordinator
        likely: tuple[Resource, ...] = ()
        if coordinator.data.for_writes and not isinstance(what, pa.Table):
            likely = target_of_expression(str(what), coordinator.schema().arrow, coordinator.properties)
        return with_retries(coordinator, "DELETE", lambda tx: work(tx, what), tag=tag, partition=partition, likely=likely)

    def _delete_where(self, tx: Transaction, condition: pc.Expression) -> Committed:
        read = RowsRead(self._coordinator.table.storage, tx.schema, condition)
        tx.reads(read)
        batch = _Batch(self._coordinator, tx, tx.schema, tx.schema.arrow.empty_table())
        groups = [file for file in tx.snapshot().files if read.matches([file]) is not None]
        tx.claim(file.group for file in groups)
        return tx.commit(batch.without(groups, lambda rows: _mask(rows, condition)))

    def _delete_keys(self, tx: Transaction, keys: pa.Table) -> Committed:
        batch = _Batch(self._coordinator, tx, tx.schema, keys)
        keyed = batch.by_partition()
        tx.reads(KeysRead(batch.storage, {p: k.keys for p, k in keyed.items()}, "keys of the delete"))
        known, _ = batch.tagged(keyed)
        tx.claim(file.group for file, _ in known)
        return tx.commit([batch.rewritten(file, doomed=keys_among(found.keys)) for file, found in known])

    def overwrite_partitions(self, rows: pa.Table, *, tag: str = "", partition: Targets = None) -> Committed:
        """Replace the whole content of every partition that `rows` has rows for."""

        def work(tx: Transaction) -> Committed:
            batch = self._batch(tx, rows)
            parts = batch.by_partition()
            tx.overwrites(parts)
            replaced = {p: [f.file_id for f in tx.snapshot().in_partition(p)] for p in parts}
            tx.claim(f.group for p in parts for f in tx.snapshot().in_partition(p))
            return tx.commit(batch.new_files(parts), schema=batch.schema, replaced=replaced)

        return with_retries(self._coordinator, "INSERT_OVERWRITE", work, tag=tag, partition=partition)

    def read(self, as_of: str | None = None, where: pc.Expression | None = None) -> pa.Table:
        """The table now, or as of an instant, without the meta columns."""
        return read_rows(self._coordinator.table.storage, self._coordinator.snapshot(as_of), self._coordinator.schema(), where)

    @contextmanager
    def reading(self, partition: Targets = None, where: pc.Expression | None = None) -> Iterator[pa.Table]:
        """The rows as of now, while nobody in PESSIMISTIC mode writes into the partitions that they are from."""
        coordinator = self._coordinator
        named = resources_of(partition, coordinator.properties)
        with coordinator.data.holding(coordinator.data.request("SELECT", named)):
            snapshot = coordinator.snapshot()
            files = tuple(file for file in snapshot.files if not named or within(file.partition, named))
            yield read_files(coordinator.table.storage, files, coordinator.schema(), where)

    def read_in(self, tx: Transaction, where: pc.Expression | None = None) -> pa.Table:
        """Read as part of a transaction: its commit is rejected if somebody commits what this read would have seen."""
        storage = self._coordinator.table.storage
        tx.reads(RowsRead(storage, tx.schema, where))
        return read_rows(storage, tx.snapshot(), tx.schema, where)

    def _batch(self, tx: Transaction, rows: pa.Table) -> _Batch:
        schema = check_write(tx.schema, rows.schema, self._coordinator.table.settings.write.merge_schema)
        return _Batch(self._coordinator, tx, schema, conformed(rows, schema))


def conformed(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """`rows` with the table's columns in the table's order and types; columns that it lacks are null."""
    columns = [
        rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema.arrow
    ]
    return pa.table(columns, schema=schema.arrow)


def read_rows(storage: Storage, snapshot: Snapshot, schema: TableSchema, where: pc.Expression | None = None) -> pa.Table:
    """The rows of a snapshot in the table's columns."""
    return read_files(storage, snapshot.files, schema, where)


def read_files(
    storage: Storage, files: Sequence[DataFile], schema: TableSchema, where: pc.Expression | None = None
) -> pa.Table:
    """The rows of these files in the table's columns."""
    found = [schema.arrow.empty_table()]
    for file in files:
        with BaseFile(storage.open_input(file.key), file.key) as base:
            found += [batch if where is None else batch.filter(where) for batch in base.batches(schema)]
    return pa.concat_tables(found)


@dataclass
class _Batch:
    """The rows of one write in one transaction, and the tasks that write them."""

    coordinator: Coordinator
    tx: Transaction
    schema: TableSchema
    rows: pa.Table
    tasks: int = 0
    context: WriteContext = field(init=False)

    def __post_init__(self) -> None:
        self.context = self.tx.write_context(self.schema)

    @property
    def storage(self) -> Storage:
        return self.coordinator.table.storage

    @property
    def ordering(self) -> str | None:
        return self.tx.baseline.properties.ordering_field

    @property
    def runtime(self) -> Runtime:
        return self.coordinator.table.runtime

    def task(self) -> TaskToken:
        self.tasks += 1
        return TaskToken(self.tasks - 1, 0, 0)

    def by_partition(self) -> dict[str, Keyed]:
        """The rows and their keys by partition path."""
        if not self.rows.num_rows:
            return {}
        properties = self.tx.baseline.properties
        paths = partition_paths(self.rows, properties)
        keyed = Keyed.of(self.rows, properties)
        indices = np.asarray(paths.indices)
        names = paths.dictionary.to_pylist()
        return {names[n]: keyed.pick(np.flatnonzero(indices == n)) for n in sorted(set(indices.tolist()))}

    def tagged(self, keyed: Mapping[str, Keyed]) -> tuple[list[tuple[DataFile, Keyed]], dict[str, Keyed]]:
        """For each file group the rows whose keys it holds, and by partition the rows whose keys nobody holds."""
        known: list[tuple[DataFile, Keyed]] = []
        new: dict[str, Keyed] = {}
        for partition, rows in keyed.items():
            tags = tag(rows.keys, self.tx.snapshot().in_partition(partition), self.storage)
            known += [(h.file, rows.pick(h.positions)) for h in tags.holdings]
            if len(tags.missing):
                new[partition] = rows.pick(tags.missing)
        return known, new

    def new_files(self, parts: Mapping[str, Keyed]) -> list[WriteStat]:
        stats: list[WriteStat] = []
        for partition, keyed in parts.items():
            stats += write_new_files(
                self.context, partition, [keyed.rows], self.task(), storage=self.storage, runtime=self.runtime
            )
        return stats

    def rewritten(self, file: DataFile, *, upserts: Keyed | None = None, doomed: Doomed | None = None) -> WriteStat:
        return rewrite_group(
            self.context, file, self.task(), upserts=upserts, doomed=doomed, storage=self.storage, runtime=self.runtime
        )

    def without(self, groups: Sequence[DataFile], doomed: Doomed) -> list[WriteStat]:
        return [self.rewritten(file, doomed=doomed) for file in groups]


def _mask(rows: pa.Table, condition: pc.Expression) -> pa.ChunkedArray:
    """Which rows satisfy the condition, as a column."""
    numbered = rows.append_column("__row", pa.array(np.arange(rows.num_rows)))
    kept = np.asarray(numbered.filter(condition).column("__row"))
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[kept] = True
    return pa.chunked_array([pa.array(mask)])
