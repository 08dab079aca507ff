"""The upkeep of a `LakeTable`, and its groups of calls: `table.columns`, `table.upkeep`, `table.locks`, and their old names.

Upkeep cleans old files, joins small ones, makes savepoints, and undoes mistakes.

An optimize is described first, as in Delta: nothing is done before `execute`. Executors join the files: each task writes one
join, from files that it reads itself or from sorted rows. They also restore: the rows of old slices are written again, a batch
at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.checked_calls import checked, checked_calls
from lakelock.engine.batch import PATH, chosen_partitions
from lakelock.engine.file_tasks import FileTasks
from lakelock.errors import InputError, WriteFailed
from lakelock.occ.begin import WriteContext
from lakelock.occ.clean import Cleaned, asked_retention
from lakelock.occ.committed import WriteResult
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.optimize import Join, Optimized, optimize
from lakelock.occ.request import Targets, names
from lakelock.occ.restore import Copy, Repaired, moment_of, repair, restore
from lakelock.occ.savepoints import Savepoint
from lakelock.occ.transaction import Transaction
from lakelock.occ.upkeep import Upkept
from lakelock.spark_plugin.arguments import delta_arguments, instant_of
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.spark_session import FILE, ROW, column, needs_spark, outcome_reported, require_running, spark_schema
from lakelock.spark_plugin.table_info import Locks
from lakelock.spark_plugin.table_writes import Columns, Types
from lakelock.spark_plugin.transactions import TableTransactions
from lakelock.spark_plugin.write_attempt import Attempt
from lakelock.spark_plugin.write_stages import REPORT_SCHEMA, numbers_of, this_task, values_for, while_wanted
from lakelock.storage import Storage
from lakelock.table.base_files import CONSTANT, BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.merged_slices import open_slice
from lakelock.table.rows import conform
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

_NEXT = "call .execute(), or Delta's .executeCompaction() or .executeZOrderBy(...)"


@dataclass(frozen=True)
class OptimizeSpec:
    """What an optimize is to join, and by which columns it sorts the rows of the joined files."""

    where: str | Column | None = None
    partition: Targets = None
    sort_by: tuple[str, ...] = ()
    small_file_bytes: int | None = None
    target_file_bytes: int | None = None
    tag: str = ""


@dataclass
class _Use:
    """Whether the user has gone on with a builder, so that it need not warn."""

    used: bool = False


@checked_calls
@dataclass(frozen=True, repr=False)
class OptimizeBuilder:
    """`table.optimize(...)`: joins nothing until `.execute()`. A builder that is dropped before warns.

    >>> table.optimize().where("day < '2026-11-21'").executeCompaction()          # doctest: +SKIP
    """

    spec: OptimizeSpec
    run: Callable[[OptimizeSpec], Optimized]
    _use: _Use = field(default_factory=_Use)

    def where(self, condition: str | Column) -> OptimizeBuilder:
        """Only partitions that satisfy a condition on the partition columns."""
        if self.spec.where is not None:
            raise InputError("this optimize has a condition already", hint="join the two with AND")
        self._use.used = True
        return OptimizeBuilder(replace(self.spec, where=condition), self.run)

    def execute(self) -> Optimized:
        """Join the small files, and say what was joined."""
        self._use.used = True
        return self.run(self.spec)

    def executeCompaction(self) -> Optimized:  # noqa: N802 - Delta's name
        return self.execute()

    def executeZOrderBy(self, *columns: str | Sequence[str]) -> Optimized:  # noqa: N802 - Delta's name
        """Join the small files, and sort the rows of those by these columns, in their order."""
        self._use.used = True
        sort_by = tuple(name for each in columns for name in names(each))
        if not sort_by or not all(sort_by):
            raise InputError(
                f"executeZOrderBy takes names of columns, not {sort_by}", hint='.executeZOrderBy("customer", "day")'
            )
        if self.spec.sort_by:
            raise InputError(f"this optimize sorts by {', '.join(self.spec.sort_by)} already", hint="name the columns once")
        return self.run(replace(self.spec, sort_by=sort_by))

    def __repr__(self) -> str:
        return f"OPTIMIZE: nothing is done yet; next: {_NEXT}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"an optimize that was not executed has no {name!r}; next: {_NEXT}", name=name, obj=self)

    def __del__(self) -> None:
        if not self._use.used:
            warnings.warn(f"table.optimize() was never executed, so no file was joined: {_NEXT}", RuntimeWarning, stacklevel=2)


_JOIN = "_lakelock_join"


@dataclass(frozen=True)
class JoinPlan:
    """What a task needs; the numbers of its joins arrive as rows. `rows` are those of each join, where they are sorted."""

    context: WriteContext
    joins: tuple[Join, ...]
    rows: tuple[int, ...] = ()


def join_files(
    attempt: Attempt, joins: Sequence[Join], sort_by: Sequence[str], check: Callable[[], None]
) -> tuple[WriteStat, ...]:
    """Write these joins, one task for each. `check` is called now and then, and raises to stop. `WriteFailed` if Spark gave
    other rows than the old files have, which must not be committed."""
    what = f"joining {counted(sum(len(join.sources) for join in joins), 'file')}"
    plan = JoinPlan(attempt.context(), tuple(joins))
    if not sort_by:
        numbers = attempt.numbers(len(joins), len(joins), in_driver=False)
        return attempt.written(numbers.through(partial(join_stage, plan), REPORT_SCHEMA), what, check=check)
    plan = replace(plan, rows=_stored_rows(attempt, joins))
    rows = attempt.on_executors(_in_order(attempt, joins, sort_by))
    stats = attempt.written(rows.through(partial(sorted_stage, plan), REPORT_SCHEMA), what, check=check)
    ensure_all_written(sum(plan.rows), stats)
    return stats


def ensure_all_written(rows: int, stats: Sequence[WriteStat]) -> None:
    """`WriteFailed` unless so many rows were written."""
    written = sum(stat.num_writes or 0 for stat in stats)
    if written != rows:
        raise WriteFailed(
            f"the files to join have {rows:,} rows, and Spark gave {written:,} of them: nothing was committed",
            hint="look for a setting of the session that makes Spark leave rows out, such as spark.sql.files.ignore*",
        )


def _stored_rows(attempt: Attempt, joins: Sequence[Join]) -> tuple[int, ...]:
    """How many rows the files of each join have, by their footers."""
    reads = [partial(_footer_rows, attempt.storage, file) for join in joins for file in join.sources]
    counts = iter(attempt.runtime.gather(reads, limit=attempt.context().requests_at_once))
    return tuple(sum(islice(counts, len(join.sources))) for join in joins)


def _footer_rows(storage: Storage, file: DataFile) -> int:
    with BaseFile(open_slice(file, storage), file.key) as base:
        return base.rows


def _in_order(attempt: Attempt, joins: Sequence[Join], sort_by: Sequence[str]) -> DataFrame:
    """The rows of all joins with Hudi's columns and the number of their join, each join in a partition of its own, sorted."""
    rows = attempt.placed([file for join in joins for file in join.sources], meta=True).drop(ROW)
    names = [(file.name, number) for number, join in enumerate(joins) for file in join.sources]
    numbers = attempt.spark.createDataFrame(names, f"{FILE} string, {_JOIN} int")
    packs = ",".join(map(str, values_for(len(joins))))
    pack = F.expr(f"element_at(cast(split('{packs}', ',') as array<int>), {_JOIN} + 1)")
    rows = rows.join(F.broadcast(numbers), FILE).drop(FILE).repartition(len(joins), pack)
    return rows.sortWithinPartitions(_JOIN, *(column(name).asc_nulls_last() for name in sort_by))


