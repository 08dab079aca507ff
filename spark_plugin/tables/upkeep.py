"""The upkeep of a `LakeTable`: cleaning old files, joining small ones, savepoints, and undoing mistakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession

from lakelock.checked_calls import checked, checked_calls
from lakelock.errors import InputError
from lakelock.occ.clean import Cleaned, asked_retention
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.optimize import Join, Optimized, optimize
from lakelock.occ.restore import Copy, Repaired, moment_of, repair, restore
from lakelock.occ.results import WriteResult
from lakelock.occ.savepoints import Savepoint
from lakelock.occ.targets import Targets, resources_of, within
from lakelock.occ.transaction import Transaction
from lakelock.occ.upkeep import Upkept
from lakelock.spark_plugin.arguments import instant_of, names
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.peers.methods import delta_arguments
from lakelock.spark_plugin.session.lost_spark import needs_spark, outcome_told, require_running
from lakelock.spark_plugin.tables.optimizing import OptimizeBuilder, OptimizeSpec
from lakelock.spark_plugin.writing.attempt import Attempt
from lakelock.spark_plugin.writing.services.joining import join_files
from lakelock.spark_plugin.writing.services.restoring import copy_slices
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.partitions import partition_values

LOOK_EACH = 10
"""One in this many checks of a running job asks the log whether the transaction is still wanted."""


@checked_calls
class Upkeep:
    """`table.upkeep`: what keeps a `LakeTable` small and in shape. Live writers and readers are not disturbed."""

    def __init__(self, spark: SparkSession, coordinator: Coordinator, attempt: Callable[[Transaction], Attempt]) -> None:
        self._spark, self._coordinator, self._attempt = spark, coordinator, attempt

    @checked
    def __call__(self, *, dry_run: bool = False) -> Upkept:
        """Finish dead writers, delete old files, archive old instants and collect old decisions.

        Begins new work for at most `upkeep.budget_s`; the next run does the rest. With `dry_run` nothing is changed, and
        the result says what would be done. The result's `problems` list what could not be done.
        """
        return self._coordinator.upkeep(dry_run=dry_run)

    @delta_arguments(retentionHours="keep_hours")
    def clean(
        self,
        keep_hours: float | None = None,
        *,
        keep_commits: int | None = None,
        keep_versions: int | None = None,
        dry_run: bool = False,
    ) -> Cleaned:
        """Delete the old files that the settings `clean.*` do not keep, for at most `upkeep.budget_s`.

        Files that running transactions, readers (`clean.readers_s`) or savepoints need stay, whatever the settings say. One of
        `keep_hours`, `keep_commits` and `keep_versions` is kept instead of what the settings say: `InputError` before any
        work, which names who needs them, if not all the other files can go.
        """
        asked = asked_retention(
            self._coordinator.table.settings.clean,
            keep_hours=keep_hours,
            keep_commits=keep_commits,
            keep_versions=keep_versions,
        )
        return self._coordinator.clean(dry_run=dry_run, asked=asked)

    def savepoint(self, name: str, *, as_of: str | datetime | None = None) -> Savepoint:
        """Keep the table as of its newest commit, or of the commit `as_of`, readable until the savepoint is deleted.

        `InputError` when there is no such commit, its files were cleaned, or the name or the commit already has a savepoint.
        """
        zone = self._coordinator.properties.timezone
        return self._coordinator.savepoint(name, None if as_of is None else instant_of(as_of, zone))

    def savepoints(self) -> list[Savepoint]:
        """The savepoints, oldest commit first."""
        return self._coordinator.savepoints()

    def delete_savepoint(self, name: str) -> Savepoint:
        """Delete a savepoint, given by name or instant; cleaning may then delete its files. `InputError` if there is none."""
        return self._coordinator.delete_savepoint(name)

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
        """Describe the joining of small files of each partition into bigger ones; `.execute()` runs it.

        No row changes, and `read(as_of=...)` works as before.
        `where`: a condition on the partition columns; `partition` names partitions or prefixes, such as `"month=1"`.
        `sort_by`: columns by which the rows of the joined files are sorted, so that each new file has a range of its own.
        The sizes are those of the settings `optimize.*`.
        Delta's `.where(...)`, `.executeCompaction()` and `.executeZOrderBy(...)` work, too.

        It disturbs neither appends nor reads. It yields to upserts, deletes and overwrites of the same files: the
        result says how many files were left, and the next run picks them up.
        """
        spec = OptimizeSpec(where, partition, names(sort_by), small_file_bytes, target_file_bytes, tag)
        return OptimizeBuilder(spec, self._optimize)

    @needs_spark
    def _optimize(self, spec: OptimizeSpec) -> Optimized:
        require_running(self._spark)
        given = {name: getattr(spec, name) for name in ("small_file_bytes", "target_file_bytes")}
        settings = self._coordinator.table.settings.optimize
        sizes = replace(settings, **{name: value for name, value in given.items() if value is not None})

        def write(tx: Transaction, joins: Sequence[Join], ensure_wanted: Callable[[], None]) -> Sequence[WriteStat]:
            told = outcome_told(self._spark, tx, self._coordinator.table.storage.uri)
            with told, closing(self._attempt(tx)) as attempt:
                return join_files(attempt, joins, spec.sort_by, now_and_then(ensure_wanted))

        chosen = self._chosen_partitions(spec.where, spec.partition)
        return optimize(self._coordinator, write, partitions=chosen, sort_by=spec.sort_by, sizes=sizes, tag=spec.tag)

    @needs_spark
    def restore(self, as_of: str | datetime, *, tag: str = "") -> WriteResult:
        """Restore the table as of `as_of` (a savepoint, an instant or a time): a new commit undoes what came after it.

        The undone state stays readable by `read(as_of=...)`, and `restore` brings it back, until it is cleaned. Columns that
        were added since stay, and are null in the old rows. A change that is committed meanwhile makes it start over, and is
        undone, too. `StorageError` if files of that time are cleaned, `InputError` if the table had no commit then.
        """
        require_running(self._spark)
        zone = self._coordinator.properties.timezone
        moment = moment_of(self._coordinator, as_of) if isinstance(as_of, str) else instant_of(as_of, zone)
        return WriteResult.of(restore(self._coordinator, moment, self._write_copies, tag=tag))

    @needs_spark
    def repair(self, *, tag: str = "") -> Repaired:
        """Take commits out of the table that another engine has undone by removing their files, so that it can be read again.

        That engine took no lock: `lakelock audit` names these commits, and the settings that it lacks. File groups that they
        had rewritten show their older rows again. Rows of these commits are lost: write them again.
        """
        require_running(self._spark)
        return repair(self._coordinator, self._write_copies, tag=tag)

    def _write_copies(self, tx: Transaction, copies: Sequence[Copy]) -> Sequence[WriteStat]:
        told = outcome_told(self._spark, tx, self._coordinator.table.storage.uri)
        with told, closing(self._attempt(tx)) as attempt:
            return copy_slices(attempt, copies)

    def _chosen_partitions(self, where: str | Column | None, partition: Targets) -> Callable[[str], bool]:
        coordinator = self._coordinator
        targets = resources_of(partition, coordinator.properties)
        if where is None:
            return lambda path: not targets or within(path, targets)
        paths = coordinator.snapshot().partitions
        values = partition_values(paths, coordinator.schema().arrow, coordinator.properties)
        try:
            condition = Condition.of(self._spark, spark_schema(values.schema), where)
        except AnalysisException as error:
            raise InputError(
                f"the condition {where} cannot choose partitions: {str(error).splitlines()[0]}",
                hint=f"use the partition columns only: {', '.join(values.column_names) or 'there are none'}",
            ) from error
        values = values.append_column(_PATH, pa.array(paths, pa.string()))
        rows = [tuple(row.values()) for row in values.to_pylist()]
        frame = self._spark.createDataFrame(rows, spark_schema(values.schema))
        chosen = frozenset(row[0] for row in frame.where(condition.on(frame)).select(frame.columns[-1]).collect())
        return lambda path: path in chosen and (not targets or within(path, targets))


_PATH = "path of the partition"
"""With spaces, as no column of a table has."""


def now_and_then(check: Callable[[], None]) -> Callable[[], None]:
    """The check, run only once in `LOOK_EACH` calls."""
    calls = 0

    def checked() -> None:
        nonlocal calls
        calls += 1
        if calls % LOOK_EACH == 0:
            check()

    return checked
