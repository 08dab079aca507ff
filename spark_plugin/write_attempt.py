"""One attempt of a write by Spark: the transaction, the session, the files stored so far, and what the next attempt reuses.

A write remembers from attempt to attempt what would come out the same (ADR 19). The rows that the call brought stay packed
where the first attempt has put them: in the memory and on the disks of the executors. An attempt persists them anyway, so that
they are computed once; they only stay until the call has ended. What is known about keys and files is on the driver. In a redo
the files that did not collide are copied by tasks of their own, the others are written again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.clock import Runtime
from lakelock.engine.file_tasks import EarlierFiles, Files, FileTasks, Target
from lakelock.errors import LakelockError
from lakelock.events import current
from lakelock.occ import commit_keys as keys
from lakelock.occ.begin import WriteContext
from lakelock.occ.commit_keys import DRIVER, EXECUTORS
from lakelock.occ.committed import Phase
from lakelock.occ.transaction import Transaction
from lakelock.settings import MissingColumns, WriteSettings
from lakelock.spark_plugin.change_feed import Numbered
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.lookup_stages import FileKeys, KeysByPartition, rows_changed
from lakelock.spark_plugin.reading import read_files
from lakelock.spark_plugin.spark_jobs import job_group, readable
from lakelock.spark_plugin.spark_session import (
    FILE,
    ROW,
    KeptFrames,
    apart,
    arrow_schema,
    file_place,
    is_local,
    parallelism,
    quoted,
    spark_schema,
    with_generated,
)
from lakelock.spark_plugin.stage_rows import DriverRows, FewRows, Rows, SparkRows, few_rows, is_little
from lakelock.spark_plugin.write_stages import REPORT_SCHEMA, numbers_of, this_task, while_wanted
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.table.base_files import BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import bucket_of, bucket_of_group
from lakelock.table.layout import FileGroupId
from lakelock.table.merged_slices import open_slice
from lakelock.table.partitions import PartitionValues
from lakelock.table.properties import TableProperties
from lakelock.table.pruning import Pruning
from lakelock.table.rows import missing_since, spelled
from lakelock.table.schema import META_COLUMNS, TableSchema, check_write, require_columns
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted


@dataclass(frozen=True)
class _OpenHere(StorageLocation):
    """The location of a storage that is open in this process; a task elsewhere opens its own."""

    storage: Storage = field(compare=False, kw_only=True)

    def open(self, *, within_s: float | None = None, holds_table: bool = False) -> Storage:
        return self.storage

    def __reduce__(self) -> tuple[type[StorageLocation], tuple[object, ...]]:
        return StorageLocation, (self.uri, self.options)


@dataclass
class Staged:
    """The rows of a call, complete: parcels that are kept, how many rows are in each partition, and their size in memory.

    `keys` are those of the rows, in a fixed order, unless they are too many for the driver.
    """

    rows: Rows
    counts: Mapping[str, int] = field(default_factory=dict)
    keys: KeysByPartition | None = None
    size_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        """What a row takes, on average."""
        return self.size_bytes // max(1, sum(self.counts.values()))


_KEPT = "_lakelock_kept"


class Memory(EarlierFiles):
    """Belongs to one call, whose rows or condition are the same in each attempt. The maker of `frames` closes them."""

    def __init__(self, frames: KeptFrames | None = None) -> None:
        super().__init__()
        self.frames = frames or KeptFrames()
        self.staged: Staged | None = None
        self.held: dict[str, FileKeys | None] = {}
        """By the key of a file that was looked into: which of the staged keys it holds, if any."""
        self.given: tuple[FewRows | None] | None = None
        """What is known of the rows that the call brought, once it was asked whether they are few: all of them, if so."""
        self._rows: DataFrame | None = None
        self.plan: object = None
        """The plan of a merge with the rows of its source, which are computed once, whatever the table becomes."""
        self.matched: dict[str, bool] = {}
        """By the key of a file that was looked into: whether the call changes rows of it."""

    def give(self, rows: FewRows | None, schema: TableSchema, properties: TableProperties) -> None:
        """Note whether the rows that the call brought are few, as they were prepared for such a table."""
        self.given, self._written_by = (rows,), (schema, properties)

    def keep(self, rows: Rows) -> None:
        """Keep rows until the call has ended."""
        rows.keep(self.frames)

    def kept_rows(self, compute: Callable[[], DataFrame]) -> DataFrame:
        """The rows that the call brought, as the first attempt has computed them."""
        if self._rows is None:
            self._rows = apart(compute(), _KEPT)
            self.frames.keep(self._rows)
        return self._rows

    def unstage(self) -> None:
        """Let the rows go."""
        if self.staged is not None:
            self.staged.rows.drop(self.frames)
            self.staged = None

    def forget(self) -> None:
        super().forget()
        self.unstage()
        if self._rows is not None:
            self.frames.drop(self._rows)
            self._rows = None
        self.held, self.matched, self.given = {}, {}, None

    def close(self) -> None:
        """Free what is persisted."""
        self.frames.close()

    def has_files_of(self, instant: str) -> bool:
        """Whether the next attempt may take over files of this one."""
        files = self._files.get(instant)
        return files is not None and bool(files.rewritten or files.new)


@dataclass(frozen=True)
class Written:
    """What a write has stored, to be committed or removed. `schema` is the table's schema after it."""

    stats: tuple[WriteStat, ...] = ()
    schema: TableSchema | None = None
    replaced: Mapping[str, tuple[str, ...]] | None = None

    def __add__(self, other: Written) -> Written:
        replaced: dict[str, tuple[str, ...]] = dict(self.replaced or {})
        for partition, ids in (other.replaced or {}).items():
            replaced[partition] = tuple(sorted({*replaced.get(partition, ()), *ids}))
        none = self.replaced is None and other.replaced is None
        return Written(self.stats + other.stats, other.schema or self.schema, None if none else replaced)


