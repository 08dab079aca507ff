"""Reads of the engine without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.conflict import WHOLE_TABLE
from lakelock.errors import InputError, StorageError
from lakelock.occ.conflicts.reads import ReadKind
from lakelock.storage import Storage
from lakelock.table.pruning.files import StatisticsOf
from lakelock.table.rewriting.kernels import ARROW, Condition, Kernels, KeyedRows
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

# As pyarrow shows it; what stands in quotation marks is a value.
_RANDOM = re.compile(r'"(?:[^"\\]|\\.)*"|\b(random)\((?=[{)])')


def require_rows(rows: object, kernels: Kernels) -> None:
    """`InputError` for rows that are no Arrow table."""
    if kernels is ARROW and not isinstance(rows, pa.Table):
        raise InputError(
            f"rows are given as {type(rows).__name__}, and not as a pyarrow.Table",
            hint="make one: pa.Table.from_pylist(rows), pa.Table.from_pandas(frame) or pa.Table.from_batches([batch])",
        )


def require_condition(condition: Condition | None, schema: TableSchema, kernels: Kernels, *, optional: bool = True) -> None:
    """`InputError` for what is no condition on rows of the table: an unknown column, types that do not compare, no boolean."""
    if kernels is not ARROW or (condition is None and optional):
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

    def __init__(self, storage: Storage, kernels: Kernels, schema: TableSchema, condition: Condition | None) -> None:
        self._storage, self._kernels, self._schema, self._condition = storage, kernels, schema, condition

    @property
    def description(self) -> str:
        return WHOLE_TABLE if self._condition is None else str(self._condition)

    def concerns(self, partition: str) -> bool:
        return True

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        for file in files:
            try:
                found = self._kernels.example(file, self._schema, self._condition, self._storage)
            except StorageError:
                return f"{file.key} is gone and cannot be looked into"
            if found is not None:
                return f"{file.partition or 'the table'}: {found}"
        return None
