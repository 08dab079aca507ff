"""What is done to rows, in memory and in base files. It knows nothing of transactions, and they know nothing else of rows.

That makes rows a seam: markers, claims, reads and commits are the same whatever rows are made of, so the simulator can run
them on rows that cost next to nothing to encode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.settings import MissingColumns, WriteSettings
from lakelock.storage import Storage
from lakelock.table.base_files.reader import BaseFile
from lakelock.table.base_files.restamp import restamp
from lakelock.table.base_files.writer import BaseFileWriter, Stamp, Written
from lakelock.table.buckets import BucketIndex
from lakelock.table.columns.fields import spelled
from lakelock.table.columns.fitting import conform
from lakelock.table.index.bucket_hash import by_bucket
from lakelock.table.index.search import tag
from lakelock.table.keys.keyed import Keyed, dedupe
from lakelock.table.partitioning.paths import partition_paths
from lakelock.table.properties import TableProperties
from lakelock.table.pruning.files import StatisticsOf, files_of_expression
from lakelock.table.pruning.partition_values import PartitionValues
from lakelock.table.rewriting.merge import BATCH_BYTES, Counts, DeleteMask, Placed, keys_among, rewrite
from lakelock.table.rewriting.spark_conditions import as_in_spark
from lakelock.table.schema import TableSchema, check_write, columns_of_upserts, require_columns
from lakelock.table.snapshot import DataFile
from lakelock.table.taking import rows_within, taken

Rows = Any
"""Rows in memory: to Arrow a `pyarrow.Table`."""

StoredRows = Any
"""Rows as a base file holds them, with the meta columns that they keep when they are moved: to Arrow a `pyarrow.Table`."""

KeyedRows = Any
"""Rows with their record keys: to Arrow a `Keyed`."""

Condition = Any
"""Says which rows are meant; its text is for people. To Arrow a `pyarrow.compute.Expression`."""


_ROW = "number of the row"
"""With spaces, as no column of a table has."""


def selected(rows: pa.Table, condition: pc.Expression) -> pa.Table:
    """The rows that satisfy a condition of Arrow, in which floating-point numbers compare as in Spark."""
    return rows.filter(as_in_spark(condition, rows.schema))


def _mask(rows: pa.Table, condition: pc.Expression) -> pa.ChunkedArray:
    numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    found = np.zeros(rows.num_rows, np.bool_)
    found[np.asarray(selected(numbered, condition).column(_ROW))] = True
    return pa.chunked_array([pa.array(found)])


class NewFile(Protocol):
    """A base file that is being written."""

    @property
    def rows(self) -> int: ...

    def add_new(self, rows: Rows, keys: Any) -> None: ...

    def add_stored(self, rows: StoredRows) -> None: ...

    def close(self) -> Written: ...


class Kernels(Protocol):
    """All that touches rows. Each file in question is opened once, in the order in which the files are given."""

    def fitted(self, rows: Rows, schema: TableSchema, *, merge: bool) -> tuple[TableSchema, Rows]:
        """The schema that a write of these rows gives the table, and the rows in it; `SchemaError` if they do not fit."""
        ...

    def fitted_upserts(
        self, rows: Rows, schema: TableSchema, properties: TableProperties, *, merge: bool, missing: MissingColumns
    ) -> tuple[TableSchema, Rows]:
        """The same for rows of which some replace stored ones; with "keep" they lack afterwards what they lack now."""
        ...

    def fitted_keys(self, rows: Rows, schema: TableSchema, properties: TableProperties) -> Rows:
        """The key and partition columns in the table's types; `SchemaError` if one is missing, or does not fit."""
        ...

    def keyed(self, rows: Rows, properties: TableProperties) -> KeyedRows: ...

    def batches(self, rows: Rows) -> Iterator[Rows]:
        """The rows in pieces that take no more memory than a batch may."""
        ...

    def by_partition(self, rows: Rows, properties: TableProperties) -> Mapping[str, KeyedRows]:
        """The rows by partition path."""
        ...

    def by_bucket(self, keyed: KeyedRows, index: BucketIndex, properties: TableProperties) -> Mapping[int, KeyedRows]:
        """The rows of one partition by bucket."""
        ...

    def dedupe(self, keyed: KeyedRows, ordering_field: str | None, *, take_any: bool) -> KeyedRows:
        """One row per key; see `lakelock.table.keys.keyed.dedupe`."""
        ...

    def tag(
        self, keyed: KeyedRows, files: Sequence[DataFile], storage: Storage
    ) -> tuple[list[tuple[DataFile, KeyedRows]], KeyedRows]:
        """For each file that holds some of the keys the rows with these keys, and the rows whose keys no file holds."""
        ...

    def without(self, keyed: KeyedRows, others: Sequence[KeyedRows]) -> KeyedRows:
        """The rows whose keys none of the others has, in their order."""
        ...

    def first_held(self, keyed: KeyedRows, file: DataFile, storage: Storage) -> str | None:
        """The first of these keys that a file holds; None if it holds none."""
        ...

    def among(self, keyed: KeyedRows) -> DeleteMask:
        """The rows with these keys, for a rewrite to leave out."""
        ...

    def satisfying(self, condition: Condition) -> DeleteMask:
        """The rows that satisfy a condition, for a rewrite to leave out."""
        ...

    def possible(
        self, condition: Condition, files: Sequence[DataFile], schema: TableSchema, values: PartitionValues,
        statistics: StatisticsOf,
    ) -> Sequence[DataFile]:  # fmt: skip
        """The files that may hold a row which satisfies the condition, by their partitions and what is recorded of them."""
        ...

    def example(self, file: DataFile, schema: TableSchema, condition: Condition | None, storage: Storage) -> str | None:
        """The first row of a file that satisfies the condition, as text for people; None if there is none."""
        ...

    def read(self, files: Iterable[DataFile], schema: TableSchema, condition: Condition | None, storage: Storage) -> Rows:
        """The rows of these files that satisfy the condition, in the table's columns."""
        ...

    def stored(self, files: Sequence[DataFile], schema: TableSchema, storage: Storage) -> Iterator[StoredRows]:
        """All rows of these files, in batches, in the table's columns; columns that a file lacks are null."""
        ...

    def in_order(self, batches: Iterable[StoredRows], columns: Sequence[str]) -> StoredRows:
        """The rows of all batches at once, sorted by these columns, nulls last."""
        ...

    def new_file(self, output: IO[bytes], schema: TableSchema, stamp: Stamp, settings: WriteSettings) -> NewFile: ...

    def rewrite(
        self, source: IO[bytes], name: str, file: Any, schema: TableSchema, *,
        upserts: KeyedRows | None, delete_mask: DeleteMask | None, added: KeyedRows | None, ordering_field: str | None,
    ) -> Counts:  # fmt: skip
        """Fill a `new_file` with the rows of the base file `name`, changed; see `lakelock.table.rewriting.merge.rewrite`."""
        ...

    def restamp(self, source: IO[bytes], output: IO[bytes], old: Stamp, new: Stamp) -> None:
        """Copy a base file for another instant; `CannotRestamp` if it has to be written again."""
        ...


