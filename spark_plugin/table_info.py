"""What a `LakeTable` tells of itself: its history, details and locks as data frames, its columns, its name in a catalog.

Reads that keep writers away, and the data locks of several steps, are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from datetime import datetime, timezone
from typing import Any, Protocol, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.admin.shown_locks import LockRow, explained_locks, shown_locks
from lakelock.catalogs import Synced
from lakelock.checked_calls import checked, checked_calls
from lakelock.data_locks import LockRequest
from lakelock.errors import InputError
from lakelock.identity import OTHER_ENGINE
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.data_locking import DataLocking, holding_together
from lakelock.occ.history import HistoryEntry
from lakelock.occ.request import Targets, resources_of
from lakelock.spark_plugin.spark_session import needs_spark, spark_schema
from lakelock.table.eligibility import why_not_merged
from lakelock.table.instants import time_of

HISTORY = (
    "instant string, completion string, timestamp timestamp, decision bigint, operation string, action string, writer string, "
    "application string, tag string, files int, partitions int, rows_inserted bigint, rows_updated bigint, "
    "rows_deleted bigint, size_bytes bigint, took_s double, lock_wait_s double, lock_s double, lock_requests long, "
    "files_kept int, transaction string, phases map<string,double>, retries int, job string, ran_on string, "
    "members array<struct<writer:string,tag:string,rows:bigint,inserted:bigint,updated:bigint,deleted:bigint>>"
)
IN_SHORT = "instant string, completed string, writer string, operation string, rows bigint, took_s double, retries int"
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
    def history(self, limit: int = 1000, *, full: bool = False) -> DataFrame:
        """The newest commits, newest first: when, who, what, how many rows, how long, after how many retries.

        `completed` is a time to the second, `writer` the job, and `rows` what was inserted, updated and deleted, together. With
        `full` all that is known of each: exact times (`timestamp`), tags, counts, files, and what the lock and each phase took.
        """
        entries, zone = self._coordinator.history(limit), self._coordinator.properties.timezone
        if full:
            return self._spark.createDataFrame(rows_of_history(entries, zone), HISTORY)
        rows = [
            (e.instant, time_of(e.completion or e.instant, zone).strftime("%Y-%m-%d %H:%M:%S"), e.job or OTHER_ENGINE,
             str(e.operation), e.rows, e.took_s, e.retries)
            for e in entries
        ]  # fmt: skip
        return self._spark.createDataFrame(rows, IN_SHORT)

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

        Columns, partitions and the newest commit are written as Hudi's own sync writes them, so Spark, Hive, Trino and Athena
        find the table. Each later commit through this object updates the catalog; other writers do so if `catalog.table` is
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
    """An enumeration's text as a plain string, the only kind that Spark 4.0 accepts, and structs as tuples."""
    if isinstance(value, tuple):
        return [astuple(each) for each in value]
    return str(value) if isinstance(value, str) else value


LOCKS = (
    "lock_id string, kind string, database string, table string, partition string, state string, type string, "
    "blocked_by string, instant string, last_heartbeat timestamp, acquired_at timestamp, user string, host string, "
    "agent_info string, token bigint"
)
EXTENDED = f"{LOCKS}, since timestamp, lease_s double, left_s double, pid bigint, writer_id string"
EXPLAINED = "number int, database string, table string, partition string, type string"


@checked_calls
class Locks:
    """`table.locks`: the locks of a `LakeTable`, who holds them, and what waits for them."""

    def __init__(self, spark: SparkSession, coordinator: Coordinator, rows: Callable[..., DataFrame]) -> None:
        self._spark, self._coordinator, self._rows = spark, coordinator, rows

    @contextmanager
    def reading(self, *, partition: Targets = None, include_meta: bool = False) -> Iterator[DataFrame]:
        """`with table.locks.reading(partition="month=1") as df:` — read while no PESSIMISTIC writer changes what is read.

        Shared locks on the table and on the partitions that are read are held until the block ends: run the actions in it.
        """
        coordinator = self._coordinator
        named = resources_of(partition, coordinator.properties)
        with coordinator.data.holding_for("SELECT", named):
            yield self._rows(coordinator.shown(), None, partition, include_meta=include_meta)

    @contextmanager
    def locked(self, operation: str = "INSERT", *, partition: Targets = None) -> Iterator[None]:
        """Hold the data locks of an operation for several steps of your own.

        Writes inside the block that need no other locks do not wait; those that need more are refused at once.
        A write through `format("lakelock")` counts as a different writer: give it `concurrency.mode=OPTIMISTIC`.
        """
        coordinator = self._coordinator
        targets = resources_of(partition, coordinator.properties)
        with coordinator.data.holding_for(operation, targets):
            yield

    def request(self, operation: str, partition: Targets = None) -> tuple[DataLocking, LockRequest]:
        """The locks that an operation on this table needs, for `locked_together`."""
        data = self._coordinator.data
        return data, data.request(operation, resources_of(partition, self._coordinator.properties))

    @checked
    @needs_spark
    def __call__(self, *, partition: Targets = None, extended: bool = False) -> DataFrame:
        """Who holds the table's locks and reservations, who waits for them, and for whom, in the columns of Hive's SHOW LOCKS.

        `extended` adds columns, and the shared locks on a partition's ancestors.
        """
        targets = resources_of(partition, self._coordinator.properties)
        rows = [_cells(row) for row in shown_locks(self._coordinator, targets, extended=extended)]
        width = len(EXTENDED.split(",")) if extended else len(LOCKS.split(","))
        return self._spark.createDataFrame([row[:width] for row in rows], EXTENDED if extended else LOCKS)

    @needs_spark
    def explain(self, operation: str, *, partition: Targets = None) -> DataFrame:
        """The data locks that an operation would take, in their order; takes none (EXPLAIN LOCKS).

        `table.locks.explain("INSERT OVERWRITE PARTITION (month=1, day)")`, `table.locks.explain("read", partition="month=1")`.
        """
        rows = [astuple(row) for row in explained_locks(self._coordinator, operation, partition)]
        return self._spark.createDataFrame(rows, EXPLAINED)


class Lockable(Protocol):
    """A `LakeTable`."""

    @property
    def locks(self) -> Locks: ...


@contextmanager
def locked_together(*statement: tuple[Lockable, str] | tuple[Lockable, str, Targets]) -> Iterator[None]:
    """Hold the data locks of one statement over several tables: all of them or none, and none while it waits.

    `with locked_together((t1, "SELECT", "month=1"), (t2, "INSERT", "month=2")):` takes Hive's locks for an INSERT into t2 that
    selects from t1. Each part names a table, an operation and, where they are known, its partitions. Inside, reads and writes
    that need no other locks do not wait. How long the request waits is set by `data_locks.*` of the first table.
    """
    with holding_together([_requested(part) for part in statement]):
        yield


def _requested(part: Any) -> tuple[DataLocking, LockRequest]:
    """What one part of a statement needs; `InputError` if it names no table and operation."""
    match part:
        case (table, str(operation), *partition) if len(partition) < 2 and isinstance(getattr(table, "locks", None), Locks):
            return cast(Lockable, table).locks.request(operation, *partition)
    raise InputError(
        f"{part!r} is no part of a statement",
        hint='each part names a table and an operation: locked_together((orders, "SELECT"), (stock, "INSERT", "p=1"))',
    )


def _cells(row: LockRow) -> tuple[object, ...]:
    times = {
        name: None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, timezone.utc)
        for name, at_ms in vars(row).items()
        if name.endswith("_ms")
    }
    return tuple(times.get(name, value) for name, value in vars(row).items())