@dataclass(frozen=True)
class Attempt:
    """A transaction, and everything that Spark needs to write for it. `root` is the table's path as Spark knows it.

    `known` tells the columns that the table's handle can know. `memory` is that of the call, whose attempts share it.
    """

    spark: SparkSession
    tx: Transaction
    storage: Storage
    root: str
    runtime: Runtime
    settings: WriteSettings
    known: Callable[[Transaction], Iterable[pa.Schema]]
    earlier: Written = field(default_factory=Written)
    kept: KeptFrames = field(default_factory=KeptFrames)
    memory: Memory = field(default_factory=Memory)

    @property
    def properties(self) -> TableProperties:
        return self.tx.baseline.properties

    @property
    def schema(self) -> TableSchema:
        """The table's schema as this write finds it, with what earlier writes of the transaction added."""
        return self.earlier.schema or self.tx.schema

    @property
    def appends(self) -> bool:
        """Whether small changes are appended as log files."""
        return self.properties.is_merge_on_read and self.settings.append_below > 0

    def context(self, schema: TableSchema | None = None) -> WriteContext:
        """What tasks need; with this write's own settings. Tasks in this process take the storage that is open here."""
        context = self.tx.write_context(schema or self.schema)
        here = _OpenHere(context.location.uri, context.location.options, storage=self.storage)
        settings = context.settings
        if settings.write is not self.settings:
            settings = replace(settings, write=self.settings)
        return replace(context, settings=settings, location=here)

    @contextmanager
    def jobs(
        self, what: str, phase: Phase = Phase.LOOK_UP, *, rows: int = 0, check: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Spark jobs in the block fail with one readable error, and are cancelled as soon as the transaction is lost.

        `check` is called as well, and raises to cancel them. On a terminal a line shows how far they are; `rows`, if known, are
        those that they handle.
        """
        self.tx.extra[keys.RAN_ON] = EXECUTORS
        self.tx.lock_wait_s = None  # what executors have done is not thrown away because the lock is busy
        with self._jobs(what, phase, rows, check):
            yield

    @contextmanager
    def _jobs(self, what: str, phase: Phase, rows: int, check: Callable[[], None] | None = None) -> Iterator[None]:
        description = f"{self.tx.operation.lower()} {self.tx.instant}: {what}"

        def ensure_wanted() -> None:
            self.tx.check_alive()
            if check is not None:
                check()

        progress = current()
        if progress is not None:
            progress.step(what, rows)
        with self.tx.phase(phase, what), job_group(self.spark, description, self.runtime, ensure_wanted, progress):
            yield

    def rows(self, frame: DataFrame | Rows, *, little: bool | None = None, by_key: bool = False) -> Rows:
        """The rows of a frame: in the driver if they are few, otherwise on the executors. The rest is as for `few`."""
        if not isinstance(frame, DataFrame):
            return frame
        few = self.few(frame, little=little, by_key=by_key)
        return self.on_executors(frame) if few is None else self.in_driver(few.arrow)

    def few(self, frame: DataFrame, *, little: bool | None = None, by_key: bool = False) -> FewRows | None:
        """The rows of a frame, computed once, if they are few. `little`: whether it is little work to see that, if known.
        `by_key`: nothing but an upsert or delete by key is done with them, for which more are few on a local Spark."""
        most, given = self.settings.driver_rows, self.memory.given
        if not most or little is False:
            return None
        if given is not None and little is None and (given[0] is not None or not by_key or not is_local(self.spark)):
            return given[0]
        running = partial(self._jobs, "computing the rows", Phase.LOOK_UP, 0)
        return few_rows(frame, most, running, little=bool(little), by_key=by_key)

    def in_driver(self, rows: pa.Table) -> Rows:
        """Rows that are in this process."""
        return DriverRows.of(self.spark, self.memory.frames, rows)

    def on_executors(self, frame: DataFrame) -> Rows:
        """Rows that are not."""
        return SparkRows(frame, self.memory.frames)

    def numbers(self, count: int, tasks: int, *, in_driver: bool) -> Rows:
        """A row for each number below `count`, for a stage that knows what the numbers mean."""
        if in_driver:
            return self.in_driver(pa.table({"id": pa.array(range(count), pa.int64())}))
        return self.on_executors(self.spark.range(0, count, 1, tasks))

    def reports(
        self,
        rows: Rows,
        what: str,
        phase: Phase = Phase.LOOK_UP,
        *,
        count: int = 0,
        check: Callable[[], None] | None = None,
    ) -> list[object]:
        """Run a stage and return its reports; `count`, if known, is how many rows it handles."""
        if not rows.few:
            with self.jobs(what, phase, rows=count, check=check):
                return rows.reports()
        self.tx.check_alive()
        self.tx.extra.setdefault(keys.RAN_ON, DRIVER)
        progress = current()
        if progress is not None:
            progress.step(what, count)
        with self.tx.phase(phase, what):
            try:
                return rows.reports()
            except LakelockError:
                raise
            except Exception as error:
                raise readable(error) from error

    def written(
        self, rows: Rows, what: str, *, count: int = 0, check: Callable[[], None] | None = None
    ) -> tuple[WriteStat, ...]:
        """Run a stage that writes files, and return their stats; one file per file group."""
        reports = self.reports(rows, what, Phase.WRITE, count=count, check=check)
        stats = [report for report in reports if isinstance(report, WriteStat)]
        in_buckets = self.properties.bucket_index is not None
        groups = Counter(bucket_of_group(stat.group) if in_buckets else stat.group for stat in stats)
        twice = [group for group, count in groups.items() if count > 1]
        if twice:
            raise rows_changed(f"two tasks wrote the file group {twice[0]}")
        return tuple(stats)

    def keep(self, rows: Rows) -> None:
        """Keep rows until the transaction has ended: they must not change, and its reads may be checked again."""
        rows.keep(self.kept)

    def forgetful(self) -> Attempt:
        """This attempt, which takes nothing over and leaves nothing to the next: what it computes would be different there."""
        return replace(self, memory=Memory(self.kept))

    def growing(self, schema: TableSchema) -> Attempt:
        """This attempt of a write by which the table gets this schema: rows of old files are null in what they lack."""
        return self if schema == self.schema else replace(self, earlier=replace(self.earlier, schema=schema))

    def close(self) -> None:
        """Unpersist what was kept."""
        self.kept.close()

    def read(self, files: Sequence[DataFile], *, meta: bool = False, pruned: bool = False) -> DataFrame:
        """The rows of these files, with the table's columns, or with Hudi's five before them. `pruned`: Spark leaves partitions
        out when the frame is filtered further."""
        columns = self.schema.file_schema if meta else self.schema.arrow
        by = PartitionValues.of(self.properties, columns) if pruned else None
        plain, logged = [file for file in files if not file.logs], [file for file in files if file.logs]
        frame = read_files(self.spark, self.root, plain, spark_schema(columns), by)
        return frame.union(self._merged(logged, columns)) if logged else frame

    def placed(self, files: Sequence[DataFile], *, meta: bool = False) -> DataFrame:
        """The rows of these files as `read` gives them, and the columns `FILE` and `ROW`."""
        columns = self.schema.file_schema if meta else self.schema.arrow
        plain, logged = [file for file in files if not file.logs], [file for file in files if file.logs]
        rows = read_files(self.spark, self.root, plain, spark_schema(columns))
        if plain:
            place = file_place(rows)
            rows = rows.select("*", place["file_name"].alias(FILE), place["row_index"].alias(ROW))
        else:
            rows = rows.select("*", F.lit(None).cast("string").alias(FILE), F.lit(None).cast("long").alias(ROW))
        return rows.union(self._merged(logged, pa.schema([*columns, *_PLACE]))) if logged else rows

    def _merged(self, logged: Sequence[DataFile], columns: pa.Schema) -> DataFrame:
        """The rows of file slices with log files, and their places if these are among the columns."""
        shown = arrow_schema(spark_schema(columns))  # the types that Spark expects of a Python stage
        return Numbered(self.tx.table.location, tuple(logged), partial(slice_rows, shown)).frame(self.spark, shown)

    def pruning(self, condition: Condition) -> Pruning:
        """Which files a condition rules out."""
        return Pruning(condition.predicate, PartitionValues.of(self.properties, self.schema.arrow))

    def condition(self, given: str | Column) -> Condition:
        """A condition on the table's rows, with the time fixed now."""
        return Condition.of(self.spark, spark_schema(self.schema.arrow), given)

    def missing_in(self, df: DataFrame) -> MissingColumns:
        """What becomes of the stored values of columns that the rows of an upsert lack."""
        given = arrow_schema(with_generated(df, self.properties).schema)
        return missing_since(self.schema.arrow, given, self.settings.missing_columns, partial(self.known, self.tx))

    @property
    def tasks(self) -> int:
        return parallelism(self.spark)


_PLACE = (pa.field(FILE, pa.string()), pa.field(ROW, pa.int64()))


def slice_rows(columns: pa.Schema, file: DataFile, storage: Storage) -> Iterator[pa.Table]:
    """On an executor: the rows of a file slice with these columns of the table, and their places if they are among them."""
    stored = TableSchema(pa.schema([each for each in columns if each.name not in (FILE, ROW)]))
    own = TableSchema(pa.schema([each for each in stored.arrow if each.name not in META_COLUMNS]))
    at = 0
    with BaseFile(open_slice(file, storage, own), file.key) as base:
        for rows in base.batches(stored):
            if FILE in columns.names:
                places = pa.array(np.arange(at, at + rows.num_rows))
                rows = rows.append_column(FILE, pa.repeat(file.name, rows.num_rows)).append_column(ROW, places)
            at += rows.num_rows
            yield rows.select(columns.names)


def prepared(attempt: Attempt, df: DataFrame, *, missing: MissingColumns = "null") -> tuple[DataFrame, TableSchema]:
    """`fitting_frame` for this attempt. For an upsert, `missing` says what happens to columns that the rows lack."""
    return fitting_frame(df, attempt.properties, attempt.schema, merge=attempt.settings.merge_schema, missing=missing)


def fitting_frame(
    df: DataFrame, properties: TableProperties, schema: TableSchema, *, merge: bool, missing: MissingColumns
) -> tuple[DataFrame, TableSchema]:
    """The columns of `df` that the table has, under its names, and the table's schema after the write; `SchemaError` if they
    do not fit. Key, partition and ordering columns must be there.
    """
    df = with_generated(df, properties)
    require_columns(df.columns, properties.needed_columns)
    schema = check_write(schema, arrow_schema(df.schema), merge, missing)
    return _named(df, schema.names), schema


def prepared_keys(attempt: Attempt, df: DataFrame, *, partition: bool = True) -> tuple[DataFrame, TableSchema]:
    """`fitting_keys` for this attempt."""
    return fitting_keys(df, attempt.properties, attempt.schema, partition=partition)


def fitting_keys(
    df: DataFrame, properties: TableProperties, schema: TableSchema, *, partition: bool = True
) -> tuple[DataFrame, TableSchema]:
    """The key and, by default, `partition` columns of `df`, and these columns of the table; `SchemaError` if one is
    missing or misfits."""
    roles = ("key", "partition") if partition else ("key",)
    df = with_generated(df, properties) if partition else df
    needed = [(name, role) for name, role in properties.needed_columns if role in roles]
    require_columns(df.columns, needed)
    df = _named(df, list(dict.fromkeys(name for name, _ in needed)))
    columns = _only(schema, df.columns)
    check_write(columns, arrow_schema(df.schema))
    return df, columns


def _named(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Those of these columns that the frame has, in whatever case, under these names."""
    if df.columns == list(names):
        return df
    there = {name: spelled(name, df.columns) for name in names}
    return df.selectExpr(*[f"{quoted(given)} AS {quoted(name)}" for name, given in there.items() if given is not None])


def _only(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    return TableSchema(pa.schema([field for field in schema.arrow if field.name in names]))


Write = Callable[[Attempt], Written]

NOTHING: Mapping[int, object] = MappingProxyType({})
NO_COUNTS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True)
class KeptFiles:
    """What an attempt took over: a copy for some of the base files, by their number, and for the new rows of some targets.

    The new rows of a target may be in one of the copies for a base file: then the target has no file here.
    """

    files: Mapping[int, WriteStat] = field(default_factory=dict)
    new: Mapping[Target, Sequence[WriteStat]] = field(default_factory=dict)

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """All copies."""
        return (*self.files.values(), *chain.from_iterable(self.new.values()))


@dataclass(frozen=True)
class Redoing:
    """One attempt's part in a redo: what it may take over, and what the next may take over from it."""

    attempt: Attempt
    schema: TableSchema
    before: Files
    mine: Files

    @classmethod
    def of(cls, attempt: Attempt, schema: TableSchema) -> Redoing:
        """Of an attempt that writes files with this schema."""
        tx = attempt.tx
        before, mine = attempt.memory.begin(tx.instant, tx.redo.earlier, schema, attempt.properties)
        return cls(attempt, schema, before, mine)

    @property
    def context(self) -> WriteContext:
        """What tasks need. To ask for it is to begin to write."""
        return self.attempt.context(self.schema)

    def claimed_and_kept(
        self,
        files: Sequence[DataFile],
        numbers: Iterable[int],
        new: Mapping[Target, object],
        new_buckets: Iterable[FileGroupId] = (),
        joined: Mapping[int, object] = NOTHING,
        *,
        counts: Mapping[int, int] = NO_COUNTS,
    ) -> KeptFiles:
        """Claim the base files of these numbers and the new buckets, then copy what the attempt before made of the same rows.

        `new` has something that tells the keys of each target's new rows, to compare. A base file never changes, and the rows
        of the call that go into it follow from its keys; only new rows may have come with it. Where also others do not follow
        from the keys, `joined` tells them, by the number of the file. `counts`: how many rows of a file change, if known.
        """
        numbers, there = sorted(numbers), {file.content for file in files}
        same = {target: made for target, keys in new.items() if (made := self._made_of(target, keys, there)) is not None}
        self.attempt.tx.writes_to(partition for partition, _ in new)
        likely = (number for number in numbers if self.before.joined.get(files[number].content) == joined.get(number))
        known = {number: stat for number in likely if (stat := self._made_from(files[number], same)) is not None}
        self._claim({files[number]: counts.get(number) for number in numbers}, {files[number] for number in known}, new_buckets)
        copies = self._copies([*known.values(), *chain.from_iterable(same.values())])
        kept = {number: copies[stat.path] for number, stat in known.items() if stat.path in copies}
        there = {files[number].content for number in kept}
        whole = {
            target: [copies[stat.path] for stat in made]
            for target, made in same.items()
            if self._adopter_in(there, target) and all(stat.path in copies for stat in made)
        }
        return KeptFiles(kept, whole)

    def _adopter_in(self, keys: Set[str], target: Target) -> bool:
        adopter = self.before.adopted.get(target[0])
        return adopter is None or adopter in keys

    def _made_of(self, target: Target, keys: object, there: Set[str]) -> Sequence[WriteStat] | None:
        return self.before.made_of(target, keys) if self._adopter_in(there, target) else None

    def _made_from(self, base: DataFile, same: Mapping[Target, object]) -> WriteStat | None:
        adopts = self.before.adopted.get(base.partition) == base.content
        return None if adopts and (base.partition, None) not in same else self.before.made_from(base)

    def _claim(self, files: Mapping[DataFile, int | None], known: Set[DataFile], new: Iterable[FileGroupId]) -> None:
        """Without early conflict detection a redo claims only what collided, so redos queue for it before they copy."""
        tx = self.attempt.tx
        again = tx.redo.earlier is not None
        tx.claim_changed(files, new, always=(file.group for file in files if again and file not in known))

    def _copies(self, files: Sequence[WriteStat]) -> dict[str | None, WriteStat]:
        """The copies of these files that could be made, by the path of the original."""
        if not files:
            return {}
        attempt, tasks = self.attempt, min(len(files), 2 * self.attempt.tasks)
        few = attempt.settings.driver_rows > 0 and is_little(len(files), sum(file.file_size_bytes or 0 for file in files))
        numbers = attempt.numbers(len(files), tasks, in_driver=few)
        what = f"keeping {counted(len(files), 'file')} of the attempt before"
        copies = attempt.written(numbers.through(partial(copy_stage, self.context, tuple(files)), REPORT_SCHEMA), what)
        by_group = {copy.group: copy for copy in copies}
        return {file.path: by_group[file.group] for file in files if file.group in by_group}

    def note(
        self,
        files: Sequence[DataFile],
        written: Iterable[WriteStat],
        kept: KeptFiles,
        new: Mapping[Target, object],
        adopted: Mapping[str, int] | None = None,
        joined: Mapping[int, object] = NOTHING,
    ) -> tuple[WriteStat, ...]:
        """Note what this attempt has written, for the next one; all its files.

        `adopted`: by partition, the number of the base file whose next slice has the partition's new rows, too.
        """
        mine, bases, in_buckets = self.mine, {file.group: file for file in files}, self.attempt.properties.bucket_index
        written, made = tuple(written), {target: [*stats] for target, stats in kept.new.items()}
        for stat in written:
            if (base := bases.get(stat.group)) is not None:
                mine.rewritten[base.content] = stat
            else:
                bucket = bucket_of(stat.file_id or "") if in_buckets is not None else None
                made.setdefault((stat.partition_path or "", bucket), []).append(stat)
        mine.rewritten.update((files[number].content, stat) for number, stat in kept.files.items())
        mine.joined.update((files[number].content, rows) for number, rows in joined.items())
        mine.adopted.update((p, key) for p, key in self.before.adopted.items() if (p, None) in kept.new)
        for partition, number in (adopted or {}).items():
            mine.adopted[partition] = files[number].content
            made[partition, None] = []
        mine.new.update((target, (new.get(target), stats)) for target, stats in made.items())
        self.attempt.tx.redo.kept = len(kept.stats)
        return (*kept.stats, *written)


def copy_stage(context: WriteContext, files: Sequence[WriteStat], batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: copy the files whose numbers came to this task, and report the copies of those that can be copied."""
    task, tasks = this_task(), FileTasks.of(context)
    copies = (tasks.copy_file(files[number], task) for number in numbers_of(batches))
    yield from while_wanted(context, (copy for copy in copies if copy is not None))
