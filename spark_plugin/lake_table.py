"""A lake table in a Spark session: write, read, look at its history."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.checked_calls import NamesElsewhere, checked_calls
from lakelock.clock import SystemRuntime
from lakelock.data_locks import Resource
from lakelock.engine.batch import compacts
from lakelock.events import Listener
from lakelock.identity import job_name
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import Definition, table_exists
from lakelock.occ.reading import QueryType, ReadView, ensure_not_future
from lakelock.occ.request import Targets, files_within, key_of, names, resources_of, within
from lakelock.settings import Settings
from lakelock.settings.resolver import setting_of
from lakelock.spark_plugin.arguments import INSTEAD, Duplicates, changed, instant_of, settings_of
from lakelock.spark_plugin.change_feed import TableChanges, merged_rows
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.hadoop import in_full, location_of, spark_path
from lakelock.spark_plugin.merge_builder import TARGET
from lakelock.spark_plugin.parquet_import import Source, is_imported
from lakelock.spark_plugin.reading import read_files, with_hidden
from lakelock.spark_plugin.source_options import ReadOptions, query_type_of
from lakelock.spark_plugin.spark_session import (
    application_in_spark,
    arrow_schema,
    columns_of,
    needs_spark,
    require_classic,
    spark_conf,
    spark_schema,
)
from lakelock.spark_plugin.table_info import TableFacts
from lakelock.spark_plugin.table_upkeep import DeltasUpkeep, MovedNames
from lakelock.spark_plugin.table_writes import TableWrites
from lakelock.storage.location import StorageLocation
from lakelock.table.partitions import PartitionValues
from lakelock.table.properties import COPY_ON_WRITE, NEWEST_VERSION
from lakelock.table.pruning import Pruning
from lakelock.table.schema import META_COLUMNS
from lakelock.table.snapshot import Snapshot


@checked_calls
class LakeTable(TableWrites, TableChanges, TableFacts, DeltasUpkeep, MovedNames, NamesElsewhere):
    """One table. Every write is a transaction of its own: it is in the table as a whole, or not at all.

    Writes that lose a conflict are run again (`retry.*`) where that is safe. Values of `options` and of the file `config`
    are settings, such as `{"lock.provider": "zookeeper://..."}`; so are Spark confs that start with `spark.lakelock.`.

    >>> table = LakeTable.for_path(spark, "s3://lake/flights")       # doctest: +SKIP
    >>> table.upsert(corrections)                                    # doctest: +SKIP
    UPSERT 20261121092737397: 12 inserted, 3,401 updated (12 files, 40.2 MB) in 1.9 s
    """

    _instead = INSTEAD

    def __init__(self, spark: SparkSession, coordinator: Coordinator, root: str) -> None:
        self._spark, self._coordinator, self._root = spark, coordinator, root

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str | Path,
        *,
        schema: StructType | DataFrame | str,
        key: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] = (),
        order_by: str | None = None,
        name: str | None = None,
        hive_style: bool = True,
        index: str | None = None,
        table_version: int = NEWEST_VERSION,
        table_type: str = COPY_ON_WRITE,
        if_not_exists: bool = False,
        config: str | Path | None = None,
        options: Mapping[str, object] | None = None,
        application: str = "",
        listeners: Sequence[Listener] = (),
    ) -> LakeTable:
        """Make an empty table and open it; `TableError` if there is one.

        `schema`: its columns, also those of a data frame, or as SQL has them: `"id bigint, place struct<x: double>"`.
        `key`: the columns that identify a row within its partition. Without one, rows are appended, changed and deleted by
        condition, and no write looks a key up: `upsert`, `merge` and a delete by keys are an `InputError`.
        `partition_by`: columns, or `years(c)`, `months(c)`, `days(c)`, `hours(c)`, `bucket(n, c)`, `truncate(n, c)`, which add
        a column `c_year`, `c_month`, `c_day`, `c_hour`, `c_bucket` or `c_prefix`, computed by every write, in UTC.
        `order_by`: of two versions of a row the one with the greater value wins; without it the later write does.
        `hive_style`: partition folders read `column=value`.
        `index="bucket:16"`: the rows of each partition lie in 16 buckets by their keys' hash, as Hudi's simple bucket index has
        them, and an upsert looks nothing up; `"bucket:16:customer"` hashes only these key columns. `index="global"`: a key
        identifies a row in the whole table, so an upsert looks into every partition, and moves a row to the one that its new
        version names. The index never changes.
        `table_version=8` is for tables that Hudi 1.0 reads and writes, too, as EMR 7 and Glue 5.1 have it.
        `table_type="MERGE_ON_READ"` is for small changes of many large files, which then get log files; it goes with neither
        `order_by` nor `index="global"`.
        `if_not_exists`: an existing table is opened, if its definition is the same and it has these columns.
        """
        require_classic(spark)
        path = in_full(spark, path)
        settings = settings_of(spark, path, config, options)
        location = StorageLocation.of(path, settings.storage)
        root = spark_path(spark, path, location.uri)
        definition = Definition.of(
            location,
            arrow_schema(columns_of(schema)),
            key=key_of(key),
            partition_by=names(partition_by),
            order_by=order_by,
            name=name,
            hive_style=hive_style,
            index=index,
            table_version=table_version,
            table_type=table_type,
        )
        made = definition.make(location, SystemRuntime(), if_not_exists=if_not_exists)
        table = cls._open(spark, root, location, settings, application, listeners)
        if not made:
            try:
                definition.check(table._coordinator.table, table._coordinator.schema())
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
        """Open a table, even one that Java Hudi created; `TableError` says why a table cannot be read.

        `application` is the name under which others see this writer. By default it is that of Spark's application, of Airflow's
        DAG and task, of Databricks' job cluster, or of the script: the first of these that is known.
        `listeners` are called with each event, in the thread that writes.
        """
        require_classic(spark)
        path = in_full(spark, path)
        settings = settings_of(spark, path, config, options)
        location = StorageLocation.of(path, settings.storage)
        return cls._open(spark, spark_path(spark, path, location.uri), location, settings, application, listeners)

    forPath = for_path  # noqa: N815 - Delta's name

    @classmethod
    def for_name(
        cls,
        spark: SparkSession,
        name: str,
        *,
        config: str | Path | None = None,
        options: Mapping[str, object] | None = None,
        application: str = "",
        listeners: Sequence[Listener] = (),
    ) -> LakeTable:
        """Open the table that has this name, `"sales.orders"`, in the catalog of the settings `catalog.*`.

        Each commit through this object updates that catalog. With no such setting the name is looked up in the session's own
        catalog, which is not updated. `TableError` if there is no such table, `CatalogError` if the catalog does not answer.
        """
        require_classic(spark)
        resolved = Settings.resolve(options or {}, spark_conf(spark), config).settings
        path = location_of(spark, name, resolved)
        given = {key: value for key, value in (options or {}).items() if setting_of(key) != "catalog.table"}
        named = given if resolved.catalog.type == "none" else {**given, "catalog.table": name}
        return cls.for_path(spark, path, config=config, options=named, application=application, listeners=listeners)

    forName = for_name  # noqa: N815 - Delta's name

    @classmethod
    def from_parquet(
        cls,
        spark: SparkSession,
        path: str | Path,
        *,
        folder: str | Path,
        key: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        order_by: str | None = None,
        name: str | None = None,
        hive_style: bool = True,
        index: str | None = None,
        duplicates: Duplicates | None = None,
        config: str | Path | None = None,
        options: Mapping[str, object] | None = None,
        application: str = "",
        listeners: Sequence[Listener] = (),
    ) -> LakeTable:
        """Make a table at `path` of the Parquet files in `folder`, which stays as it is. Their rows are written again, once.

        `partition_by`: by default as the folder is, `column=value`; `()` for none. `key`, `order_by`, `name`, `hive_style` and
        `index` as for `create`; with a `key` each key is in the table once (`duplicates` as for `upsert`). Repeat a
        call that was killed as it was; one that is repeated after it succeeded only opens the table.

        Spark makes numbers and dates of folder names that look so: `month=01` is the number 1. To keep texts, set
        `spark.sql.sources.partitionColumnTypeInference.enabled` to false. `InputError` before any work if the folder has no
        Parquet, is in the table or around it, or is a table of Hudi, Delta or Iceberg; `TableError` if `path` is another table.
        """
        require_classic(spark)
        folder, path = in_full(spark, folder), in_full(spark, path)
        source = Source.of(spark, folder, path, settings_of(spark, folder, config, options))
        partition_by = source.partition_by if partition_by is None else names(partition_by)
        if key and not cls.exists(spark, path, config=config, options=options):
            any_row = changed(settings_of(spark, path, config, options).write, duplicates=duplicates).duplicates == "any"
            within = () if index == "global" else partition_by
            source.require_keys(names(key), within, once=not any_row and order_by is None)
        table = cls.create(
            spark, path, schema=source.frame, key=key, order_by=order_by, name=name, hive_style=hive_style, index=index,
            partition_by=partition_by, if_not_exists=True, config=config, options=options,
            application=application, listeners=listeners,
        )  # fmt: skip
        try:
            if not is_imported(table._coordinator, source):
                app_id, version, tag = source.number.app_id, source.number.version, "from_parquet"
                if key:
                    table.upsert(source.frame, duplicates=duplicates, tag=tag, txn_app_id=app_id, txn_version=version)
                else:
                    table.insert(source.frame, tag=tag, txn_app_id=app_id, txn_version=version)
        except BaseException:
            table.close()
            raise
        return table

    @classmethod
    def exists(
        cls,
        spark: SparkSession,
        path: str | Path,
        *,
        config: str | Path | None = None,
        options: Mapping[str, object] | None = None,
    ) -> bool:
        """Whether there is a Hudi table at `path`. It may be one that cannot be opened: `for_path` says so."""
        require_classic(spark)
        path = in_full(spark, path)
        return table_exists(StorageLocation.of(path, settings_of(spark, path, config, options).storage).open())

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
        spark_name, run = application_in_spark(spark)
        name = application or job_name(os.environ, sys.argv, spark_name)
        coordinator = Coordinator.open(location, settings, application=name, run=run, listeners=listeners)
        compacts(coordinator)
        return cls(spark, coordinator, root)

    @needs_spark
    def read(
        self,
        where: str | Column | None = None,
        *,
        as_of: str | datetime | None = None,
        partition: Targets = None,
        include_meta: bool = False,
        query_type: QueryType | None = None,
        options: Mapping[str, object] | None = None,
    ) -> DataFrame:
        """The table as it is now, or as it was: the frame keeps this state, whatever is committed later.

        `where` chooses rows, and skips partitions and files that cannot have any. A later `.where` on the frame skips
        partitions, too. `as_of` is an instant (`result.instant`), or a time (UTC unless it says otherwise). `partition`
        (`"month=1"`) reads only these partitions or prefixes. Columns in the table's order; `include_meta` adds Hudi's five in
        front. Without it a query of this frame alone can name them, such as `_hoodie_commit_time`, where no log files are read.
        `query_type="read_optimized"` reads of a merge-on-read table the base files, without what its log files changed.
        `options` are those of `spark.read.format("lakelock")`, also in Delta's and Hudi's spellings; arguments go first.
        `InputError` for an `as_of` that is still to come.
        """
        given = ReadOptions.parse(options or {})
        moment = as_of if as_of is not None else given.as_of
        chosen = partition if partition is not None else given.partition
        table, zone = self._coordinator.table, self._coordinator.properties.timezone
        instant = None if moment is None else ensure_not_future(table, zone, instant_of(moment, zone), "as_of")
        shown = self._coordinator.shown(instant, query_type_of(given.query_type if query_type is None else query_type))
        meta = include_meta or given.include_meta
        if meta or shown.logged_within(resources_of(chosen, self._coordinator.properties)):
            return self._rows(shown, where, chosen, include_meta=meta)
        return with_hidden(self._rows(shown, where, chosen, include_meta=True), META_COLUMNS)

    def to_df(self) -> DataFrame:
        """The table as it is now, under its alias if it has one."""
        return self.read() if self._alias == TARGET else self.read().alias(self._alias)

    toDF = to_df  # noqa: N815 - Delta's name

    def alias(self, name: str) -> LakeTable:
        """This table under another name in `merge` and `to_df`: `table.alias("t").merge(df.alias("s"), "t.id = s.id")`."""
        other = copy(self)
        other._alias = name
        return other

    def _rows(self, shown: ReadView, where: str | Column | None, partition: Targets = None, *, include_meta: bool) -> DataFrame:
        """The rows of a snapshot, in these partitions, that satisfy a condition on the columns of the frame."""
        targets = resources_of(partition, self._coordinator.properties)
        snapshot, schema = shown.snapshot, shown.schema
        columns = schema.file_schema if include_meta else schema.arrow
        asked, by = spark_schema(columns), PartitionValues.of(self._coordinator.properties, columns)
        if where is None:
            frame = read_files(self._spark, self._root, files_within(snapshot, targets), asked, by)
            return self._with_logs(frame, shown, asked, targets)
        condition = Condition.of(self._spark, asked, where)
        pruning = Pruning(condition.predicate, by)
        files = [file for file in pruning.files_of(snapshot) if not targets or within(file.partition, targets)]
        frame = self._with_logs(read_files(self._spark, self._root, files, asked, by), shown, asked, targets, pruning)
        return frame.where(condition.on(frame))

    def _with_logs(
        self,
        frame: DataFrame,
        shown: ReadView,
        asked: StructType,
        targets: Sequence[Resource],
        pruning: Pruning | None = None,
    ) -> DataFrame:
        """The frame, with the rows of file slices that have log files where there are any."""
        logged = shown.logged_within(targets)
        if logged and pruning is not None:
            found = {file.group for file in pruning.files_of(Snapshot(each.as_file for each in logged))}
            logged = [each for each in logged if each.as_file.group in found]
        if not logged:
            return frame
        rows = shown.merged(arrow_schema(asked))
        return frame.union(merged_rows(self._spark, self._coordinator.table.location, rows, logged))

    def close(self) -> None:
        """Release the lock service. Data frames that were read stay usable."""
        self._coordinator.close()

    def __enter__(self) -> LakeTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LakeTable({self.path!r})"
