"""A lake table in a Spark session: write, read, look back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakelock.clock import SystemRuntime
from lakelock.data_locks import Resource
from lakelock.errors import InputError
from lakelock.events import Listener
from lakelock.occ.committed import Committed
from lakelock.occ.conflicts.footprint import AppTransaction
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.history import HistoryEntry
from lakelock.occ.retrying import applied_instead, with_retries
from lakelock.occ.targets import Targets, resources_of, target_of_condition
from lakelock.occ.transaction import Transaction
from lakelock.settings import MissingColumns, Settings, WriteSettings
from lakelock.spark_plugin import creating, streaming
from lakelock.spark_plugin.arguments import HISTORY, Duplicates, changed, instant_of, names, numbered, plain, settings_of
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import require_batch, require_classic, spark_schema
from lakelock.spark_plugin.locations import spark_path
from lakelock.spark_plugin.locking import LockedReads
from lakelock.spark_plugin.lost_spark import needs_spark, outcome_told, require_running
from lakelock.spark_plugin.reading import read_files
from lakelock.spark_plugin.results import WriteResult
from lakelock.spark_plugin.transactions import LakeTransaction
from lakelock.spark_plugin.writing import deleting, inserting, overwriting, upserting
from lakelock.spark_plugin.writing.attempt import Attempt, Write
from lakelock.storage.location import StorageLocation
from lakelock.table.changes import read_changes
from lakelock.table.schema import COMMIT_TIME


class LakeTable(LockedReads):
    """One table. Every write is a transaction of its own: it is in the table as a whole, or not at all.

    Writes that lose a conflict are run again (`retry.*`) where that is sound. Values of `options` and of the file `config`
    are settings, such as `{"lock.provider": "zookeeper://..."}`; so are Spark confs that start with `spark.lakelock.`.

    >>> table = LakeTable.for_path(spark, "s3://lake/flights")       # doctest: +SKIP
    >>> table.upsert(corrections)                                    # doctest: +SKIP
    UPSERT 20261121092737397: 12 inserted, 3,401 updated (12 files, 40.2 MB) in 1.9 s
    """

    def __init__(self, spark: SparkSession, coordinator: Coordinator, root: str) -> None:
        self._spark, self._coordinator, self._root = spark, coordinator, root
        self._runtime = coordinator.table.runtime

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str | Path,
        *,
        schema: StructType | DataFrame,
        key: str | Sequence[str],
        partition_by: str | Sequence[str] = (),
        order_by: str | None = None,
        name: str | None = None,
        hive_style: bool = True,
        if_not_exists: bool = False,
        config: str | Path | None = None,
        options: Mapping[str, object] | None = None,
        application: str = "",
        listeners: Sequence[Listener] = (),
    ) -> LakeTable:
        """Make an empty table and open it; `TableError` if there is one.

        `key`: the columns that identify a row within its partition. `order_by`: of two versions of a row the one with the
        greater value wins; without it the later write does. `hive_style`: partition folders read `column=value`.
        `if_not_exists`: a table that is there already is opened, if its definition is the same and it has these columns.
        """
        require_classic(spark)
        settings = settings_of(spark, config, options)
        location = StorageLocation.of(path, settings.storage)
        root = spark_path(spark, path, location.uri)
        definition = creating.Definition.of(
            location,
            schema.schema if isinstance(schema, DataFrame) else schema,
            key=names(key),
            partition_by=names(partition_by),
            order_by=order_by,
            name=name,
            hive_style=hive_style,
        )
        made = definition.make(location, SystemRuntime(), if_not_exists=if_not_exists)
        table = cls._open(spark, root, location, settings, application, listeners)
        if not made:
            try:
                definition.check(table._coordinator)
            except BaseException:
                table.close()
                raise
        return table

    @classmethod
    def for_path(
        cls,
        spark: SparkSession,
        path: str | Path,
        *,
        config: str | Path | None = None,
        options: Mapping[str, object] | None = None,
        application: str = "",
        listeners: Sequence[Listener] = (),
    ) -> LakeTable:
        """Open a table, also one that Java Hudi made; `TableError` says why a table cannot be read.

        `application` is the name under which others see this writer (default: Spark's application name). `listeners`
        are called with each event, in the thread that writes.
        """
        require_classic(spark)
        settings = settings_of(spark, config, options)
        location = StorageLocation.of(path, settings.storage)
        return cls._open(spark, spark_path(spark, path, location.uri), location, settings, application, listeners)

    @classmethod
    def _open(
        cls,
        spark: SparkSession,
        root: str,
        location: StorageLocation,
        settings: Settings,
        application: str,
        listeners: Sequence[Listener],
    ) -> LakeTable:
        name = application or spark.sparkContext.appName or ""
        coordinator = Coordinator.open(location, settings, application=name, listeners=listeners)
        return cls(spark, coordinator, root)

    @needs_spark
    def insert(
        self,
        df: DataFrame,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Append the rows. Keys are not looked up: a key that the table has already is then there twice.

        `partition` (of every write): the partitions or prefixes that it is for, such as `"month=1"` or `{"month": 1}`. Rows
        for another are an `InputError`, and in PESSIMISTIC mode only these are locked, not the whole table.

        `txn_app_id` and `txn_version` (of every write, both or neither): the job's name and its own number of this write, as
        Delta's `txnAppId` and `txnVersion`. Once this number or a greater one is in the table the write does nothing, and
        the result says `already_applied`.
        """
        write = partial(inserting.insert, df=require_batch(df, "insert"))
        txn, settings = numbered(txn_app_id, txn_version), changed(self._settings, merge_schema)
        return self._write("INSERT", write, partition=partition, settings=settings, tag=tag, txn=txn)

    @needs_spark
    def upsert(
        self,
        df: DataFrame,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        duplicates: Duplicates | None = None,
        missing_columns: MissingColumns | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Insert the rows whose keys the table lacks, replace the others; the newest by `order_by` wins.

        A key that comes more than once in `df` with no newest row is a `DuplicateKeyError`, unless `duplicates="any"`.
        If `df` lacks columns of the table it is a `SchemaError`, unless `missing_columns="keep"` (rows that are replaced keep
        the stored values of these columns, new ones have null there) or `"null"` (all have null there).
        """
        write = partial(upserting.upsert, df=require_batch(df, "upsert"))
        txn = numbered(txn_app_id, txn_version)
        settings = changed(self._settings, merge_schema, duplicates, missing_columns)
        return self._write("UPSERT", write, partition=partition, settings=settings, tag=tag, txn=txn)

    @needs_spark
    def delete(
        self,
        what: str | Column | DataFrame,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Delete the rows that satisfy a condition, or those whose key and partition columns are in a data frame."""
        txn = numbered(txn_app_id, txn_version)
        if isinstance(what, str | Column):
            write: Write = partial(deleting.delete_where, condition=Condition.of(self._spark, self.schema, what))
            return self._write("DELETE", write, partition=partition, where=what, tag=tag, txn=txn)
        write = partial(upserting.delete_keys, df=require_batch(what, "delete"))
        return self._write("DELETE", write, partition=partition, tag=tag, txn=txn)

    @needs_spark
    def overwrite_partitions(
        self,
        df: DataFrame,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Replace the whole content of every partition that `df` has rows for; the others stay as they are."""
        write = partial(overwriting.overwrite_partitions, df=require_batch(df, "overwrite_partitions"))
        txn, settings = numbered(txn_app_id, txn_version), changed(self._settings, merge_schema)
        return self._write("INSERT_OVERWRITE", write, partition=partition, settings=settings, tag=tag, txn=txn)

    @needs_spark
    def overwrite(
        self,
        df: DataFrame,
        where: str | Column | None = None,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Replace the rows that satisfy `where` by `df`, whose rows must all satisfy it; without `where` the whole table."""
        require_batch(df, "overwrite")
        txn, settings = numbered(txn_app_id, txn_version), changed(self._settings, merge_schema)
        if where is None:
            if partition is not None:
                hint = "name the rows to replace by where=..., or use overwrite_partitions(df, partition=...)"
                raise InputError("an overwrite of the whole table takes no partition", hint=hint)
            write: Write = partial(overwriting.overwrite_table, df=df)
            return self._write("INSERT_OVERWRITE_TABLE", write, settings=settings, tag=tag, txn=txn)
        write = partial(overwriting.overwrite_where, df=df, condition=Condition.of(self._spark, self.schema, where))
        return self._write("UPSERT", write, partition=partition, where=where, settings=settings, tag=tag, txn=txn)

    @needs_spark
    def read(self, *, as_of: str | datetime | None = None, include_meta: bool = False) -> DataFrame:
        """The table as it is now, or was: the frame keeps to this state, whatever is committed later.

        `as_of` is an instant (`result.instant`), or a time (UTC unless it says otherwise). Columns in the table's order;
        `include_meta` adds Hudi's five in front.
        """
        snapshot = self._coordinator.snapshot(None if as_of is None else instant_of(as_of))
        schema = self._coordinator.schema()
        columns = schema.file_schema if include_meta else schema.arrow
        return read_files(self._spark, self._root, snapshot.files, spark_schema(columns))

    @needs_spark
    def changes(self, since: str | datetime, *, until: str | datetime | None = None) -> DataFrame:
        """The rows, in their newest version, that commits changed which completed after the instant or time `since`.

        With Hudi's five columns in front: `_hoodie_commit_time` is the instant of the change. Deleted rows do not appear.
        """
        table = self._coordinator.table
        timeline = table.timeline_of_one_moment()
        begin, end = (None if moment is None else instant_of(moment) for moment in (since, until))
        started = timeline.write_at(begin or "")
        changes = read_changes(table.storage, timeline, (started.completion if started else None) or begin or "", end)
        frame = read_files(self._spark, self._root, changes.files, spark_schema(self._coordinator.schema().file_schema))
        return frame.where(F.col(COMMIT_TIME).isin([instant.requested for instant in changes.instants]))

    @needs_spark
    def history(self, limit: int = 1000) -> DataFrame:
        """The newest commits, newest first: who, when, what, how much, how long."""
        entries = self._coordinator.history(limit)
        rows = [tuple(plain(getattr(entry, f.name)) for f in fields(HistoryEntry)) for entry in entries]
        return self._spark.createDataFrame(rows, HISTORY)

    def transaction(
        self,
        operation: str = "UPSERT",
        *,
        partition: Targets = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> LakeTransaction:
        """Read, compute and write as one: `with table.transaction() as tx:`. Committed when the block ends without error.

        `partition` is where it may write. In PESSIMISTIC mode that, or the whole table, is locked from the beginning.
        With `txn_app_id` and `txn_version` the whole of it is applied once: then `tx.already_applied` is True in the block,
        whose writes do nothing.
        """
        application = numbered(txn_app_id, txn_version)
        targets = resources_of(partition, self._coordinator.properties)
        begin = partial(self._begin, operation, targets)
        instead = partial(applied_instead, self._coordinator, application, operation)
        return LakeTransaction(begin, self._attempt, application, instead)

    def _begin(
        self, operation: str, targets: tuple[Resource, ...], application: AppTransaction | None, stack: ExitStack
    ) -> Transaction:
        require_running(self._spark)
        coordinator = self._coordinator
        coordinator.ensure_same_provider()
        stack.enter_context(coordinator.data.writing(operation, targets))
        tx = coordinator.begin(operation, application=application)
        tx.keep_within(targets)
        return tx

    def upsert_batch(self, df: DataFrame, batch_id: int, *, missing_columns: MissingColumns | None = None) -> None:
        """For `writeStream.foreachBatch`: upsert each micro-batch exactly once, however often Spark replays it.

        `missing_columns` is that of `upsert`, to be set with `functools.partial`.
        """
        settings, txn = changed(self._settings, missing_columns=missing_columns), streaming.micro_batch(df, batch_id)
        self._write("UPSERT", partial(upserting.upsert, df=df), settings=settings, txn=txn)

    def insert_batch(self, df: DataFrame, batch_id: int) -> None:
        """For `writeStream.foreachBatch`: append each micro-batch exactly once, however often Spark replays it."""
        self._write("INSERT", partial(inserting.insert, df=df), txn=streaming.micro_batch(df, batch_id))

    @property
    def schema(self) -> StructType:
        """The table's columns now."""
        return spark_schema(self._coordinator.schema().arrow)

    @property
    def path(self) -> str:
        return self._coordinator.table.storage.uri

    def close(self) -> None:
        """Let go of the lock service. Reads that were made stay usable."""
        self._coordinator.close()

    def __enter__(self) -> LakeTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LakeTable({self.path!r})"

    def _write(
        self,
        operation: str,
        write: Write,
        *,
        partition: Targets = None,
        where: str | Column | None = None,
        settings: WriteSettings | None = None,
        tag: str = "",
        txn: AppTransaction | None = None,
    ) -> WriteResult:
        require_running(self._spark)
        coordinator = self._coordinator
        likely: tuple[Resource, ...] = ()
        if isinstance(where, str) and coordinator.data.for_writes:
            likely = target_of_condition(where, coordinator.schema().arrow, coordinator.properties)

        def work(tx: Transaction) -> Committed:
            told = outcome_told(self._spark, tx, coordinator.table.storage.uri)
            with told, closing(replace(self._attempt(tx), settings=settings or self._settings)) as attempt:
                written = write(attempt)
                return tx.commit(written.stats, schema=written.schema, replaced=written.replaced)

        done = with_retries(coordinator, operation, work, application=txn, tag=tag, partition=partition, likely=likely)
        return WriteResult.of(done)

    @property
    def _settings(self) -> WriteSettings:
        return self._coordinator.table.settings.write

    def _attempt(self, tx: Transaction) -> Attempt:
        storage = self._coordinator.table.storage
        return Attempt(self._spark, tx, storage, self._root, self._runtime, self._settings)