def join_stage(plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: write the joins whose numbers came to this task, a batch of rows at a time."""
    tasks, task = FileTasks.of(plan.context), this_task()
    joins = (plan.joins[number] for number in numbers_of(batches))
    files = (tasks.move_rows(join.partition, tasks.stored(join.sources), task) for join in joins)
    yield from while_wanted(plan.context, chain.from_iterable(files))


def sorted_stage(plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: write the sorted rows of a join into as many files as planned."""
    yield from while_wanted(plan.context, _sorted(plan, batches))


def _sorted(plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    task, tasks = this_task(), FileTasks.of(plan.context)
    pieces = (piece for batch in batches for piece in _by_join(batch))
    for number, rows in groupby(pieces, key=lambda piece: piece[0]):
        join = plan.joins[number]
        stored = (_stamped(plan, batch) for _, batch in rows)
        yield from tasks.move_rows(join.partition, stored, task, file_rows=max(1, -(-plan.rows[number] // join.files)))


def _by_join(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Joins may share a task: the rows come join by join."""
    start = 0
    for number, same in groupby(batch.column(_JOIN).to_pylist()):
        count = sum(1 for _ in same)
        yield number, batch.slice(start, count)
        start += count


def _stamped(plan: JoinPlan, batch: pa.RecordBatch) -> pa.Table:
    """Spark's rows as stored rows."""
    schema = plan.context.schema.arrow
    rows = conform(batch.select(schema.names), schema)
    times = pa.chunked_array([batch.column(COMMIT_TIME).dictionary_encode().cast(CONSTANT)])
    seqnos, keys = (pa.chunked_array([batch.column(name)]) for name in (COMMIT_SEQNO, RECORD_KEY))
    stamps = pa.schema([(COMMIT_TIME, CONSTANT), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string())])
    return pa.table([times, seqnos, keys, *rows.columns], schema=pa.schema([*stamps, *schema]))


MOST_TASKS = 1_000


def copy_slices(attempt: Attempt, copies: Sequence[Copy], check: Callable[[], None]) -> tuple[WriteStat, ...]:
    """Write all copies. `check` is called now and then, and raises to stop."""
    if not copies:
        return ()
    numbers = attempt.numbers(len(copies), min(len(copies), MOST_TASKS), in_driver=False)
    what = f"writing {counted(len(copies), 'file group')} anew"
    stage = partial(copy_stage, attempt.context(), tuple(copies))
    return attempt.written(numbers.through(stage, REPORT_SCHEMA), what, check=check)


def copy_stage(context: WriteContext, copies: Sequence[Copy], batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: write the copies whose numbers came to this task."""
    tasks, task = FileTasks.of(context), this_task()
    files = (tasks.copy_slice(copies[number], task) for number in numbers_of(batches))
    yield from while_wanted(context, chain.from_iterable(files))


LOOK_EACH = 10
"""One in this many checks of a running job asks the log whether the transaction is still wanted."""


@checked_calls
class Upkeep:
    """`table.upkeep`: what keeps a `LakeTable` small and in shape. Live writers and readers are not disturbed."""

    def __init__(self, spark: SparkSession, coordinator: Coordinator, attempt: Callable[[Transaction], Attempt]) -> None:
        self._spark, self._coordinator, self._attempt = spark, coordinator, attempt

    @checked
    def __call__(self, *, dry_run: bool = False) -> Upkept:
        """Finish dead writers, compact log files, delete old files, archive old instants and collect old decisions.

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
        """Describe the joining of small files of each partition into bigger ones; `.execute()` runs it. Log files of the file
        groups that are left go into new base files.

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
            reported = outcome_reported(self._spark, tx, self._coordinator.table.storage.uri)
            with reported, closing(self._attempt(tx)) as attempt:
                return join_files(attempt, joins, spec.sort_by, rarely_checked(ensure_wanted))

        matching = None if spec.where is None else partial(self._matching, spec.where)
        chosen = chosen_partitions(self._coordinator, spec.partition, matching)
        return optimize(
            self._coordinator, write, self._write_copies,
            partitions=chosen, sort_by=spec.sort_by, sizes=sizes, tag=spec.tag,
        )  # fmt: skip

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
        return restore(self._coordinator, moment, self._write_copies, tag=tag)

    @needs_spark
    def repair(self, *, tag: str = "") -> Repaired:
        """Take commits out of the table that another engine has undone by removing their files, so that it can be read again.

        That engine took no lock: `lakelock audit` names these commits, and the settings that it lacks. File groups that they
        had rewritten show their older rows again. Rows of these commits are lost: write them again.
        """
        require_running(self._spark)
        return repair(self._coordinator, self._write_copies, tag=tag)

    def _write_copies(self, tx: Transaction, copies: Sequence[Copy], check: Callable[[], None]) -> Sequence[WriteStat]:
        reported = outcome_reported(self._spark, tx, self._coordinator.table.storage.uri)
        with reported, closing(self._attempt(tx)) as attempt:
            return copy_slices(attempt, copies, rarely_checked(check))

    def _matching(self, where: str | Column, partitions: pa.Table) -> list[str]:
        """The paths of those that satisfy a condition; `InputError` for one on other columns than those of partitions."""
        columns = partitions.drop_columns([PATH])
        try:
            condition = Condition.of(self._spark, spark_schema(columns.schema), where)
        except AnalysisException as error:
            raise InputError(
                f"the condition {where} cannot choose partitions: {str(error).splitlines()[0]}",
                hint=f"use the partition columns only: {', '.join(columns.column_names) or 'there are none'}",
            ) from error
        rows = [tuple(row.values()) for row in partitions.to_pylist()]
        frame = self._spark.createDataFrame(rows, spark_schema(partitions.schema))
        return [row[0] for row in frame.where(condition.on(frame)).select(frame.columns[-1]).collect()]


def rarely_checked(check: Callable[[], None]) -> Callable[[], None]:
    """The check, run only once in `LOOK_EACH` calls."""
    calls = 0

    def checked() -> None:
        nonlocal calls
        calls += 1
        if calls % LOOK_EACH == 0:
            check()

    return checked


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
