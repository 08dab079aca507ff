"""What a write would change in a file slice, found by a rewrite that writes no file: whole rows and keys, for a log file."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.settings import WriteSettings
from lakelock.table.base_files import Stamp
from lakelock.table.log_writing import LogChanges
from lakelock.table.record_keys import Keyed
from lakelock.table.schema import COMMIT_TIME, RECORD_KEY, TableSchema


@dataclass(frozen=True)
class Found:
    """What changes; `changes` is None if nothing does."""

    changes: LogChanges | None


class DoesNotFit(Exception):
    """The change is not one for a log file."""


class Collector:
    """Takes the place of the writer of a base file, and keeps the rows that have its instant.

    `most_rows`: with more changes, or with a new key, which belongs into a base file, `DoesNotFit` ends the rewrite.
    """

    def __init__(self, schema: TableSchema, stamp: Stamp, settings: WriteSettings, most_rows: int) -> None:
        self.stamp, self.rows, self.batch_rows = stamp, 0, settings.batch_rows
        self._schema, self._left = schema, most_rows
        self._keys: list[pa.Array] = []
        self._changed: list[pa.Table] = []
        self._deleted: list[pa.Array] = []

    def add_stored(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self._keys += rows.column(RECORD_KEY).chunks
        changed = rows.filter(pc.equal(rows.column(COMMIT_TIME).cast(pa.string()), self.stamp.instant))
        self._count(changed.num_rows)
        self._changed.append(changed)

    def add_new(self, rows: pa.Table, keys: pa.ChunkedArray) -> None:
        raise DoesNotFit

    def noting(self, delete_mask: Any) -> Any:
        """The same mask, whose rows are noted; it may be one that goes through a file once."""
        mine = copy.copy(delete_mask)

        def noted(batch: pa.Table) -> Any:
            mask = pc.fill_null(mine(batch), False)
            gone = batch.column(RECORD_KEY).filter(mask)
            self._count(len(gone))
            self._deleted += gone.chunks
            return mask

        return noted

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise DoesNotFit

    def found(self) -> Found:
        """What changes. `DoesNotFit` for a key that stands twice: readers would apply a log file to one of its rows."""
        deleted = pa.chunked_array(self._deleted, pa.string())
        rows = pa.concat_tables(self._changed) if self._changed else None
        changed = pa.chunked_array([] if rows is None else rows.column(RECORD_KEY).chunks, pa.string())
        named = pa.chunked_array([*changed.chunks, *deleted.chunks], pa.string())
        if not len(named):
            return Found(None)
        stored = pa.chunked_array([*self._keys, *deleted.chunks], pa.string())
        if pc.sum(pc.is_in(stored, value_set=named.combine_chunks())).as_py() != pc.count_distinct(named).as_py():
            raise DoesNotFit
        upserts = None
        if rows is not None and rows.num_rows:
            upserts = Keyed(rows.select(self._schema.names), changed)
        return Found(LogChanges(upserts, deleted.to_pylist()))
