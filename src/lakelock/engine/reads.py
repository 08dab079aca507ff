"""What a transaction has read, by keys or by a condition, and how it is compared with what others commit meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from lakelock.conflict import WHOLE_TABLE
from lakelock.errors import StorageError
from lakelock.occ.footprint import ReadKind
from lakelock.storage import Storage
from lakelock.table.merged_slices import Change
from lakelock.table.partitions import PartitionValues
from lakelock.table.properties import TableProperties
from lakelock.table.pruning import StatisticsOf
from lakelock.table.rewriting import Condition, Kernels, KeyedRows
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot


def first_found(asked: Iterable[tuple[DataFile, Callable[[Storage], str | None]]], storage: Storage) -> str | None:
    """The first answer about one of these files that is not None, as text for people. A file that is gone counts as one."""
    for file, look in asked:
        where = file.partition or "the table"
        try:
            found = look(storage)
        except StorageError:
            return f"{where}: a file of the file group {file.file_id} is gone and cannot be looked into"
        if found is not None:
            return f"{where}: {found}"
    return None


class KeysRead:
    """Record keys that were looked up, by partition: found or not, no other may have written them meanwhile."""

    kind = ReadKind.KEYS

    def __init__(self, storage: Storage, kernels: Kernels, keyed: Mapping[str, KeyedRows], description: str) -> None:
        self._storage, self._kernels, self._keyed, self.description = storage, kernels, keyed, description

    def concerns(self, partition: str) -> bool:
        return partition in self._keyed

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        asked = ((file, partial(self._kernels.first_held, self._keyed[file.partition], file)) for file in files)
        return first_found(asked, self._storage)

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        asked = ((c.made, partial(self._kernels.first_changed, self._keyed[c.made.partition], c)) for c in changes)
        return first_found(asked, self._storage)


class RowsRead:
    """Rows selected by a condition; all rows without one."""

    kind = ReadKind.ROWS

    def __init__(
        self,
        storage: Storage,
        kernels: Kernels,
        schema: TableSchema,
        condition: Condition | None,
        properties: TableProperties,
    ) -> None:
        self._storage, self._kernels, self._schema, self._condition = storage, kernels, schema, condition
        self._values = PartitionValues.of(properties, schema.arrow)
        self._concerns: dict[str, bool] = {}

    @property
    def description(self) -> str:
        return WHOLE_TABLE if self._condition is None else str(self._condition)

    def files_of(self, snapshot: Snapshot) -> Sequence[DataFile]:
        """The files of a snapshot that may hold such a row. Of partitions that are ruled out nothing is read."""
        if self._condition is None:
            return snapshot.files
        self._learn(snapshot.partitions)
        partitions = [partition for partition in snapshot.partitions if self._concerns[partition]]
        there = [file for partition in partitions for file in snapshot.in_partition(partition)]
        return self.candidates(there, snapshot.stats_of)

    def concerns(self, partition: str) -> bool:
        self._learn([partition])
        return self._concerns[partition]

    def _learn(self, partitions: Iterable[str]) -> None:
        new = [partition for partition in partitions if partition not in self._concerns]
        asked = [DataFile(partition, "", "", "") for partition in new]
        found = {file.partition for file in self.candidates(asked, lambda file: None)} if asked else set()
        self._concerns.update((partition, partition in found) for partition in new)

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        if self._condition is None or not files:
            return files
        return self._kernels.possible(self._condition, files, self._schema, self._values, statistics)

    def matches(self, files: Sequence[DataFile]) -> str | None:
        asked = ((file, partial(self._kernels.example, file, self._schema, self._condition)) for file in files)
        return first_found(asked, self._storage)

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        asked = ((c.made, partial(self._kernels.changed_example, c, self._schema, self._condition)) for c in changes)
        return first_found(asked, self._storage)
