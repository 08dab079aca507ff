"""The rows of a change feed: the table's columns, and three about each change, named as in Delta's change data feed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakelock.errors import TableError
from lakelock.storage import Storage
from lakelock.table.change_feed.comparing import CHANGE_TYPE, changes_in
from lakelock.table.change_feed.units import Unit, version_of
from lakelock.table.instants import time_of
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, TableSchema

COMMIT_VERSION = "_commit_version"
"""The place of the commit in the feed: the digits of its completion time, which grow from commit to commit."""
COMMIT_TIMESTAMP = "_commit_timestamp"
"""When the commit became visible."""
STAMPS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY)
_TOLD = pa.schema([(CHANGE_TYPE, pa.string()), (COMMIT_VERSION, pa.int64()), (COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"))])


def feed_schema(schema: TableSchema) -> pa.Schema:
    """The columns of the feed; `TableError` if the table has a column of one of the added names."""
    taken = [name for name in _TOLD.names if name in schema.names]
    if taken:
        raise TableError(
            f"the change feed adds the columns {', '.join(_TOLD.names)}, and the table has {', '.join(taken)} itself",
            hint="rename the table's column; without before-images table.changes(since) works as it is",
        )
    return pa.schema([*schema.arrow, *_TOLD])


@dataclass(frozen=True)
class FeedRows:
    """Reads the changed rows of units, on any machine. `times_us` are the moments of the positions, since 1970."""

    schema: TableSchema
    times_us: Mapping[str, int]
    stamped: bool = False

    @classmethod
    def of(cls, schema: TableSchema, units: Iterable[Unit], zone: str, *, stamped: bool = False) -> FeedRows:
        """`zone` is that of the table's instants. With `stamped` each row begins with `STAMPS`."""
        positions = {unit.position for unit in units}
        return cls(schema, {each: round(time_of(each, zone).timestamp() * 1_000_000) for each in positions}, stamped)

    @property
    def columns(self) -> pa.Schema:
        stamps = [pa.field(name, pa.string()) for name in (STAMPS if self.stamped else ())]
        return pa.schema([*stamps, *feed_schema(self.schema)])

    def read(self, unit: Unit, storage: Storage) -> Iterator[pa.Table]:
        """The changed rows of one unit, in batches. `SnapshotTooOld` if they were cleaned."""
        time = pa.scalar(self.times_us[unit.position], _TOLD.field(COMMIT_TIMESTAMP).type)
        version = pa.scalar(version_of(unit.position), pa.int64())
        for rows in changes_in(unit, self.schema, storage, stamped=self.stamped):
            told = rows
            for name, value in ((COMMIT_VERSION, version), (COMMIT_TIMESTAMP, time)):
                told = told.append_column(name, pa.repeat(value, rows.num_rows))
            yield told.cast(self.columns)
