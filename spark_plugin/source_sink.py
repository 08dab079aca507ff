"""Writing through `format("lakelock")`, batch and streaming.

Spark creates the writer in one process, runs its tasks in others and commits in yet another, none of them the driver. The
transaction therefore travels with the writer, detached: it is begun when Spark ships the writer to the tasks (the only moment
that only a writer which will really write reaches), its tasks together keep its heartbeat alive, and the commit adopts it. Its
data locks, in PESSIMISTIC mode, are taken before it begins, held by a process of their own, and given back when it has ended:
no Python process of Spark lives that long.

The batches of a stream may carry a name (`txn_app_id`) instead of the query's id. Spark numbers the batches of each checkpoint
from 0, so two queries under one name count alike, whatever their rows are: no query passes over the batches of another.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakelock.clock import SystemRuntime
from lakelock.data_locks import Resource
from lakelock.data_locks.keeper import KeeperOrder, Keeping, KeptLocks, SignOfLife, keeping
from lakelock.errors import ConflictError, InputError, RolledBackError, SchemaError, SettingsError, TableError
from lakelock.events import Event, EventKind, Events
from lakelock.markers.heartbeat import SharedHeartbeat
from lakelock.occ.begin import Detached, WriteContext
from lakelock.occ.commit_keys import QUERY, AppTransaction
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import Definition, table_exists
from lakelock.occ.data_locking import lost_locks
from lakelock.occ.footprint import WholeTable
from lakelock.occ.request import WriteRequest, numbered, resources_of, within
from lakelock.occ.retry import applied_instead
from lakelock.occ.transaction import Transaction
from lakelock.spark_plugin.bucketing import BucketPlan, unrouted_stage
from lakelock.spark_plugin.inserting import insert_stage
from lakelock.spark_plugin.source_errors import plainly
from lakelock.spark_plugin.source_option_names import Use
from lakelock.spark_plugin.source_options import SourceOptions
from lakelock.spark_plugin.source_overwrites import ReadBefore
from lakelock.spark_plugin.spark_session import QUERY_ID, arrow_schema
from lakelock.table import layout
from lakelock.table.archive import extra_of_write
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import bucket_of_group
from lakelock.table.partitions import batches_with_generated, fields_with_generated
from lakelock.table.properties import TableProperties
from lakelock.table.rows import spelled
from lakelock.table.schema import TableSchema, check_write, replacing_schema

_EXECUTION, _OUTERMOST, _CALL = "spark.sql.execution.id", "spark.sql.execution.root.id", "callSite.short"


def refuse_name() -> None:
    """In a task of a write: `InputError` if the call has given the table a name, by which it could not be read.

    `saveAsTable`, `writeTo(...).create()` and `toTable` call the source with exactly what `save` and `start` call it with. But
    they make the name first. The former write in an execution inside that one, and Spark takes the name back when the write
    fails; batches of a stream are inside one of the stream's. Of a stream, a task is told which call has started it.
    """
    task = TaskContext.get()
    if task is None:
        return
    problem = 'Spark\'s catalog keeps no path for a table of format("lakelock"), so it could not be read by its name'
    if task.getLocalProperty(QUERY_ID):
        if (task.getLocalProperty(_CALL) or "").startswith("toTable "):
            raise InputError(
                problem,
                hint='write by the path, df.writeStream.format("lakelock").start(path); DROP TABLE removes the name that Spark '
                "has made, and nothing else",
            )
        return
    outermost = task.getLocalProperty(_OUTERMOST)
    if outermost and outermost != task.getLocalProperty(_EXECUTION):
        raise InputError(
            problem,
            hint='write by the path, df.write.format("lakelock").mode("append").save(path); for SQL name it in the session, '
            'spark.read.format("lakelock").load(path).createOrReplaceTempView("t")',
        )


@contextmanager
def locked(table: Coordinator, operation: str, targets: tuple[Resource, ...], *, tag: str = "") -> Iterator[Keeping | None]:
    """In PESSIMISTIC mode wait for the operation's locks, and have them kept; `LockTimeout` names who is in the way.

    Call this where Spark plans the write. If the block ends before the locks are handed over, they are given back.
    """
    if not table.data.for_writes:
        yield None
        return
    table.ensure_same_provider(record=False)
    request = table.data.request_of_write(operation, targets, tag=tag)
    # The process above is Spark's daemon for Python workers, which ends with the JVM, or the JVM itself.
    opened = table.table
    order = KeeperOrder(opened.location, opened.settings, request, opened.writer, owner_pid=os.getppid())
    with keeping(order) as kept:
        facts: dict[str, object] = {"waited_s": kept.locks.waited_s, "token": kept.locks.token, "locks": str(request)}
        opened.emit(EventKind.DATA_LOCKED, "", request.about, **facts)
        yield kept


@contextmanager
def given_back(locks: KeptLocks | None, table: str, instant: str, operation: str) -> Iterator[None]:
    """Give the locks back however the block ends; send an alert if they were lost before."""
    try:
        yield
    finally:
        lost = locks.release() if locks is not None else ""
        if lost:
            Events().emit(Event(EventKind.ALERT, table, instant, operation, {"problem": lost_locks(lost)}))


def ensure_own_batch(table: Coordinator, applied: str, application: AppTransaction, query: str) -> None:
    """`InputError` if the commit with the instant `applied` is by another query than the one whose batch would be passed over.

    A commit that does not say which query it is by, as those of earlier versions, counts as its own.
    """
    other = extra_of_write(table.table.storage, table.table.timeline(), applied).get(QUERY, query)
    if other != query:
        raise InputError(
            f"batch {application.version} of {application.app_id} is not passed over: the commit {applied} has applied it for "
            f"the query {other}, and this is the query {query}, with a checkpoint of its own, whose rows may be others",
            hint="give each query a txn_app_id of its own, or none; after a lost checkpoint a new one. Only if this "
            'query tells the same batches from the first on: .option("txn_replay", "true") passes over those that are applied',
            instant=applied,
        )


@dataclass
class TaskDone(WriterCommitMessage):
    """What one task wrote; in a stream also for which transaction, which the process that commits does not know otherwise."""

    stats: tuple[WriteStat, ...]
    begun: Begun | None = None
    query: str | None = None


@dataclass(frozen=True)
class Begun:
    """A transaction that travels between the processes of one write, with the data locks that are kept for it.

    `buckets` says where rows go in a table whose rows lie in buckets.
    """

    detached: Detached
    context: WriteContext
    locks: KeptLocks | None = None
    buckets: BucketPlan | None = None

    def stats_of(self, rows: Iterator[pa.RecordBatch], shared: SharedHeartbeat) -> Iterator[WriteStat]:
        """In a task: write these rows."""
        rows = batches_with_generated(rows, self.context.properties)
        if self.buckets is not None:
            return unrouted_stage(self.buckets, rows, shared)
        return insert_stage(self.context, rows, in_order=False, shared=shared)

    def with_locks(self) -> AbstractContextManager[None]:
        """Gives the data locks back when the block, which ends the transaction, is left."""
        baseline = self.detached.baseline
        return given_back(self.locks, self.context.location.uri, baseline.instant, baseline.operation)


class Sink:
    """What batch and streaming have in common. `begun` is set before the writer is shipped to the tasks.

    If the application has applied this version before (`applied`), nothing is begun, written or committed.
    """

    use = Use.BATCH_WRITE

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        overwrite: bool,
        conf: Mapping[str, str] | None = None,
        *,
        registered: bool = True,
    ) -> None:
        """`registered`: whether the writers of the driver have looked at the options, and at what an overwrite reads."""
        self.schema, self.overwrite, self.registered = schema, overwrite, registered
        self.parsed = SourceOptions.parse(options, conf, (self.use,), warn=not registered)
        self.parsed.check_mode(overwrite)
        self.application = self._numbered()
        self.begun: Begun | None = None
        self.applied = False
        self.read_before: ReadBefore | None = None
        self.new: Definition | None = None
        try:
            with self.parsed.open() as table:
                self.targets = resources_of(self.parsed.partition, table.properties)
                self.after = self._schema_after(table)
        except TableError:
            if table_exists(self.parsed.location.open()):
                raise
            self.new = self._definition(schema)
            self.targets = resources_of(self.parsed.partition, self.new.properties)
            self.after = self.new.columns

    def _definition(self, schema: StructType) -> Definition:
        """The table to make."""
        return self.parsed.stated.definition(self.parsed.location, schema)

    def _schema_after(self, table: Coordinator) -> TableSchema:
        if self.parsed.overwrite_schema:
            if not self.overwrite or self.parsed.overwrite != "table":
                raise InputError(
                    "overwriteSchema replaces the columns of all rows, so it goes with an overwrite of the whole table",
                    hint='use it with .mode("overwrite"), without overwrite=partitions; mergeSchema adds and widens columns',
                )
            return replacing_schema(table.schema(), arrow_schema(self.schema), table.properties)
        return _schema_after(table, self.schema, self.parsed.settings.write.merge_schema)

    def begin(self) -> None:
        """Begin the transaction, in the table that is made if there is none."""
        if self.new is not None:
            self.new.make(self.parsed.location, SystemRuntime(), if_not_exists=True)
        with self.parsed.open() as table:
            if self.new is not None:  # another writer may have made it meanwhile, with other columns
                self.after = self._schema_after(table)
            try:
                self.begun = self._begin(table)
            except ConflictError as error:
                self.applied = applied_instead(table, self.application, self.operation, error) is not None
                if not self.applied:
                    raise

    def _numbered(self) -> AppTransaction | None:
        """The application's number of this write, where it is known before the tasks run."""
        return None

    def _begin(self, table: Coordinator) -> Begun:
        with locked(table, self.operation, self.targets, tag=self.parsed.tag) as kept:
            # Only the tasks can tell whether these are the session's settings: the lock is recorded once they have checked.
            request = WriteRequest(self.operation, tag=self.parsed.tag, application=self.application, records_lock=False)
            with table.begin(request) as tx:
                context = tx.write_context(self.after)
                if self.overwrite and not self.registered:
                    shown = table.shown_at(tx.baseline.timeline)
                    self.read_before = ReadBefore.found(self.parsed.location.uri, shown)
                buckets = self._buckets(tx, context)
                detached = tx.detach()
            sign = SignOfLife(layout.heartbeat(detached.heartbeat.instant), detached.heartbeat.limit_s)
            locks = kept.handed_over(sign) if kept is not None else None
            return Begun(detached, context, locks, buckets)

    def _buckets(self, tx: Transaction, context: WriteContext) -> BucketPlan | None:
        index = context.properties.bucket_index
        if index is None:
            return None
        # What an overwrite replaces is not joined.
        found = () if self.overwrite else tx.snapshot().files
        files = tuple(file for file in found if not self.targets or within(file.partition, self.targets))
        return BucketPlan(context, context.schema, files, index, "add")

    @property
    def operation(self) -> str:
        if not self.overwrite:
            return "INSERT"
        return "INSERT_OVERWRITE_TABLE" if self.parsed.overwrite == "table" else "INSERT_OVERWRITE"

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """In a task: write its rows under a heartbeat; the message is what the commit needs."""
        self.parsed.ensure_session_known()
        if self.overwrite:
            self.parsed.ensure_overwrite_known()
        if self.applied:
            return TaskDone(())
        begun = self.begun
        assert begun is not None, "a writer is shipped before it writes"
        heartbeat = SharedHeartbeat.join(
            begun.context.location.open(holds_table=True), begun.detached.heartbeat, SystemRuntime()
        )
        if heartbeat is None:
            raise RolledBackError(
                f"{begun.detached.baseline.instant} was given up before this task began",
                hint="run the write again; if tasks wait long for a free slot, raise heartbeat.interval_s",
            )
        try:
            stats = tuple(begun.stats_of(iterator, heartbeat))
            heartbeat.ensure_alive()
        finally:
            heartbeat.stop(delete=False)
        return self._done(stats, begun)

    def _done(self, stats: tuple[WriteStat, ...], begun: Begun) -> TaskDone:
        return TaskDone(stats)

    def finish(
        self, begun: Begun, stats: Sequence[WriteStat], application: AppTransaction | None, query: str | None = None
    ) -> None:
        """Commit what the tasks wrote, unless the application has done so before or does so meanwhile.

        `query`: the streaming query whose batch this is, to be recorded, and the only one that may have done so.
        """
        detached = replace(begun.detached, application=application)
        with begun.with_locks(), self.parsed.open() as table:
            table.ensure_same_provider()
            try:
                with table.adopt(detached) as tx:
                    tx.keep_within(self.targets)
                    if query is not None:
                        tx.extra[QUERY] = query
                    if begun.buckets is not None:
                        _ensure_one_task_each(stats, begun.context.properties)
                    replaced = _replaced(tx, stats, self.parsed.overwrite) if self.overwrite else None
                    tx.commit(stats, schema=begun.context.schema, replaced=replaced)
            except ConflictError as error:
                applied = applied_instead(table, application, self.operation, error)
                if applied is None:
                    raise
                if application is not None and query is not None and not self.parsed.txn_replay:
                    ensure_own_batch(table, applied.instant, application, query)

    def withdraw(self, begun: Begun) -> None:
        """Remove what the tasks wrote; nothing if the commit landed after all."""
        try:
            with self.parsed.open() as table:
                table.abandon(begun.detached, "the Spark job failed")
        finally:
            # After a failed commit they have already been given back.
            if begun.locks is not None:
                begun.locks.release()


