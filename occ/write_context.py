"""Plain values that carry an open transaction to other processes: to the tasks that write its files, and to its next driver.

`OwnWrites` is what the transaction has written so far. Its next write may rewrite these files before they are committed. A
file group still gets one file: the commit counts the newest, and removes the others as it removes those of failed tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakelock.identity import WriterIdentity
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ.begin import Baseline
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.open_table import OpenTable
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation, TableIO, requests_at_once
from lakelock.table.base_files import Stamp
from lakelock.table.commit_metadata import UNKNOWN, FileStatistics, WriteStat
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot


@dataclass(frozen=True)
class OwnFile:
    """A file of this transaction, and the one of the table from which it was made; None in a new file group."""

    file: DataFile
    made_from: DataFile | None


@dataclass(frozen=True)
class OwnWrites:
    """The files of a transaction's writes up to now: one for each file group, which counts the rows of all writes."""

    stats: tuple[WriteStat, ...] = ()

    def followed_by(self, stats: Iterable[WriteStat]) -> OwnWrites:
        """With the files of a later write."""
        found = {stat.group: stat for stat in self.stats}
        for stat in stats:
            before = found.get(stat.group)
            found[stat.group] = stat if before is None else _merged(before, stat)
        return OwnWrites(tuple(found.values()))

    def over(self, snapshot: Snapshot) -> Snapshot:
        """What the next write sees, where this is the snapshot from which the transaction began."""
        files = [(_own_file(stat, snapshot), stat) for stat in self.stats]
        rows = {file: UNKNOWN if file.logs else FileStatistics(rows=stat.num_writes) for file, stat in files}
        return snapshot.with_files(rows) if rows else snapshot

    def files(self, snapshot: Snapshot) -> tuple[OwnFile, ...]:
        """All files."""
        return tuple(OwnFile(_own_file(stat, snapshot), snapshot.group(stat.group)) for stat in self.stats)


def _own_file(stat: WriteStat, snapshot: Snapshot) -> DataFile:
    """The file, or, where a log file was appended, the slice with it."""
    path, size_bytes = stat.path or "", stat.file_size_bytes or 0
    if (log := LogFile.parse(path, size_bytes)) is not None:
        below = snapshot.group(stat.group)
        assert below is not None, "a log file was appended to something"
        return below._replace(logs=(*below.logs, log))
    found = DataFile.parse(path, size_bytes)
    assert found is not None, "a file that was written has a path"
    return found


def _merged(first: WriteStat, later: WriteStat) -> WriteStat:
    return replace(
        later,
        num_inserts=(first.num_inserts or 0) + (later.num_inserts or 0),
        num_update_writes=(first.num_update_writes or 0) + (later.num_update_writes or 0),
        num_deletes=(first.num_deletes or 0) + (later.num_deletes or 0),
    )


@dataclass(frozen=True)
class WriteContext:
    """What a task needs to write files of a transaction; picklable.

    `schema` is that of the rows to write and of the files. The driver has claimed the file groups that tasks rewrite, as far as
    that is known before.
    """

    location: StorageLocation
    instant: str
    operation: str
    writer: WriterIdentity
    properties: TableProperties
    schema: TableSchema
    settings: Settings
    own: tuple[OwnFile, ...] = ()
    """What earlier writes of the transaction have written: these files are rewritten from, and do not stay."""
    to_rewrite: frozenset[FileGroupId] = frozenset()
    """The file groups that get new base files, however few of their rows change."""

    def may_append(self, base: DataFile) -> bool:
        """Whether a log file may be appended to a file group, if few rows of it change."""
        appends = self.properties.is_merge_on_read and self.settings.write.append_below > 0
        return appends and bool(base.token) and base.group not in self.to_rewrite

    @property
    def requests_at_once(self) -> int:
        """How many requests of a task are made at the same time."""
        return requests_at_once(self.location.uri, self.settings.listing.parallel_requests)

    def io(self) -> TableIO:
        """The table's storage, opened in this process."""
        return TableIO(self.location.open(), concurrent_requests=self.settings.listing.parallel_requests)

    @classmethod
    def of(
        cls, table: OpenTable, baseline: Baseline, schema: TableSchema, own: tuple[OwnFile, ...] = (),
        to_rewrite: frozenset[FileGroupId] = frozenset(),
    ) -> WriteContext:  # fmt: skip
        """For files of the transaction that began with this baseline."""
        return cls(
            location=table.location,
            instant=baseline.instant,
            operation=baseline.operation,
            writer=table.writer,
            properties=baseline.properties,
            schema=schema,
            settings=table.settings,
            own=own,
            to_rewrite=to_rewrite,
        )

    def stamp(self, file: DataFile) -> Stamp:
        return Stamp(self.properties.name, self.instant, file.partition, file.name)


@dataclass(frozen=True)
class Detached:
    """What the other process needs to go on with it; small and picklable."""

    baseline: Baseline
    schema: TableSchema
    heartbeat: HeartbeatRecord
    application: AppTransaction | None = None
    tag: str = ""
