"""Reads of the engine without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.conflict import WHOLE_TABLE
from lakelock.errors import InputError, StorageError
from lakelock.occ.conflicts.reads import ReadKind
from lakelock.storage import Storage
from lakelock.table.partitions import PartitionValues
from lakelock.table.properties import TableProperties
from lakelock.table.pruning import StatisticsOf
from lakelock.table.rewriting import ArrowKernels, Condition, Kernels, KeyedRows
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.spark_conditions import as_in_spark

# As pyarrow shows it; what stands in quotation marks is a value.
_RANDOM = re.compile(r'"(?:[^"\\]|\\.)*"|\b(random)\((?=[{)])')


def require_rows(rows: object, kernels: Kernels) -> None:
    """`InputError` for rows that are no Arrow table."""
    if isinstance(kernels, ArrowKernels) and not isinstance(rows, pa.Table):
        raise InputError(
            f"rows are given as {type(rows).__name__}, and not as a pyarrow.Table",
            hint="make one: pa.Table.from_pylist(rows), pa.Table.from_pandas(frame) or pa.Table.from_batches([batch])",
        )


def require_condition(condition: Condition | None, schema: TableSchema, kernels: Kernels, *, optional: bool = True) -> None:
    """`InputError` for what is no condition on rows of the table: an unknown column, types that do not compare, no boolean."""
    if not isinstance(kernels, ArrowKernels) or (condition is None and optional):
        return
    if not isinstance(condition, pc.Expression):
        raise InputError(
            f"a condition is a pyarrow expression, and {condition!r} is of the type {type(condition).__name__}",
            hint='write it as pc.field("id") == 1, with pyarrow.compute as pc',
        )
    try:
        schema.arrow.empty_table().filter(condition)
    except (pa.ArrowException, TypeError, KeyError) as error:
        raise InputError(
            f"{condition} is no condition on the rows of this table: {str(error).splitlines()[0]}",
            hint=f"the columns are {', '.join(f'{field.name} ({field.type})' for field in list(schema.arrow)[:20])}",
        ) from error
    try:
        as_in_spark(condition, schema.arrow)
    except pa.ArrowNotImplementedError as error:
        raise InputError(
            f"{condition} cannot be told by Spark's rule for floating-point numbers: {str(error).splitlines()[0]}",
            hint='name columns by their names: pc.field("id"), or pc.field("place", "zip") for a field of a struct',
        ) from error


def require_certain(condition: Condition | None) -> None:
    """`InputError` for a condition with `random`: a write asks it several times, and the answers must agree.

    A function that a user has registered with Arrow is trusted to answer the same of the same row.
    """
    if isinstance(condition, pc.Expression) and any(found[1] for found in _RANDOM.finditer(str(condition))):
        raise InputError(
            f"the condition {condition} may give a different answer each time it is evaluated for a row",
            hint="choose the rows first, and delete them by key: engine.delete(engine.read().filter(...))",
        )


class KeysRead:
    """Record keys that were looked up, by partition: found or not, nobody may have written them meanwhile."""

    kind = ReadKind.KEYS

    def __init__(self, storage: Storage, kernels: Kernels, keyed: Mapping[str, KeyedRows], description: str) -> None:
        self._storage, self._kernels, self._keyed, self.description = storage, kernels, keyed, description

    def concerns(self, partition: str) -> bool:
        return partition in self._keyed

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        for file in files:
            try:
                found = self._kernels.first_held(self._keyed[file.partition], file, self._storage)
            except StorageError:
                return f"{file.key} is gone and cannot be looked into"
            if found is not None:
                return f"{file.partition or 'the table'}: {found}"
        return None


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
        for file in files:
            try:
                found = self._kernels.example(file, self._schema, self._condition, self._storage)
            except StorageError:
                return f"{file.key} is gone and cannot be looked into"
            if found is not None:
                return f"{file.partition or 'the table'}: {found}"
        return None