class BatchSink(Sink, DataSourceArrowWriter):
    """Append and overwrite. The process that Spark asks for it ships it to the tasks, so the transaction begins there."""

    def _numbered(self) -> AppTransaction | None:
        return numbered(self.parsed.txn_app_id, self.parsed.txn_version)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        refuse_name()
        self._refuse_rows_of_before()
        done = super().write(iterator)
        self._refuse_rows_of_before()  # only now is it certain that this task's own read has begun
        return done

    def _refuse_rows_of_before(self) -> None:
        if self.read_before is not None:
            self.read_before.refuse_rows_of_it()

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self.applied:
            assert self.begun is not None
            self.finish(self.begun, _stats(messages), self.application)

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self.begun is not None:
            self.withdraw(self.begun)


class StreamSink(Sink, DataSourceStreamWriter, DataSourceArrowWriter):
    """Appends each micro-batch exactly once. Messages bring the transaction to the process that commits.

    Spark makes another one for the commit, in a process of its own, so only that it is shipped tells which one is to begin.
    """

    use = Use.STREAM_WRITE

    @plainly
    def __getstate__(self) -> dict[str, object]:
        if self.begun is None and not self.applied:
            self.begin()
        return self.__dict__

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        refuse_name()
        return super().write(iterator)

    def _done(self, stats: tuple[WriteStat, ...], begun: Begun) -> TaskDone:
        task = TaskContext.get()
        return TaskDone(stats, begun, task.getLocalProperty(QUERY_ID) if task else None)

    def _definition(self, schema: StructType) -> Definition:
        if self.parsed.stated.partition_by is None:
            raise SettingsError(
                f"{self.parsed.location.uri} is no table yet, and a stream makes one only if it is told how to partition it: "
                "Spark does not pass on partitionBy",
                hint='.option("partition_by", "day"), or .option("partition_by", "") for none; or call '
                "lakelock.spark_plugin.register(spark) in the driver before the stream starts, which passes partitionBy on",
                key="partition_by",
            )
        return super()._definition(schema)

    def _numbered(self) -> AppTransaction | None:
        self.parsed.refuse_version()
        return None

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        done = [message for message in messages if isinstance(message, TaskDone)]
        if not done or done[0].begun is None:
            return
        query = next((message.query for message in done if message.query), None)
        application = self.parsed.application_of_stream(query, batchId)
        self.finish(done[0].begun, _stats(done), application, query if self.parsed.txn_app_id else None)

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        for message in messages:
            if isinstance(message, TaskDone) and message.begun is not None:
                self.withdraw(message.begun)
                return


