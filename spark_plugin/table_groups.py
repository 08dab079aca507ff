"""The groups of a `LakeTable`: `table.columns`, `table.upkeep`, `table.locks`; and the names that these calls had before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from pyspark.sql import Column, DataFrame

from lakelock.checked_calls import checked_calls
from lakelock.occ.clean import Cleaned
from lakelock.occ.request import Targets
from lakelock.occ.restore import Repaired
from lakelock.occ.results import WriteResult
from lakelock.occ.savepoints import Savepoint
from lakelock.spark_plugin.arguments import delta_arguments
from lakelock.spark_plugin.table_info import Locks
from lakelock.spark_plugin.table_upkeep import OptimizeBuilder, Upkeep
from lakelock.spark_plugin.table_writes import Columns, Types
from lakelock.spark_plugin.transactions import TableTransactions


class TableGroups(TableTransactions):
    """The groups of a `LakeTable`."""

    _rows: Callable[..., DataFrame]

    @property
    def columns(self) -> Columns:
        """Changes columns: `add`, `widen`, `relax`, `reorder`, `rename` and `drop`."""
        return Columns(self._spark, self._coordinator, self._write)

    @property
    def upkeep(self) -> Upkeep:
        """Keeps the table small: `table.upkeep()` does what is due; `clean`, `optimize`, `restore`, savepoints, `repair`."""
        return Upkeep(self._spark, self._coordinator, self._attempt)

    @property
    def locks(self) -> Locks:
        """The table's locks: `table.locks()` lists them; `reading`, `locked`, `explain`."""
        return Locks(self._spark, self._coordinator, self._rows)


@checked_calls
class DeltasUpkeep(TableGroups):
    """Upkeep by the names that users of Delta type."""

    def optimize(
        self,
        where: str | Column | None = None,
        *,
        partition: Targets = None,
        sort_by: str | Sequence[str] = (),
        small_file_bytes: int | None = None,
        target_file_bytes: int | None = None,
        tag: str = "",
    ) -> OptimizeBuilder:
        """Describe the joining of small files; see `table.upkeep.optimize`."""
        return self.upkeep.optimize(
            where, partition=partition, sort_by=sort_by, small_file_bytes=small_file_bytes,
            target_file_bytes=target_file_bytes, tag=tag,
        )  # fmt: skip

    @delta_arguments(retentionHours="keep_hours")
    def vacuum(
        self,
        keep_hours: float | None = None,
        *,
        keep_commits: int | None = None,
        keep_versions: int | None = None,
        dry_run: bool = False,
    ) -> Cleaned:
        """Delete old files; see `table.upkeep.clean`."""
        return self.upkeep.clean(keep_hours, keep_commits=keep_commits, keep_versions=keep_versions, dry_run=dry_run)

    def restore(self, as_of: str | datetime, *, tag: str = "") -> WriteResult:
        """Restore the table as of a savepoint, an instant or a time; see `table.upkeep.restore`."""
        return self.upkeep.restore(as_of, tag=tag)


@checked_calls
class MovedNames(TableGroups):
    """Names that calls had before they were in groups. They go with the release after the next."""

    def add_columns(self, columns: Types, *, tag: str = "") -> WriteResult:
        return self.columns.add(columns, tag=tag)

    def widen_columns(self, columns: Types, *, tag: str = "") -> WriteResult:
        return self.columns.widen(columns, tag=tag)

    def relax_columns(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        return self.columns.relax(columns, tag=tag)

    def reorder_columns(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        return self.columns.reorder(columns, tag=tag)

    def rename_columns(self, columns: Mapping[str, str], *, tag: str = "") -> WriteResult:
        return self.columns.rename(columns, tag=tag)

    def drop_columns(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        return self.columns.drop(columns, tag=tag)

    def savepoint(self, name: str, *, as_of: str | datetime | None = None) -> Savepoint:
        return self.upkeep.savepoint(name, as_of=as_of)

    def savepoints(self) -> list[Savepoint]:
        return self.upkeep.savepoints()

    def delete_savepoint(self, name: str) -> Savepoint:
        return self.upkeep.delete_savepoint(name)

    def repair(self, *, tag: str = "") -> Repaired:
        return self.upkeep.repair(tag=tag)

    def reading(self, *, partition: Targets = None, include_meta: bool = False) -> AbstractContextManager[DataFrame]:
        return self.locks.reading(partition=partition, include_meta=include_meta)

    def locked(self, operation: str = "INSERT", *, partition: Targets = None) -> AbstractContextManager[None]:
        return self.locks.locked(operation, partition=partition)

    def explain_locks(self, operation: str, *, partition: Targets = None) -> DataFrame:
        return self.locks.explain(operation, partition=partition)
