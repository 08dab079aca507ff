"""What a table tells of itself: its history and details as data frames, its columns, its name in a catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.catalogs import Synced
from lakelock.checked_calls import checked_calls
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.history import HistoryEntry
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.session.lost_spark import needs_spark
from lakelock.table.eligibility import why_not_merged
from lakelock.table.instants import time_of

HISTORY = (
    "instant string, completion string, timestamp timestamp, decision bigint, operation string, action string, writer string, "
    "application string, tag string, files int, partitions int, rows_inserted bigint, rows_updated bigint, "
    "rows_deleted bigint, size_bytes bigint, took_s double, lock_wait_s double, lock_s double, lock_requests long, "
    "files_kept int, transaction string, phases map<string,double>"
)
DETAIL = (
    "name string, location string, table_version int, key array<string>, partition_by array<string>, order_by string, "
    "index string, hive_style boolean, files bigint, partitions bigint, size_bytes bigint, newest_instant string, "
    "last_modified timestamp"
)


@checked_calls
class TableFacts:
    """The part of a `LakeTable` that tells about it, and tells others."""

    _spark: SparkSession
    _coordinator: Coordinator

    @needs_spark
    def history(self, limit: int = 1000) -> DataFrame:
        """The newest commits, newest first: who, when, what, how much, how long. `timestamp` is when it was completed."""
        rows = rows_of_history(self._coordinator.history(limit), self._coordinator.properties.timezone)
        return self._spark.createDataFrame(rows, HISTORY)

    @needs_spark
    def detail(self) -> DataFrame:
        """One row about the table: its name, columns with a role, size, and newest commit."""
        return self._spark.createDataFrame([row_of_detail(self._coordinator)], DETAIL)

    @property
    def schema(self) -> StructType:
        """The table's columns now."""
        return spark_schema(self._coordinator.schema().arrow)

    @property
    def path(self) -> str:
        """The table's URI in its one spelling."""
        return self._coordinator.table.storage.uri

    def register(self, name: str = "") -> Synced:
        """Give the table this name, `"sales.orders"`, in the catalog of the settings `catalog.*`, or bring it up to date.

        Columns, partitions and the newest commit are told as Hudi's own sync tells them, so Spark, Hive, Trino and Athena find
        the table. Each later commit through this object tells the catalog, too; other writers do so if `catalog.table` is
        among their settings. `InputError` if the name is another table's, `CatalogError` if the catalog does not answer.

        >>> table.register("sales.orders")                               # doctest: +SKIP
        sales.orders registered as of 20261121092737397: 12 partitions added, 0 dropped
        """
        return self._coordinator.register(name)

    def require_profile(self) -> None:
        """Refuse writers with a weaker `concurrency.profile` than this object's from now on. Open writers keep theirs."""
        concurrency = self._coordinator.table.settings.concurrency
        self._coordinator.require_profile(concurrency.profile, concurrency.isolation)


def rows_of_history(entries: Sequence[HistoryEntry], zone: str) -> list[tuple[object, ...]]:
    """The rows of `HISTORY`; `zone` is that of the table's instants."""
    return [
        (e.instant, e.completion, time_of(e.completion or e.instant, zone), *(plain(getattr(e, name)) for name in _AFTER_TIMES))
        for e in entries
    ]


_AFTER_TIMES = [field.name for field in fields(HistoryEntry)][2:]


def row_of_detail(table: Coordinator) -> tuple[object, ...]:
    """The row of `DETAIL`. `newest_instant` and `last_modified` are those of the newest commit, None where there is none.

    The files are those that a read opens: of a merge-on-read table the log files, too, if lakelock can merge them.
    """
    found = table.properties
    merged = found.is_merge_on_read and why_not_merged(found) is None
    shown = table.shown(query_type="snapshot" if merged else "read_optimized")
    logged = [(each.partition, file) for each in shown.logged for file in (each.base, *each.logs) if file is not None]
    files = [*((file.partition, file) for file in shown.snapshot.files), *logged]
    newest = max(table.table.timeline().commits, key=lambda i: i.completion or i.requested, default=None)
    index = found.index
    return (
        found.name,
        table.table.storage.uri,
        found.version,
        list(found.record_keys),
        list(found.partition_by),
        found.ordering_field,
        None if index is None else str(index),
        found.hive_style,
        len(files),
        len({partition for partition, _ in files}),
        sum(file.size_bytes for _, file in files),
        newest.requested if newest else None,
        time_of(newest.completion or newest.requested, found.timezone) if newest else None,
    )


def plain(value: object) -> object:
    """An enumeration's text as a plain string, the only kind that Spark 4.0 accepts."""
    return str(value) if isinstance(value, str) else value
