"""Reads of the Arrow engine: footers first, then the rows of the files in question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import StorageError
from lakelock.occ.reads import ReadKind
from lakelock.storage import Storage
from lakelock.table.base_reader import BaseFile
from lakelock.table.index import tag
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile


class KeysRead:
    """Record keys that were looked up, by partition: found or not, nobody may have written them meanwhile."""

    kind = ReadKind.KEYS

    def __init__(self, storage: Storage, keys: Mapping[str, pa.ChunkedArray], description: str) -> None:
        self._storage, self._keys, self.description = storage, keys, description

    def concerns(self, partition: str) -> bool:
        return partition in self._keys

    def matches(self, files: Sequence[DataFile]) -> str | None:
        for file in files:
            keys = self._keys[file.partition]
            try:
                holdings = tag(keys, [file], self._storage).holdings
            except StorageError:
                return f"{file.key} is gone and cannot be looked into"
            if holdings:
                first = int(holdings[0].positions[0])
                return f"{file.partition or 'the table'}: {keys[first].as_py()}"
        return None


class RowsRead:
    """Rows selected by a condition; all rows without one."""

    kind = ReadKind.ROWS

    def __init__(self, storage: Storage, schema: TableSchema, condition: pc.Expression | None) -> None:
        self._storage, self._schema, self._condition = storage, schema, condition

    @property
    def description(self) -> str:
        return "the whole table" if self._condition is None else str(self._condition)

    def concerns(self, partition: str) -> bool:
        return True

    def matches(self, files: Sequence[DataFile]) -> str | None:
        for file in files:
            try:
                with BaseFile(self._storage.open_input(file.key), file.key) as base:
                    for batch in base.batches(self._schema):
                        found = batch if self._condition is None else batch.filter(self._condition)
                        if found.num_rows:
                            return f"{file.partition or 'the table'}: {found.slice(0, 1).to_pylist()[0]}"
            except StorageError:
                return f"{file.key} is gone and cannot be looked into"
        return None
