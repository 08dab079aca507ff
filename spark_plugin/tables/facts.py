"""What a table tells of itself, as the rows of data frames: its history and its details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from lakelock.occ.coordinator import Coordinator
from lakelock.occ.outcomes.history import HistoryEntry
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


def rows_of_history(entries: Sequence[HistoryEntry], zone: str) -> list[tuple[object, ...]]:
    """The rows of `HISTORY`; `zone` is that of the table's instants."""
    return [
        (e.instant, e.completion, time_of(e.completion or e.instant, zone), *(plain(getattr(e, name)) for name in _AFTER_TIMES))
        for e in entries
    ]


_AFTER_TIMES = [field.name for field in fields(HistoryEntry)][2:]


def row_of_detail(table: Coordinator) -> tuple[object, ...]:
    """The row of `DETAIL`. `newest_instant` and `last_modified` are those of the newest commit, None where there is none."""
    found, files = table.properties, table.snapshot().files
    newest = max(table.table.timeline().commits, key=lambda i: i.completion or i.requested, default=None)
    index = found.bucket_index
    return (
        found.name,
        table.table.storage.uri,
        found.version,
        list(found.record_keys),
        list(found.partition_fields),
        found.ordering_field,
        None if index is None else str(index),
        found.hive_style,
        len(files),
        len({file.partition for file in files}),
        sum(file.size_bytes for file in files),
        newest.requested if newest else None,
        time_of(newest.completion or newest.requested, found.timezone) if newest else None,
    )


def plain(value: object) -> object:
    """An enumeration's text as a plain string, the only kind that Spark 4.0 accepts."""
    return str(value) if isinstance(value, str) else value
