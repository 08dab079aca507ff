"""File slices that have log files, and their rows: those of the base file with the changes of the logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.storage import Storage
from lakelock.table.base_files.reader import BaseFile
from lakelock.table.log_files.changes import Change, Changes, comparable
from lakelock.table.log_files.names import LogFile
from lakelock.table.schema import RECORD_KEY, TableSchema
from lakelock.table.snapshot import DataFile


class LoggedSlice(NamedTuple):
    """A file slice with log files, in the order in which they are read; a file group may have no base file yet.

    `instants` are those of the visible commits that wrote these files: a file may also have blocks of others.
    """

    partition: str
    file_id: str
    base: DataFile | None
    logs: tuple[LogFile, ...]
    instants: frozenset[str]

    @property
    def as_file(self) -> DataFile:
        """A file in its place, for whoever chooses files by their partitions."""
        return self.base or DataFile(self.partition, self.file_id, "", self.logs[0].instant)


@dataclass(frozen=True)
class MergedRows:
    """Reads such slices; a task gets it. `ordering`: the column by which versions of a row are ordered, None for commit time.

    A task has the rows of one slice's log files in memory, and of its base file a batch at a time.
    """

    columns: pa.Schema
    ordering: pa.Field | None

    def read(self, slice_: LoggedSlice, storage: Storage) -> Iterator[pa.Table]:
        """The rows of a slice with these columns."""
        name = None if self.ordering is None else self.ordering.name
        changes = Changes.of(slice_.logs, slice_.instants, self._needed, name, storage)
        rows, unmatched = changes.rows, dict(changes.last)
        if slice_.base is not None:
            with BaseFile(storage.open_input(slice_.base.key), slice_.base.key) as base:
                for batch in base.batches(TableSchema(self._needed)):
                    yield self._merged(batch, changes, rows, unmatched).select(self.columns.names)
        added = [change.row for change in unmatched.values() if change.row is not None]
        yield rows.take(pa.array(added, pa.int64())).select(self.columns.names)

    @property
    def _needed(self) -> pa.Schema:
        extra = [field for field in (pa.field(RECORD_KEY, pa.string()), self.ordering) if field is not None]
        return pa.schema([*self.columns, *(field for field in extra if field.name not in self.columns.names)])

    def _merged(self, batch: pa.Table, changes: Changes, rows: pa.Table, unmatched: dict[str, Change]) -> pa.Table:
        """A batch of the base file after the changes to its keys, which are taken out of `unmatched`."""
        if not unmatched:
            return batch
        keys = batch.column(RECORD_KEY)
        touched = np.flatnonzero(np.asarray(pc.is_in(keys, value_set=pa.array(list(unmatched), pa.string()))))
        if not len(touched):
            return batch
        here = pa.array(touched)
        orders = comparable(batch.column(changes.ordering).take(here)) if changes.ordering is not None else [None] * len(here)
        kept, instead = np.ones(batch.num_rows, np.bool_), []
        for place, key, order in zip(touched.tolist(), keys.take(here).to_pylist(), orders, strict=True):
            change = unmatched.pop(key, None)
            if change is None:  # a base file may hold a key twice: a change is to its first row, as in Java
                continue
            if changes.counts(change, Change(place, order)):
                kept[place] = False
                instead += [change.row] if change.row is not None else []
        return pa.concat_tables([batch.filter(pa.array(kept)), rows.take(pa.array(instead, pa.int64()))])