def _ensure_one_task_each(stats: Sequence[WriteStat], properties: TableProperties) -> None:
    """`InputError` if two tasks had rows of one bucket: each has written a file, and there must be one."""
    counts = Counter(bucket_of_group(stat.group) for stat in stats)
    twice = next((group for group, count in counts.items() if count > 1), None)
    if twice is None:
        return
    columns = ", ".join(repr(name) for name in properties.partition_fields)
    where, gathered = (f" of the partition {twice.partition}", f"repartition({columns})") if columns else ("", "coalesce(1)")
    raise InputError(
        f"two tasks have rows for bucket {int(twice.file_id)}{where}, and a bucket is written by one task",
        hint=f"gather them first, df.{gathered}.write; or let lakelock do it: LakeTable.for_path(spark, path).insert(df), and "
        "for a stream foreachBatch(table.insert_batch)",
    )


def _stats(messages: Sequence[WriterCommitMessage | None]) -> list[WriteStat]:
    return [stat for message in messages if isinstance(message, TaskDone) for stat in message.stats]


def _schema_after(table: Coordinator, schema: StructType, merge_schema: bool) -> TableSchema:
    given = fields_with_generated(arrow_schema(schema), table.properties)
    needed = [*table.properties.record_keys, *table.properties.partition_fields]
    missing = [name for name in needed if spelled(name, given.names) is None]
    if missing:
        raise SchemaError(
            f"the key and partition columns {', '.join(missing)} are missing in the rows", hint="add them to the rows"
        )
    return check_write(table.schema(), given, merge_schema)


def _replaced(tx: Transaction, stats: Sequence[WriteStat], what: str) -> dict[str, tuple[str, ...]]:
    written = {stat.partition_path or "" for stat in stats}
    partitions = written if what == "partitions" else written | set(tx.snapshot().partitions)
    if what == "table":
        tx.reads(WholeTable())
    return tx.overwrites(partitions)