class ArrowKernels:
    """Rows are Arrow tables, and base files are Parquet."""

    def fitted(self, rows: pa.Table, schema: TableSchema, *, merge: bool) -> tuple[TableSchema, pa.Table]:
        wanted = check_write(schema, rows.schema, merge)
        return wanted, conform(rows, wanted.arrow)

    def fitted_upserts(
        self, rows: pa.Table, schema: TableSchema, properties: TableProperties, *, merge: bool, missing: MissingColumns
    ) -> tuple[TableSchema, pa.Table]:
        require_columns(rows.column_names, properties.needed_columns)
        wanted = check_write(schema, rows.schema, merge, missing)
        return wanted, conform(rows, columns_of_upserts(wanted, rows.schema, missing).arrow)

    def fitted_keys(self, rows: pa.Table, schema: TableSchema, properties: TableProperties) -> pa.Table:
        needed = [(name, role) for name, role in properties.needed_columns if role in ("key", "partition")]
        require_columns(rows.column_names, needed)
        names = dict.fromkeys(name for name, _ in needed)
        chosen = rows.select([spelled(name, rows.column_names) for name in names]).rename_columns([*names])
        columns = TableSchema(pa.schema([field for field in schema.arrow if field.name in names]))
        return self.fitted(chosen, columns, merge=False)[1]

    def keyed(self, rows: pa.Table, properties: TableProperties) -> Keyed:
        return Keyed.of(rows, properties)

    def batches(self, rows: pa.Table) -> Iterator[pa.Table]:
        most = rows_within(rows, BATCH_BYTES)
        return (rows.slice(start, most) for start in range(0, rows.num_rows, most))

    def by_partition(self, rows: pa.Table, properties: TableProperties) -> dict[str, Keyed]:
        if not rows.num_rows:
            return {}
        paths = partition_paths(rows, properties)
        keyed, indices, names = Keyed.of(rows, properties), np.asarray(paths.indices), paths.dictionary.to_pylist()
        return {names[n]: keyed.pick(np.flatnonzero(indices == n)) for n in sorted(set(indices.tolist()))}

    def by_bucket(self, keyed: Keyed, index: BucketIndex, properties: TableProperties) -> dict[int, Keyed]:
        return by_bucket(keyed, index, properties.record_keys)

    def dedupe(self, keyed: Keyed, ordering_field: str | None, *, take_any: bool) -> Keyed:
        return dedupe(keyed, ordering_field, take_any=take_any)

    def tag(self, keyed: Keyed, files: Sequence[DataFile], storage: Storage) -> tuple[list[tuple[DataFile, Keyed]], Keyed]:
        tags = tag(keyed.keys, files, storage)
        return [(h.file, keyed.pick(h.positions)) for h in tags.holdings], keyed.pick(tags.missing)

    def without(self, keyed: Keyed, others: Sequence[Keyed]) -> Keyed:
        return keyed.without(others)

    def first_held(self, keyed: Keyed, file: DataFile, storage: Storage) -> str | None:
        for holding in tag(keyed.keys, [file], storage).holdings:
            return str(keyed.keys[int(holding.positions[0])].as_py())
        return None

    def among(self, keyed: Keyed) -> DeleteMask:
        return keys_among(keyed.keys)

    def satisfying(self, condition: pc.Expression) -> DeleteMask:
        return lambda rows: _mask(rows, condition)

    def possible(
        self, condition: pc.Expression, files: Sequence[DataFile], schema: TableSchema, values: PartitionValues,
        statistics: StatisticsOf,
    ) -> Sequence[DataFile]:  # fmt: skip
        try:
            condition = as_in_spark(condition, schema.arrow)
        except (pa.ArrowException, KeyError):
            return files  # who evaluates it tells what is wrong with it
        return files_of_expression(condition, files, schema.arrow, values, statistics)

    def example(self, file: DataFile, schema: TableSchema, condition: pc.Expression | None, storage: Storage) -> str | None:
        with BaseFile(storage.open_input(file.key), file.key) as base:
            for batch in base.batches(schema):
                found = batch if condition is None else selected(batch, condition)
                if found.num_rows:
                    return str(found.slice(0, 1).to_pylist()[0])
        return None

    def read(
        self, files: Iterable[DataFile], schema: TableSchema, condition: pc.Expression | None, storage: Storage
    ) -> pa.Table:
        found = [schema.arrow.empty_table()]
        for file in files:
            with BaseFile(storage.open_input(file.key), file.key) as base:
                found += [batch if condition is None else selected(batch, condition) for batch in base.batches(schema)]
        return pa.concat_tables(found)

    def stored(self, files: Sequence[DataFile], schema: TableSchema, storage: Storage) -> Iterator[pa.Table]:
        for file in files:
            with BaseFile(storage.open_input(file.key), file.key) as base:
                yield from base.stamped_batches(schema, base.batch_rows_within(BATCH_BYTES))

    def in_order(self, batches: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
        rows = pa.concat_tables(batches)
        return taken(rows, np.asarray(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns])))

    def new_file(self, output: IO[bytes], schema: TableSchema, stamp: Stamp, settings: WriteSettings) -> BaseFileWriter:
        return BaseFileWriter(output, schema, stamp, settings)

    def rewrite(
        self, source: IO[bytes], name: str, file: BaseFileWriter, schema: TableSchema, *,
        upserts: Keyed | Placed | None, delete_mask: DeleteMask | None, added: Keyed | None, ordering_field: str | None,
    ) -> Counts:  # fmt: skip
        with BaseFile(source, name) as stored:
            return rewrite(
                stored, file, schema, upserts=upserts, delete_mask=delete_mask, added=added, ordering_field=ordering_field
            )

    def restamp(self, source: IO[bytes], output: IO[bytes], old: Stamp, new: Stamp) -> None:
        restamp(source, output, old, new)


ARROW = ArrowKernels()
