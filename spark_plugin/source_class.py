"""`format("lakelock")`: batch read, append and overwrite, a streaming source and a streaming sink.

Spark imports this module in every Python worker, so it imports next to nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lakelock.errors import LakelockError
from lakelock.spark_plugin.source_errors import plainly
from lakelock.spark_plugin.supported import no_data_sources

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lakelock.spark_plugin.source_reader import LakelockReader
    from lakelock.spark_plugin.source_sink import BatchSink, StreamSink


try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader
except ModuleNotFoundError as error:
    raise no_data_sources() from error


class LakelockDataSource(DataSource):
    """Read a lake table, append to it, overwrite it, or stream from or into it.

    Name: `lakelock`. Options: `path` (required); `as_of` and `include_meta` for reads; `overwrite` (`table`, the default, or
    `partitions`) for mode overwrite, or Spark's own `partitionOverwriteMode` (`static` or `dynamic`), also as its conf;
    `change_feed` (`true`) reads what each commit changed, in a batch with `since` and perhaps `until`: instants, times, or
    values of `_commit_version`. A stream begins with the rows that the table has, or with `since` (also `latest`) after that;
    without `change_feed` it tells appended rows, and `skip_change_commits` passes over commits that changed others;
    `max_files_per_trigger` bounds a micro-batch, but commits come whole.
    `partition` (`month=1`), outside which no row is read or written; `txn_app_id` and `txn_version`, which make a batch write
    apply once (a stream takes the name alone, and with `txn_replay` passes over what another checkpoint has applied);
    `application`, `config` (a file), and every setting, such as `lock.provider` or `concurrency.mode`.
    `key`, `partition_by`, `order_by`, `name`, `hive_style` and `index`, as in `LakeTable.create`, with commas between columns,
    make the table if a write finds none, and must be true of one that it finds. A stream needs `partition_by` for that, perhaps
    empty. `operation` is Hudi's, `insert` by default; with a record key by Hudi's name it is `upsert`.
    An option that does nothing in what Spark is doing, such as `as_of` in a write, is an error.
    Delta's and Hudi's spellings are taken where they mean the same, and otherwise answered by what to type.
    Spark confs (`spark.lakelock.*`) reach it by `lakelock.spark_plugin.register(spark)`. Where a session sets some and
    `register` was not called, or they have changed since, a write fails in its first task, before it writes anything.

    A read opens every file and reads every column, whatever the query asks for, unless `partition` and `.schema(...)` say less.
    In a table whose rows lie in buckets, the rows to write for one bucket must be in one task: `df.repartition("month")`.

    All operations but `insert` need the driver: it runs them after `register(spark)`, otherwise they are an error.

    Examples
    --------
    >>> lakelock.spark_plugin.register(spark)                                                   # doctest: +SKIP
    >>> spark.read.format("lakelock").option("as_of", "2026-11-20 12:00").load("s3://lake/t")   # doctest: +SKIP
    >>> df.write.format("lakelock").mode("append").save("s3://lake/t")                          # doctest: +SKIP
    """

    conf: ClassVar[Mapping[str, str]] = {}
    """The session's confs under `spark.lakelock.`, as far as they are known."""
    drivers_writers: ClassVar[bool] = False
    """Whether the writers of the driver look at the options first (`register`)."""

    def __init__(self, options: Any) -> None:
        self.options = dict(options)
        self._all_columns = False

    @classmethod
    def name(cls) -> str:
        return "lakelock"

    @plainly
    def schema(self) -> StructType:
        from lakelock.spark_plugin.source_reader import schema_of

        # Spark does not ask where the user names columns. It ships this object to the reader afterwards.
        self._all_columns = True
        return schema_of(self.options, self.conf)

    @plainly
    def reader(self, schema: StructType) -> LakelockReader:
        from lakelock.spark_plugin.source_reader import LakelockReader

        return LakelockReader(self.options, schema, self.conf)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from lakelock.spark_plugin.source_reader import LakelockStreamReader, RefusedStream

        try:
            return LakelockStreamReader(self.options, schema, self.conf, all_columns=self._all_columns)
        except LakelockError as error:
            return RefusedStream(error)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        from lakelock.spark_plugin.source_sink import BatchSink

        sink = BatchSink(self.options, schema, overwrite, self.conf, registered=self.drivers_writers)
        sink.begin()
        return sink

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        from lakelock.spark_plugin.source_sink import StreamSink

        return StreamSink(self.options, schema, overwrite, self.conf)
