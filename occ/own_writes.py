"""What a transaction has written so far, for its next write to see: it may rewrite these files before they are committed.

A file group still gets one file: the commit counts the newest, and removes the others as it removes those of failed tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakelock.table.commit_metadata import WriteStat
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.statistics import FileStatistics


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
            found[stat.group] = stat if before is None else _both(before, stat)
        return OwnWrites(tuple(found.values()))

    def over(self, snapshot: Snapshot) -> Snapshot:
        """What the next write sees, where this is the snapshot from which the transaction began."""
        rows = {_file(stat): FileStatistics(rows=stat.num_writes) for stat in self.stats}
        return snapshot.with_files(rows) if rows else snapshot

    def files(self, snapshot: Snapshot) -> tuple[OwnFile, ...]:
        """All files."""
        return tuple(OwnFile(_file(stat), snapshot.group(stat.group)) for stat in self.stats)


def _file(stat: WriteStat) -> DataFile:
    found = DataFile.parse(stat.path or "", stat.file_size_bytes or 0)
    assert found is not None, "a file that was written has a path"
    return found


def _both(first: WriteStat, later: WriteStat) -> WriteStat:
    return replace(
        later,
        num_inserts=(first.num_inserts or 0) + (later.num_inserts or 0),
        num_update_writes=(first.num_update_writes or 0) + (later.num_update_writes or 0),
        num_deletes=(first.num_deletes or 0) + (later.num_deletes or 0),
    )
